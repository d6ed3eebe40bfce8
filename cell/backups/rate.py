"""How fast a cell reads and writes its store of backups, whoever of its instances it is for."""

import threading
import time
from collections.abc import Callable


class Rate:
    """`bytes_per_s` on the average, of all threads together; 0 is no limit."""

    def __init__(
        self,
        bytes_per_s: int = 0,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._sleep = sleep
        self._free_at = 0.0
        self._lock = threading.Lock()

    def spend(self, size_bytes: int) -> None:
        """Returns once what was spent before has had its time; blocks until then."""
        if not self._bytes_per_s:
            return
        with self._lock:
            now = self._clock()
            begins = max(now, self._free_at)
            self._free_at = begins + size_bytes / self._bytes_per_s
        if begins > now:
            self._sleep(begins - now)
