"""Nothing is kept that only tests use: what a room defines, a room uses."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from contract_tests.habits.test_imports import SHIPPED, module_of
from contract_tests.habits.test_sizes import ROOT, parsed

Name = tuple[str, str]
"""A module, and a name in it."""

# Modules and names that something else uses, and what.
ELSEWHERE = {
    r"menagerie\.gunicorn_settings \w+": "gunicorn reads each name of its settings",
    r"clients\.sessions\.\w+ \w+Session": "`clients.sessions` imports the one that it needs",
    r"control\.workflows\.[\w.]+ SCHEDULE": "`control.work.registry.collect` looks for what is one",
    r"control\.[\w.]+\.measures [A-Z_]+": "`collect` of these looks for what is one",
    r"cell\.console\.\w+ run": "the console's worker imports the dialect that it needs",
    r"storage\.migrations downgrade": "the way back from an upgrade, which no command has",
    r"storage\.migrations\.(env|versions\.\w+) \w+": "Alembic calls them",
}
HANDLERS = re.compile(r"(\w+\.)*handlers(\.\w+){1,2}")
DOCUMENTS = [
    each
    for pattern in ("openapi.yaml", "openapi/*.yaml", "*/openapi.yaml", "*/*/openapi.yaml")
    for each in ROOT.glob(pattern)
]


def defined(path: Path) -> Iterator[str]:
    """The functions, classes and constants of a module."""
    for node in parsed(path).body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            # A decorator may have registered it.
            yield from () if node.decorator_list else (node.name,)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            parts = (part for target in targets for part in ast.walk(target))
            names = {part.id for part in parts if isinstance(part, ast.Name)}
            yield from sorted(names - {"__all__"})


def used(path: Path) -> Iterator[Name]:
    """By name in its own module, by import, or as an attribute of a module that was imported."""
    own = module_of(path)
    modules: dict[str, str] = {}
    nodes = list(ast.walk(parsed(path)))
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield node.module, alias.name
                modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield own, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield modules.get(node.value.id, ""), node.attr


def spelt(path: Path) -> Iterator[str]:
    """Texts that are nothing but a name with its module, as `package.module:name`."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value.replace(":", ".")


def operations() -> Iterator[str]:
    """The functions that the documents name, as `specserver` looks for them."""
    for document in DOCUMENTS:
        for name in re.findall(r"operationId: (\S+)", document.read_text()):
            found = name.rpartition(".")[2].replace("-", "_")
            yield from (found, f"{found}_")


def test_a_room_uses_what_the_rooms_define() -> None:
    names = {name for path in SHIPPED for name in used(path)}
    texts = {text for path in SHIPPED for text in spelt(path)}
    answered = {*operations()}
    unused = [
        f"{module} {name}"
        for module, path in sorted((module_of(path), path) for path in SHIPPED)
        for name in defined(path)
        if (module, name) not in names
        and f"{module}.{name}" not in texts
        and not (HANDLERS.fullmatch(module) and name in answered)
    ]
    excepted = [one for one in unused if any(re.fullmatch(each, one) for each in ELSEWHERE)]
    assert not sorted(set(unused) - set(excepted)), "only tests use it, or nothing: remove it"
    # An exception that nothing needs any more is none.
    needed = {each for each in ELSEWHERE for one in excepted if re.fullmatch(each, one)}
    assert needed == set(ELSEWHERE)
