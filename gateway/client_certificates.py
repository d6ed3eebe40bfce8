"""Verifies clients' certificates in threads: a chain can be made to cost half a second of a CPU.

An instance that asks for certificates has one thread at a time, and threads give way to all else:
whoever shows such chains holds up nobody else.
"""

import asyncio
import contextlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from gateway.tls_session import TlsError, TlsSession

THREADS: Final = 2
ASKING_MAX: Final = 100
"""Handshakes of one instance at a time, of those that wait for its thread."""
NICE: Final = 10


@dataclass
class _Turn:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    asking: int = 0


class ClientCertificates:
    """Of one worker, on its event loop."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(THREADS)
        self._turns: dict[str, _Turn] = {}
        self._threads = ThreadPoolExecutor(THREADS, "client certificates", _lower_priority)

    async def handshake(self, instance: str, session: TlsSession) -> bool:
        """As the session's, which nobody else may use meanwhile. Raises TlsError."""
        turn = self._turns.setdefault(instance, _Turn())
        if turn.asking >= ASKING_MAX:
            raise TlsError("too many handshakes at once")
        turn.asking += 1
        try:
            async with turn.lock, self._places:
                return await self._step(session)
        finally:
            turn.asking -= 1
            if not turn.asking:
                self._turns.pop(instance, None)

    async def _step(self, session: TlsSession) -> bool:
        step = asyncio.get_running_loop().run_in_executor(self._threads, session.handshake)
        try:
            return await asyncio.shield(step)
        except asyncio.CancelledError:
            # The place is free when the thread is, even if the client does not wait for it.
            await asyncio.wait([step])
            raise


def _lower_priority() -> None:
    # Only root may raise what the gateway itself was given.
    nice = max(NICE, os.getpriority(os.PRIO_PROCESS, 0))
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)
