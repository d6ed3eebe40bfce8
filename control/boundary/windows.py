"""Moving windows: how many requests a key made lately, counted in this process or by `limits`."""

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from limits import RateLimitItemPerSecond
from limits.storage import MovingWindowSupport, Storage
from limits.strategies import MovingWindowRateLimiter

_SWEEP_EVERY: Final = 10_000


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
    """The library's storage for one process, on a clock that can be given.

    The library's own MemoryStorage reads `time.time()`, and starts a thread that walks over all
    keys every 10 ms in which there is a request.
    """

    STORAGE_SCHEME = None

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__()
        self._clock = clock
        self._lock = threading.Lock()
        self._hits: dict[str, list[float]] = {}
        self._expiries: dict[str, int] = {}
        self._until_sweep = _SWEEP_EVERY

    @property
    def base_exceptions(self) -> type[Exception]:
        return ValueError

    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        now = self._clock()
        with self._lock:
            self._sweep_sometimes(now)
            hits = self._hits.setdefault(key, [])
            self._expiries[key] = expiry
            del hits[: bisect_right(hits, now - expiry)]
            if len(hits) + amount > limit:
                return False
            hits.extend([now] * amount)
            return True

    def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:  # noqa: ARG002 -- the library's signature
        now = self._clock()
        with self._lock:
            hits = self._hits.get(key, [])
            first = bisect_right(hits, now - expiry)
            return (hits[first], len(hits) - first) if first < len(hits) else (now, 0)

    def clear(self, key: str) -> None:
        with self._lock:
            self._hits.pop(key, None)

    def reset(self) -> int:
        with self._lock:
            forgotten = len(self._hits)
            self._hits.clear()
            return forgotten

    def check(self) -> bool:
        return True

    def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        raise NotImplementedError("only moving windows are counted here")

    def get(self, key: str) -> int:
        with self._lock:
            return len(self._hits.get(key, []))

    def get_expiry(self, key: str) -> float:
        return self._clock() + self._expiries.get(key, 0)

    def _sweep_sometimes(self, now: float) -> None:
        self._until_sweep -= 1
        if self._until_sweep > 0:
            return
        self._until_sweep = _SWEEP_EVERY
        over = [
            key
            for key, hits in self._hits.items()
            if not hits or hits[-1] <= now - self._expiries[key]
        ]
        for key in over:
            del self._hits[key], self._expiries[key]
