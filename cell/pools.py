"""What all instances of the cell share, and how much of it one tenant has at most."""

import contextlib
from collections.abc import AsyncIterator, Callable

from cell.followers import Followers
from specserver.turns import Turns

FOLLOWED_LOGS = 20
_PATIENT = 10_000


class Pools:
    """Each is dealt out as `Turns` deals: a tenant that has little of it goes before one with much.

    An engine that starts, or a snapshot that is made, waits for its turn; a statement of the
    console is refused, as a person is waiting; of the logs that a tenant follows the oldest ends.
    """

    def __init__(self) -> None:
        self.starts = Turns(16, 4, waiting_of_one=_PATIENT, waiting=_PATIENT)
        self.snapshots = Turns(4, 2, waiting_of_one=_PATIENT, waiting=_PATIENT)
        self.runs = Turns(24, 6)
        self.followed_logs = Followers(400, FOLLOWED_LOGS)


class Held(AsyncIterator[bytes]):
    """Chunks that hold a place until they end or nobody listens; begun or not, as no generator."""

    def __init__(self, chunks: AsyncIterator[bytes], leave: Callable[[], None]) -> None:
        self._chunks = chunks
        self._ends = contextlib.ExitStack()
        self._ends.callback(leave)

    async def __anext__(self) -> bytes:
        return await anext(self._chunks)

    async def aclose(self) -> None:
        self._ends.close()
