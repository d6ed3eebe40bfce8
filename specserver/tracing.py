"""Where spans of a trace begin and end; nothing is recorded until a tracer is connected.

Names and attributes are of few values, such as the id of an operation: no paths, ids or secrets.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Literal, Protocol

Role = Literal["server", "client", "consumer", "internal"]
HEADER: Final = "traceparent"
"""Of W3C Trace Context: the name of the header, and of what work keeps it as."""
_NOTHING: Final[AbstractContextManager[None]] = nullcontext()


class Tracer(Protocol):
    """Records spans, and hands on where they belong."""

    def span(
        self, name: str, role: Role, parent: str | None, attributes: Mapping[str, str | int]
    ) -> AbstractContextManager[None]: ...
    def traceparent(self) -> str | None: ...


class _Connection:
    tracer: Tracer | None = None


_CONNECTION: Final = _Connection()


def connect(tracer: Tracer | None) -> None:
    """From now on it records; None: nobody does."""
    _CONNECTION.tracer = tracer


def span(
    name: str,
    role: Role = "internal",
    parent: str | None = None,
    **attributes: str | int,
) -> AbstractContextManager[None]:
    """The block as a span below `parent` (a traceparent), or below the one that is open here."""
    tracer = _CONNECTION.tracer
    return _NOTHING if tracer is None else tracer.span(name, role, parent, attributes)


def traceparent() -> str | None:
    """Of the span that is open, for whoever goes on with it elsewhere; None without one."""
    return None if _CONNECTION.tracer is None else _CONNECTION.tracer.traceparent()


def headers() -> dict[str, str]:
    found = traceparent()
    return {} if found is None else {HEADER: found}
