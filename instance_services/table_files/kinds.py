"""Owns the kinds of columns: what the values of a file are, in no engine's words."""

from dataclasses import asdict, dataclass
from typing import Any, Final

BOOLEAN: Final = "boolean"
BIGINT: Final = "bigint"
DECIMAL: Final = "decimal"
REAL: Final = "real"
DOUBLE: Final = "double"
DATE: Final = "date"
TIMESTAMP: Final = "timestamp"
TIMESTAMPTZ: Final = "timestamptz"
TIME: Final = "time"
UUID: Final = "uuid"
JSON: Final = "json"
BLOB: Final = "blob"
TEXT: Final = "text"
KINDS: Final = frozenset(
    {
        *(BOOLEAN, BIGINT, DECIMAL, REAL, DOUBLE, DATE, TIMESTAMP, TIMESTAMPTZ, TIME, UUID),
        *(JSON, BLOB, TEXT),
    }
)

ROW_BYTES_MAX: Final = 4 << 20
"""Of a row of CSV."""
COLUMNS_MAX: Final = 2000
"""Of a file that is looked at; engines have fewer."""
DECIMAL_DIGITS_MAX: Final = 38
FRAME_BYTES_MAX: Final = 1 << 20
"""Of a block that is passed on, and of a line that says what it is of."""
MEMBERS_MAX: Final = 1000
"""Of files that become tables."""


@dataclass(frozen=True)
class FoundColumn:
    """`native` is the type of a Parquet file; `digits` and `scale` are of decimals.

    `bytes_max` is how long the longest value is as a text; None where there is none.
    """

    name: str
    kind: str
    native: str | None = None
    digits: int | None = None
    scale: int | None = None
    bytes_max: int | None = None

    def told(self) -> dict[str, Any]:
        return asdict(self)
