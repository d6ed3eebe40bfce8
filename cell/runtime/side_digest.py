"""The digest of a stream, counted on a thread of its own beside what else is done with it."""

import hashlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

# Blocks that are in memory until they are counted.
PENDING_MAX: Final = 4


class SideDigest:
    """SHA-256 of what it is told in turn; hashing takes no turn of Python's, so both go on at once.

    What it is told must not be changed before it is counted. ValueError when it is asked once it is
    closed, as a file is: what was still to be counted is dropped then.
    """

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._thread = ThreadPoolExecutor(1, "digest")
        self._pending: deque[Future[None]] = deque()
        self._closed = False

    def close(self) -> None:
        """Its thread has ended when this returns; for `contextlib.closing`."""
        self._closed = True
        self._thread.shutdown(cancel_futures=True)

    def update(self, content: bytes | memoryview) -> Future[None]:
        """Done once it is counted."""
        if len(self._pending) == PENDING_MAX:
            self._pending.popleft().result()
        counted = self._thread.submit(self._digest.update, content)
        self._pending.append(counted)
        return counted

    def hexdigest(self) -> str:
        """Of all until now."""
        if self._closed:
            raise ValueError("this digest is closed")
        while self._pending:
            self._pending.popleft().result()
        return self._digest.hexdigest()
