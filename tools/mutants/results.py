"""What became of mutants: counted, and where in the code they are."""

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.stats import status_by_exit_code
from mutmut.utils.format_utils import orig_function_and_class_names_from_key

# Exit statuses as mutmut reads them. The second that kills is pytest's for errors of its own.
SURVIVED: Final = 0
KILLED: Final = (1, 3)
NO_TESTS: Final = 33
NO_VERDICT: Final = 35
TIMEOUT: Final = 36


@dataclass(frozen=True)
class Mutant:
    """One change of a file. `code` is mutmut's: an exit status, or None before it is tried."""

    name: str
    path: str
    code: int | None

    @property
    def outcome(self) -> str:
        """As killed, survived, "no tests", timeout."""
        return str(status_by_exit_code[self.code])

    @property
    def is_survivor(self) -> bool:
        """Where no test comes to what is changed, it survives as well."""
        return self.outcome in {"survived", "no tests"}


@dataclass(frozen=True)
class Change:
    """What a mutant changes: the lines that it takes away, and those that it writes instead."""

    mutant: Mutant
    diff: tuple[str, ...]
    """Of the function, as `diff -u` has it."""

    @property
    def function(self) -> str:
        return str(orig_function_and_class_names_from_key(self.mutant.name)[0])

    @cached_property
    def old(self) -> str:
        return self._lines("-")

    @cached_property
    def new(self) -> str:
        return self._lines("+")

    def _lines(self, mark: str) -> str:
        return "\n".join(line[1:].strip() for line in self.diff if line[0] == mark)

    def line(self, source: str) -> int:
        """Where it begins in the file."""
        function, of_class = orig_function_and_class_names_from_key(self.mutant.name)
        first = _first_line(source, function, of_class)
        start, before = 1, 0
        for each in self.diff:
            if each.startswith("@@"):
                start, before = int(each.split()[1].lstrip("-").partition(",")[0]), 0
            elif each[0] in "-+":
                break
            else:
                before += 1
        return first + start - 1 + before


def change_of(mutant: Mutant) -> Change:
    """Is called in mutmut's folder."""
    lines = get_diff_for_mutant(mutant.name, path=mutant.path).splitlines()
    return Change(mutant, tuple(line for line in lines if not line.startswith(("---", "+++"))))


def counts(mutants: Iterable[Mutant]) -> dict[str, int]:
    found: dict[str, int] = {}
    for mutant in mutants:
        found[mutant.outcome] = found.get(mutant.outcome, 0) + 1
    return found


def where(change: Change, root: Path) -> str:
    return f"{change.mutant.path}:{change.line((root / change.mutant.path).read_text())}"


def _first_line(source: str, function: str, of_class: str | None) -> int:
    """Of a function with the comments above it, as mutmut's diff begins."""
    body = ast.parse(source).body
    if of_class is not None:
        classes = (node for node in body if isinstance(node, ast.ClassDef))
        body = next(node.body for node in classes if node.name == of_class)
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = next(node for node in body if isinstance(node, kinds) and node.name == function)
    first = min([found.lineno, *(each.lineno for each in found.decorator_list)])
    lines = source.splitlines()
    above = first
    while above > 1 and lines[above - 2].strip()[:1] in {"", "#"}:
        above -= 1
        first = above if lines[above - 1].strip() else first
    return first
