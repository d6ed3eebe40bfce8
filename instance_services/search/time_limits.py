"""Owns how long a request may search."""

import time
from dataclasses import dataclass
from typing import Final, Self

REQUEST_S: Final = 10.0
SEVERAL_S: Final = 5.0
"""After this time each of several searches leaves out what it has not looked at."""


@dataclass(frozen=True)
class TimeLimit:
    """Of one request, all its searches together; moments of `time.monotonic`."""

    ends: float
    """Then the request is refused."""
    cut_off: float
    """Then only the best candidates are put in order, whatever the settings of an index say."""

    @classmethod
    def of_one(cls) -> Self:
        """Of a request with a single search: the settings of its index say when it is cut off."""
        ends = time.monotonic() + REQUEST_S
        return cls(ends, ends)

    @classmethod
    def of_several(cls) -> Self:
        now = time.monotonic()
        return cls(now + REQUEST_S, now + SEVERAL_S)
