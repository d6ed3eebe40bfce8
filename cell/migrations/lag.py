"""How long ago a source was where the instance is now."""

from collections import deque
from typing import Final, Generic, TypeVar

from cell.engines.wal_sources import LogPlace

# Of where the source was, one a second.
SAMPLES_MAX: Final = 3600
P = TypeVar("P", int, LogPlace)


class SourceLag(Generic[P]):
    """Of places in a source's log. Looked at once a second, it tells a second too much at most."""

    def __init__(self) -> None:
        self._reached: deque[tuple[float, P]] = deque(maxlen=SAMPLES_MAX)

    def seconds(self, now: float, here: P, there: P) -> float:
        """At the unix time `now`, the instance is `here` and the source `there`."""
        self._reached.append((now, there))
        while len(self._reached) > 1 and self._reached[1][1] <= here:
            self._reached.popleft()
        return round(now - self._reached[0][0], 1) if here < there else 0.0
