"""Folders of an engine's are touched in one place, which follows no link there.

`Site.data` and `Site.run` are no paths, so that mypy refuses them to functions of the system's.
Here is counted who makes paths of them, and who walks over folders, removes or gives away by path.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from cell.runtime.engine_files import EnginePath
from contract_tests.habits.test_sizes import FILES, ROOT, names, parsed

OURS = "cell/runtime/engine_files.py"
# Where `EnginePath.outside` is taken, how often, and why nothing is followed by that.
OUTSIDE = {
    "cell/runtime/host.py": (2, "for the words of a program; they lie in folders of the cell's"),
    "cell/runtime/engine_folders.py": (2, "folders for mounts; in folders of the cell's"),
    "cell/runtime/confined_tools.py": (1, "a folder for a mount, in a folder of the cell's"),
    "cell/layout.py": (2, "the folders themselves, which lie in folders of the cell's"),
    "cell/instances/lifecycle.py": (1, "the same: whether they are there"),
    "cell/engines/mysql/snapshots.py": (2, "a folder for a mount, among the cell's snapshots"),
    "cell/engines/postgres/wal.py": (1, "a folder for a mount, in one of the cell's"),
    "cell/engines/postgres/upgrade.py": (2, "for the words of a program"),
    "cell/migrations/table_files/in_duckdb.py": (1, "a folder for a mount, in one of the cell's"),
}
# By path they follow links, or look at what a link leads to; wherever they have one at hand.
FOLLOWING = {
    *("rmtree", "copytree", "copy2", "copyfile", "move", "walk", "fwalk", "rglob", "glob"),
    *("chown", "lchown", "utime", "truncate", "iterdir", "scandir", "listdir"),
}
MODULES = {"engine_files"}
# Who calls such a function, and whose the folder is.
CELLS_OWN = {
    "cell/certificates/acme/challenge.py": "the home's",
    "cell/certificates/pki.py": "the home's",
    "cell/instances/egress.py": "what the gateway wrote, in a folder of the cell's",
    "cell/engines/log_pieces.py": "what was fetched for a restore, in a folder of the cell's",
    "cell/engines/mysql/log_replay.py": "what was fetched for a restore, of the cell's",
    "cell/engines/mysql/files.py": "a snapshot that is complete, of the cell's",
    "cell/engines/mysql/templates.py": "names in the templates' folder, of the cell's",
    "cell/engines/postgres/data_folder.py": "names in the instance's folder, of the cell's",
    "cell/engines/postgres/extensions.py": "programs, of the cell's or the system's",
    "cell/engines/postgres/installation.py": "programs, of the cell's or the system's",
    "cell/engines/postgres/sources.py": "programs of the system's",
    "cell/engines/resp/append_only.py": "what was fetched for a restore, of the cell's",
    "cell/engines/resp/files.py": "a snapshot that is complete, of the cell's",
    "cell/instances/activity.py": "the home's",
    "cell/instances/sent_bytes.py": "what the gateway wrote, in a folder of the cell's",
    "gateway/sent_bytes.py": "the gateway's own files, in a folder of the cell's",
    "cell/instances/dumps.py": "names in the instance's folder, of the cell's",
    "cell/instances/nameless_files.py": "/proc",
    "cell/instances/snapshots.py": "snapshots of the cell's; a copy that is made is not read",
    "cell/instances/wal_recoveries.py": "what is unpacked for a restore, in a folder of the cell's",
    "cell/layout.py": "the home's, before engines run; the configuration",
    "cell/migrations/conduit.py": "a folder of the cell's, among those of sockets",
    "cell/migrations/redis/copying.py": "what came from a source, in a folder of the cell's",
    "cell/migrations/redis/journal.py": "the same",
    "cell/migrations/redis/sync.py": "the same",
    "cell/migrations/server_socket.py": "held open, and the cell's own while it is filled",
    "cell/migrations/spool.py": "a file that was sent, in a folder of the cell's",
    "cell/migrations/table_files/reader.py": "what was sent, in a folder of the cell's",
    "cell/migrations/table_files/unpacking.py": "the same",
    "cell/runtime/cgroups.py": "control groups",
    "cell/runtime/log_files.py": "logs, in a folder of the cell's",
    "cell/runtime/owners.py": "looks at what lies there itself",
    "cell/runtime/priority.py": "/proc",
    "cell/runtime/process.py": "/proc",
    "cell/runtime/reach.py": "programs, of the cell's or the system's",
    "cell/runtime/stop_signals.py": "/proc",
    "gateway/activity.py": "the home's",
    "gateway/certificates.py": "the home's",
}
CELLS = {
    names(path): path
    for path in FILES
    if path.relative_to(ROOT).parts[0] in {"cell", "gateway"} and names(path) != OURS
}


def attributes(path: Path, wanted: str) -> int:
    return sum(
        isinstance(node, ast.Attribute) and node.attr == wanted for node in ast.walk(parsed(path))
    )


def calls(path: Path) -> Iterator[str]:
    """By the last name; those of `engine_files` do not count."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and node.module in {"os", "shutil", "glob"}:
            yield node.module
        if not isinstance(node, ast.Attribute) or node.attr not in FOLLOWING:
            continue
        if not (isinstance(node.value, ast.Name) and node.value.id in MODULES):
            yield node.attr


def made_of_text(path: Path) -> list[int]:
    """Path(str(…)) and the like, by which a place would become a path after all."""
    return [
        node.lineno
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call)
        and any(
            isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id == "str"
            for each in node.args
        )
        and (
            (isinstance(node.func, ast.Name) and node.func.id in {"Path", "open"})
            or (
                isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id in {"os", "shutil"}
            )
        )
    ]


def test_an_engines_place_is_no_path(tmp_path: Path) -> None:
    for name in ("__fspath__", "open", "exists", "stat", "chmod", "unlink", "mkdir", "iterdir"):
        assert not hasattr(EnginePath(tmp_path), name)


def test_few_make_a_path_of_an_engines_place() -> None:
    found = {name: attributes(path, "outside") for name, path in CELLS.items()}
    found = {name: count for name, count in found.items() if count}
    assert found == {name: count for name, (count, _) in OUTSIDE.items()}
    assert not {name: lines for name, path in CELLS.items() if (lines := made_of_text(path))}


def test_who_follows_links_has_a_folder_of_the_cells() -> None:
    assert {name for name, path in CELLS.items() if any(calls(path))} == CELLS_OWN.keys()
