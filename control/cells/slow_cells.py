"""A cell that answers late, or not at all, holds one thread of a worker and not all of them."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from control.work.errors import Again

SLOW_AFTER_S: Final = 3.0
"""One that is well says within a second that an act is under way."""
AGAIN_AFTER_S: Final = 2.0


class OneAtATime:
    """Of the acts of a cell that was slow at the last one; safe to share between threads."""

    def __init__(self, slow_after_s: float = SLOW_AFTER_S) -> None:
        self._slow_after_s = slow_after_s
        self._lock = threading.Lock()
        self._is_slow = False
        self._is_tried = False

    @contextmanager
    def act(self) -> Iterator[None]:
        """Raises Again while another one finds out how the cell is."""
        with self._lock:
            tries = self._is_slow
            if tries and self._is_tried:
                raise Again(AGAIN_AFTER_S)
            self._is_tried = self._is_tried or tries
        began = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._is_slow = time.monotonic() - began > self._slow_after_s
                if tries:
                    self._is_tried = False
