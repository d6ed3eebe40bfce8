"""Owns content negotiation: whether an operation can answer what the client accepts."""

from collections.abc import Sequence

from specserver.operations import Operation
from specserver.problems import MEDIA_TYPE as PROBLEM
from specserver.problems import NotAcceptable

_MAX_SEEN = 256


class Acceptance:
    """The media types of an operation's successes, against `Accept` (RFC 9110)."""

    __slots__ = ("_seen", "media_types")

    def __init__(self, media_types: set[str]) -> None:
        self.media_types = media_types
        self._seen: dict[bytes, bool] = {b"*/*": True}

    def check(self, accept: bytes | None) -> None:
        if accept is None or not self.media_types:
            return
        answer = self._seen.get(accept)
        if answer is None:
            answer = accepts(accept.decode("latin-1"), self.media_types)
            if len(self._seen) < _MAX_SEEN:
                self._seen[accept] = answer
        if not answer:
            raise NotAcceptable(
                f"this response is available only as {', '.join(sorted(self.media_types))}"
            )


def media_types(operation: Operation) -> set[str]:
    """What an operation answers with when all goes well."""
    types: set[str] = set()
    for status, response in operation.document.get("responses", {}).items():
        if status.startswith("2") or status == "default":
            types |= {t.partition(";")[0].strip().lower() for t in response.get("content", {})}
    return types - {PROBLEM} or types


def accepts(accept: str, media_types: set[str]) -> bool:
    """Whether any of the types is accepted; the most specific range decides for each."""
    ranges = _ranges(accept)
    return not ranges or any(_quality_of(each, ranges) > 0 for each in media_types)


def preferred(accept: str | None, media_types: Sequence[str]) -> str:
    """The type that the client prefers; of those that it likes equally, the first."""
    ranges = _ranges(accept or "*/*") or {"*/*": 1.0}
    return max(media_types, key=lambda each: _quality_of(each, ranges))


def _ranges(accept: str) -> dict[str, float]:
    """By range, its quality; the best of those that differ in other parameters only."""
    ranges: dict[str, float] = {}
    for part in accept.split(","):
        name, *parameters = [piece.strip().lower() for piece in part.split(";")]
        if name:
            ranges[name] = max(_quality(parameters), ranges.get(name, 0.0))
    return ranges


def _quality_of(media_type: str, ranges: dict[str, float]) -> float:
    kind = media_type.partition("/")[0] + "/*"
    for candidate in (media_type, kind, "*/*"):
        if candidate in ranges:
            return ranges[candidate]
    return 0.0


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
