"""The list of mutants that cannot matter, equivalent.toml, and which of its entries are stale."""

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from tools.mutants.results import Change

TABLE: Final = Path(__file__).with_name("equivalent.toml")
_ANY: Final = "…"


@dataclass(frozen=True)
class Entry:
    """What is written instead of what, in which files; "…" is any text. `reason`: why it may."""

    files: str
    old: str
    new: str
    reason: str
    function: str = ""
    """The only one, or any."""

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        parts = (map(re.escape, text.strip().split(_ANY)) for text in (self.old, self.new))
        return re.compile("\0".join("(?s:.*)".join(part) for part in parts))

    def covers(self, change: Change) -> bool:
        if not Path(change.mutant.path).match(self.files):
            return False
        if self.function not in {"", change.function}:
            return False
        return self._pattern.fullmatch(f"{change.old}\0{change.new}") is not None

    def __str__(self) -> str:
        return f"{self.files}: {self.old!r} -> {self.new!r}"


def read(table: Path = TABLE) -> list[Entry]:
    entries = tomllib.loads(table.read_text()).get("equivalent", [])
    return [Entry(files=one.pop("in"), **one) for one in entries]


def split(
    entries: Iterable[Entry], survivors: Iterable[Change]
) -> tuple[list[Change], list[Change], list[Entry]]:
    """The survivors that matter, those that do not, and the entries that cover none."""
    matter: list[Change] = []
    excused: list[Change] = []
    unused = list(entries)
    known = tuple(unused)
    for change in survivors:
        covering = [entry for entry in known if entry.covers(change)]
        (excused if covering else matter).append(change)
        unused = [entry for entry in unused if entry not in covering]
    return matter, excused, unused
