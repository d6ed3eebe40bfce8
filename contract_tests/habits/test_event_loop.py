"""A cell serves everybody on one event loop: nothing that walks over a tenant's files runs on it.

Such work belongs in a thread. What is looked for: calls in coroutines of `cell/` that remove, copy
or walk over folders, and calls of plain functions that do, however far below.

Nor does the loop listen to one peer alone: what has arrived is read without waiting, so whoever
sends thousands of small pieces keeps it busy until they are read.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from contract_tests.habits.test_sizes import FILES, ROOT, parsed

WALKS = {
    "rmtree",
    "copytree",
    "walk",
    "fwalk",
    "rglob",
    "copyfileobj",
    "glob",
    "iterdir",
    "scandir",
    "listdir",
}
# Small folders of the cell's own, which no tenant fills, and what is in a thread already.
ALLOWED = {
    "cell.engines.mysql.templates._workshop": "a template of ours, once for each release",
    "cell.engines.postgres.extensions.called": "the extensions of an installation",
    "cell.engines.postgres.installation.alone": "entered in a thread",
    "cell.instances.activity.read": "a file for each process of the gateway",
}
# What reads in pieces that a peer chooses, and what lets others have their turn.
READS = {"readuntil", "readline", "readexactly"}
TURNS = {
    "cell.engines.resp.connection._line": "sleeps after so many lines",
    "cell.engines.resp.connection._answer": "after a line",
    "cell.migrations.conduit.let_in": "ends after so many bytes",
    "cell.migrations.mysql.lent_session._packet": "who asks for one sleeps after it",
    "cell.migrations.postgres.psql._until": "sleeps after so many lines",
    "cell.migrations.redis.source.line": "who asks for few, and sleeps after an empty one",
    "cell.migrations.redis.source.value": "sleeps after so many",
    "cell.migrations.table_files.reader.blocks": "sleeps after each",
    "cell.migrations.table_files.reader.line": "sleeps before each",
}
CELL = [path for path in FILES if path.relative_to(ROOT).parts[0] == "cell"]
Function = ast.FunctionDef | ast.AsyncFunctionDef


def module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


class Code:
    """The functions of a module and what each calls, by full names."""

    def __init__(self, path: Path) -> None:
        self.name, self.tree = module(path), parsed(path)
        self.known: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for one in node.names:
                    self.known[one.asname or one.name] = f"{node.module}.{one.name}"

    def functions(self) -> Iterator[tuple[str, Function]]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{self.name}.{node.name}", node

    def calls(self, function: Function) -> Iterator[tuple[str, int]]:
        """By itself: what a function within it or a lambda calls may run in a thread."""
        todo: list[ast.AST] = [*function.body]
        while todo:
            node = todo.pop()
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                continue
            if isinstance(node, ast.Call):
                yield self._called(node.func), node.lineno
            todo.extend(ast.iter_child_nodes(node))

    def _called(self, called: ast.expr) -> str:
        if isinstance(called, ast.Name):
            return self.known.get(called.id, f"{self.name}.{called.id}")
        if isinstance(called, ast.Attribute):
            if isinstance(called.value, ast.Name):
                if called.value.id == "self":
                    return f"{self.name}.{called.attr}"
                return f"{self.known.get(called.value.id, called.value.id)}.{called.attr}"
            return f"?.{called.attr}"
        return "?"


def walking(modules: list[Code]) -> set[str]:
    """The plain functions that walk over folders, by themselves or by what they call."""
    calls = {
        name: {called for called, _ in code.calls(node)}
        for code in modules
        for name, node in code.functions()
        if isinstance(node, ast.FunctionDef)
    }
    found: set[str] = set()
    while True:
        more = {
            name
            for name, called in calls.items()
            if name not in found and any(one in found or walks(one) for one in called)
        }
        if not more:
            return found
        found |= more


def walks(called: str) -> bool:
    return called.rpartition(".")[2] in WALKS


def test_no_coroutine_of_a_cell_walks_over_folders() -> None:
    modules = [Code(path) for path in CELL]
    heavy = walking(modules)
    assert len(heavy) > 20
    wrong = [
        f"{code.name}:{line} {name} calls {called}"
        for code in modules
        for name, node in code.functions()
        if isinstance(node, ast.AsyncFunctionDef)
        for called, line in code.calls(node)
        if called in heavy or walks(called)
    ]
    assert not [one for one in wrong if one.rpartition(" ")[2] not in ALLOWED]
    assert {one.rpartition(" ")[2] for one in wrong} >= ALLOWED.keys(), "allowed in vain"


def test_each_coroutine_that_reads_small_pieces_gives_others_their_turn() -> None:
    reading = {
        name
        for code in map(Code, CELL)
        for name, node in code.functions()
        if isinstance(node, ast.AsyncFunctionDef)
        for called, _ in code.calls(node)
        if called.rpartition(".")[2] in READS
    }
    assert reading == TURNS.keys(), "say above what lets others have their turn"
