"""What all sessions have in common: a statement goes in, a Result comes out."""

import abc
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from clients.closing import Closing
from clients.credentials import Credential
from clients.transport import Authorities

ROWS_MAX: Final = 10_000
# A paused instance wakes first.
CONNECT_TIMEOUT_S: Final = 60

INVALID: Final = 400
UNAUTHORIZED: Final = 401
UNAVAILABLE: Final = 503


@dataclass(frozen=True)
class Result:
    """The answer to one statement; rows hold JSON values in the order of `columns`."""

    columns: list[str]
    rows: list[list[Any]]
    row_count: int
    truncated: bool
    elapsed_ms: float
    column_types: list[str] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        return asdict(self)


class Session(Closing):
    """Statements on one instance, over one connection.

    The certificate and the host's name in it are always verified. A session is for one thread.
    """

    def __init__(self, credential: Credential, authorities: Authorities) -> None:
        self.credential = credential
        self._authorities = authorities

    @abc.abstractmethod
    def query(self, statement: str, params: Sequence[Any] | None = None) -> Result:
        """Run one statement; at most ROWS_MAX rows of its answer are kept.

        Raises `errors.QueryFailed` with the engine's own words, its `status` 401 where the
        credential is refused; `errors.ConnectionFailed` where the instance cannot be reached.
        """

    @abc.abstractmethod
    def version(self) -> str:
        """Answer what runs there and in which version, for people."""


@dataclass
class QueryResult:
    """A result as it comes in: rows over ROWS_MAX are dropped, and only their being is noted."""

    columns: list[str] = field(default_factory=list)
    column_types: list[str] = field(default_factory=list)
    rows: list[list[Any]] = field(default_factory=list)
    changed: int = 0
    truncated: bool = False

    def add(self, row: Sequence[Any]) -> None:
        if len(self.rows) < ROWS_MAX:
            self.rows.append([jsonable(value) for value in row])
        else:
            self.truncated = True

    def result(self, elapsed_s: float) -> Result:
        return Result(
            columns=self.columns,
            rows=self.rows,
            row_count=len(self.rows) if self.columns else max(self.changed, 0),
            truncated=self.truncated,
            elapsed_ms=round(elapsed_s * 1000, 3),
            column_types=self.column_types,
        )


def jsonable(value: Any) -> Any:
    """Answer the value with what JSON has no word for as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, (bytes, bytearray)):
        return f"0x{value.hex()}"
    if isinstance(value, Mapping):
        return {str(jsonable(name)): jsonable(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(each) for each in value]
    return value
