"""Moving windows: how many requests a key made lately, counted in this process or by `limits`."""

import threading
import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from limits import RateLimitItemPerSecond
from limits.storage import MovingWindowSupport, Storage
from limits.strategies import MovingWindowRateLimiter

# Some 80 MB. Fewer guesses are made in a quarter of an hour, as each takes a verified password.
_KEYS_MAX: Final = 200_000
# More than are added by one charge, so that what is over does not pile up.
_FORGOTTEN_AT_ONCE: Final = 2


@dataclass(frozen=True)
class Window:
    """At most `amount` requests within any `length_s` seconds."""

    name: str
    amount: int
    length_s: int


@dataclass(frozen=True)
class Use:
    """How much of a window is used, and the seconds until the oldest request leaves it."""

    window: Window
    used: int
    reset_s: float

    @property
    def full(self) -> bool:
        return self.used >= self.window.amount


@dataclass(frozen=True)
class Count:
    """Whether a request was let in, and the use of each window after it."""

    allowed: bool
    uses: tuple[Use, ...]


class Meter(Protocol):
    """Counts requests by key. A refused request is counted in no window."""

    def charge(self, key: str, windows: Sequence[Window]) -> Count: ...


class LibraryMeter:
    """Counts in any storage of the `limits` library that has moving windows."""

    def __init__(self, storage: Storage, *, clock: Callable[[], float] = time.time) -> None:
        self._limiter = MovingWindowRateLimiter(storage)
        self._clock = clock

    def charge(self, key: str, windows: Sequence[Window]) -> Count:
        items = [
            RateLimitItemPerSecond(window.amount, window.length_s, namespace=window.name)
            for window in windows
        ]
        allowed = all(self._limiter.test(item, key) for item in items)
        allowed = allowed and all(self._limiter.hit(item, key) for item in items)
        uses = []
        for window, item in zip(windows, items, strict=True):
            stats = self._limiter.get_window_stats(item, key)
            reset_s = max(0.0, stats.reset_time - self._clock())
            uses.append(Use(window, window.amount - stats.remaining, reset_s))
        return Count(allowed, tuple(uses))


class LocalWindows(Storage, MovingWindowSupport):
    """The library's storage for one process, on a clock that can be given, and bounded.

    The library's own MemoryStorage reads `time.time()`, and starts a thread that walks over all
    keys every 10 ms in which there is a request.

    Windows of one length hold `keys_max` keys; beyond that the one charged longest ago is
    forgotten. Each length has its own, so that no flood of cheap requests, which are counted by the
    minute, makes room by forgetting who guessed at an account.
    """

    STORAGE_SCHEME = None

    def __init__(
        self, *, clock: Callable[[], float] = time.time, keys_max: int = _KEYS_MAX
    ) -> None:
        super().__init__()
        self._clock = clock
        self._keys_max = keys_max
        self._lock = threading.Lock()
        # By length; of each, the key charged longest ago comes first.
        self._hits: dict[int, OrderedDict[str, list[float]]] = {}

    @property
    def base_exceptions(self) -> type[Exception]:
        return ValueError

    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        now = self._clock()
        with self._lock:
            kept = self._hits.setdefault(expiry, OrderedDict())
            hits = kept.get(key, [])
            del hits[: bisect_right(hits, now - expiry)]
            if len(hits) + amount > limit:
                return False
            hits.extend([now] * amount)
            kept[key] = hits
            kept.move_to_end(key)
            self._forget(kept, now - expiry)
            return True

    def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:  # noqa: ARG002 -- the library's signature
        now = self._clock()
        with self._lock:
            hits = self._hits.get(expiry, OrderedDict()).get(key, [])
            first = bisect_right(hits, now - expiry)
            return (hits[first], len(hits) - first) if first < len(hits) else (now, 0)

    def clear(self, key: str) -> None:
        with self._lock:
            for kept in self._hits.values():
                kept.pop(key, None)

    def reset(self) -> int:
        with self._lock:
            forgotten = sum(map(len, self._hits.values()))
            self._hits.clear()
            return forgotten

    def check(self) -> bool:
        return True

    def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        raise NotImplementedError("only moving windows are counted here")

    def get(self, key: str) -> int:
        with self._lock:
            return sum(len(kept.get(key, [])) for kept in self._hits.values())

    def get_expiry(self, key: str) -> float:
        with self._lock:
            return self._clock() + max(
                (one for one, kept in self._hits.items() if key in kept), default=0
            )

    def _forget(self, kept: OrderedDict[str, list[float]], before: float) -> None:
        """A few of those that are over, and one more than was added where there are too many."""
        for _ in range(_FORGOTTEN_AT_ONCE):
            oldest, hits = next(iter(kept.items()))
            if hits[-1:] > [before] and len(kept) <= self._keys_max:
                return
            del kept[oldest]
