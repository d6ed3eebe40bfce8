"""Bodies of requests to the console's pages: how much of them is held at a time, and for whom."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from pages.console import STATEMENT_BYTES_MAX
from specserver.json_sizes import why_too_much

# A statement in JSON, where each of its bytes may take six, as in \u0000.
BYTES_MAX = 6 * STATEMENT_BYTES_MAX + 1_000
# Of whoever has no session; and what is held beyond that, of one address and of all.
STRANGER_BYTES_MAX = 16 * 1024
ADDRESS_BYTES_MAX = 8 * 2**20
EVERY_BYTES_MAX = 48 * 2**20

Receive = Callable[[], Awaitable[Any]]


class RefusedBody(Exception):  # noqa: N818 - an answer, and nobody's fault
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Bodies:
    """The process runs the engines as well: what anybody may send must not take its memory."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()

    async def read(
        self, receive: Receive, address: str, has_session: Callable[[], Awaitable[bool]]
    ) -> "BufferedBody":
        """Raises RefusedBody; what it gives has to be let go of."""
        body = BufferedBody(self._held, address)
        try:
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise RefusedBody(400, "the request ended")  # noqa: TRY301 - let go of below
                await body.add(message.get("body", b""), has_session)
                if not message.get("more_body"):
                    body.check()
                    return body
        except BaseException:
            body.release()
            raise


class BufferedBody:
    def __init__(self, held: Counter[str], address: str) -> None:
        self._held = held
        self._address = address
        self._counted = 0
        self.content = bytearray()

    async def add(self, chunk: bytes, has_session: Callable[[], Awaitable[bool]]) -> None:
        size = len(self.content) + len(chunk)
        if size > BYTES_MAX:
            raise RefusedBody(413, "the request is too large")
        if size > STRANGER_BYTES_MAX:
            if not self._counted and not await has_session():
                raise RefusedBody(413, "the request is too large without a session")
            self._count(size - self._counted)
        self.content += chunk

    def check(self) -> None:
        """Before anybody parses it, for which everything else in the cell would wait."""
        if why_too_much(self.content):
            raise RefusedBody(413, "the request has too many values")

    def release(self) -> None:
        self._held[self._address] -= self._counted
        if self._held[self._address] <= 0:
            del self._held[self._address]
        self._counted = 0

    def _count(self, size: int) -> None:
        own, every = self._held[self._address] + size, self._held.total() + size
        if own > ADDRESS_BYTES_MAX or every > EVERY_BYTES_MAX:
            raise RefusedBody(503, "too many large requests at a time; try again in a moment")
        self._held[self._address] += size
        self._counted += size
