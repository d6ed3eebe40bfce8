"""What a run shows: the columns, rows and words of its last statement, within bounds."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

CHARACTERS_MAX = 100_000
"""Of one value; what is longer is cut."""
TOO_MUCH = "the result needs more memory than the console has: use LIMIT or another client"
VALUE_BYTES = 32
"""What a value counts for besides its text, as many short ones take memory too."""
COLUMNS_MAX = 2_000
COLUMN_CHARACTERS_MAX = 200
"""Of a column's name, and of its type."""
ESCAPED_BYTES = 6
"""What a character takes at most in JSON."""
NOTES_MAX = 50
NOTE_CHARACTERS_MAX = 10_000


class StatementError(Exception):
    """The run failed; the text is for whoever asked, in the engine's own words."""


@dataclass(frozen=True)
class RunLimits:
    """Of one run. `bytes` are those of all rows in JSON, `memory_bytes` of the process's addresses.

    `alone_bytes` are of its data where no group bounds the processes of all runs together.
    """

    seconds: float = 30.0
    rows: int = 1_000
    bytes: int = 4_000_000
    memory_bytes: int = 512 * 2**20
    alone_bytes: int = 128 * 2**20


@dataclass(frozen=True)
class Column:
    name: str
    type: str
    numeric: bool = False


@dataclass
class Table:
    """`begin` forgets the statement before; `add` answers whether there is room for more."""

    limits: RunLimits
    columns: list[Column] = field(default_factory=list)
    rows: list[list[str | None]] = field(default_factory=list)
    changed: int | None = None
    message: str = ""
    truncated: bool = False
    cut: bool = False
    notes: list[str] = field(default_factory=list)
    _bytes: int = 0

    def begin(self, columns: Sequence[Column] = ()) -> None:
        self.columns = [_bounded(column) for column in columns[:COLUMNS_MAX]]
        self.rows = []
        self.changed, self.message = None, ""
        self.truncated = self.cut = False
        self._bytes = 0

    def add(self, values: Sequence[str | None]) -> bool:
        if self.truncated:
            return False
        row = [self._fitting(value, CHARACTERS_MAX) for value in values[:COLUMNS_MAX]]
        size = _size(row)
        if not self.rows and size > self.limits.bytes:
            # The first is always shown; of too large a one each value is cut to its part.
            part = (self.limits.bytes // len(row) - VALUE_BYTES) // ESCAPED_BYTES
            row = [self._fitting(value, max(1, part)) for value in row]
            size = _size(row)
        full = len(self.rows) == self.limits.rows or self._bytes + size > self.limits.bytes
        if full and self.rows:
            self.truncated = True
            return False
        self.rows.append(row)
        self._bytes += size
        return True

    def note(self, text: str) -> None:
        if len(self.notes) < NOTES_MAX:
            self.notes.append(text[:NOTE_CHARACTERS_MAX])

    def document(self, elapsed_ms: float) -> dict[str, Any]:
        return {
            "columns": [asdict(column) for column in self.columns],
            "rows": self.rows,
            "row_count": len(self.rows),
            "changed": self.changed,
            "message": self.message,
            "truncated": self.truncated,
            "cut": self.cut,
            "notes": self.notes,
            "elapsed_ms": round(elapsed_ms, 1),
        }

    def _fitting(self, value: str | None, characters_max: int) -> str | None:
        if value is None or len(value) <= characters_max:
            return value
        self.cut = True
        return value[:characters_max]


def _bounded(column: Column) -> Column:
    shown = slice(COLUMN_CHARACTERS_MAX)
    return Column(column.name[shown], column.type[shown], column.numeric)


def _size(row: Sequence[str | None]) -> int:
    texts = json.dumps(row, ensure_ascii=False).encode(errors="replace")
    return len(texts) + VALUE_BYTES * len(row)
