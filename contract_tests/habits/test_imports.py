"""Who may import whom: the rooms' walls, read from the code."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from contract_tests.habits.test_sizes import FILES, ROOT, names, parsed

ROOMS = {
    "specserver",
    "handlers",
    "control",
    "storage",
    "cell",
    "gateway",
    "instance_services",
    "clients",
    "pages",
    "menagerie",
}
MAY_IMPORT = {
    "specserver": set(),
    "storage": set(),
    # gateway: whose an address is, and which keys verify fast; clients: how webhooks are signed
    "control": {"clients", "gateway", "storage", "specserver"},
    "handlers": {"control", "storage", "specserver"},
    "pages": set(),
    "cell": {"specserver", "gateway", "instance_services", "pages"},
    "gateway": set(),
    "instance_services": {"specserver"},
    "clients": set(),
    "menagerie": ROOMS,
}
SHIPPED = [path for path in FILES if path.relative_to(ROOT).parts[0] in ROOMS]


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module


def test_a_room_imports_only_its_neighbours() -> None:
    wrong = []
    for path in SHIPPED:
        room = path.relative_to(ROOT).parts[0]
        seen = {name.split(".")[0] for name in imported(path)} & ROOMS
        wrong += [f"{names(path)} imports {each}" for each in seen - MAY_IMPORT[room] - {room}]
    assert not wrong


def test_of_clients_the_control_plane_has_only_what_signs_webhooks() -> None:
    controls = [path for path in SHIPPED if path.relative_to(ROOT).parts[0] == "control"]
    taken = {module for path in controls for module in loaded(path) if module.startswith("clients")}
    assert taken <= {"clients.webhook_signing"}


def test_events_are_published_with_their_alerts() -> None:
    """Who wrote an event by itself would leave out what it raises or resolves."""
    publishers = {
        names(path) for path in SHIPPED if re.search(r"\bevents\.append\(", path.read_text())
    }
    assert publishers == {"control/events/publishing.py"}


def test_what_is_shipped_imports_no_tests_and_no_tools() -> None:
    ours = {"contract_tests", "tools"}
    assert not [
        names(path) for path in SHIPPED if {name.split(".")[0] for name in imported(path)} & ours
    ]


def loaded(path: Path) -> Iterator[str]:
    """The modules of ours that it loads, by functions too; not those that only types name."""
    for node in _run(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in MODULES else node.module


def _run(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from _run(child)


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_of(path): path for path in SHIPPED}


def test_no_module_loads_itself_by_others() -> None:
    """A circle has no beginning for a reader, and its order of loading is a matter of chance."""
    graph = {name: {*loaded(path)} & MODULES.keys() - {name} for name, path in MODULES.items()}
    while leaves := [name for name, others in graph.items() if not others & graph.keys()]:
        for name in leaves:
            del graph[name]
    # What is left is in a circle, or loads what is.
    circles = {name: sorted(others & graph.keys()) for name, others in graph.items()}
    assert not circles
