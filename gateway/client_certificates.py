"""Verifies clients' certificates in threads: what a client shows can cost some CPU.

A tenant has one thread at a time, however many instances; tenants take turns, and so do networks
and addresses within a tenant. Threads give way to all else: nobody else is held up for long.
"""

import asyncio
import contextlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from gateway.addresses import levels
from gateway.pool_members import Levels, PoolMembers
from gateway.tls_session import TlsError, TlsSession

THREADS: Final = 2
WAITING_MAX: Final = 200
"""Handshakes of one tenant at a time that wait for its thread."""
NICE: Final = 10


class TooManyHandshakesError(TlsError):
    counted_as = "too_many_handshakes"


@dataclass
class _Tenant:
    waiting: PoolMembers = field(default_factory=PoolMembers)
    is_served: bool = False


@dataclass(eq=False)
class _Waiting:
    """A handshake among those of its tenant; it is a `pool_members.Member`."""

    tenant: _Tenant
    whose: Levels
    turn: asyncio.Future[None]
    evictable: bool = True
    waits: bool = True
    has_turn: bool = False

    def take_turn(self) -> bool:
        if self.turn.cancelled():
            return False
        self.leave()
        self.turn.set_result(None)
        self.has_turn = True
        return True

    def close(self) -> None:
        self.leave()
        if not self.turn.cancelled():
            self.turn.set_exception(_too_many())

    def leave(self) -> None:
        if self.waits:
            self.waits = False
            self.tenant.waiting.leave(self.whose, self)


class ClientCertificates:
    """Of one worker, on its event loop."""

    def __init__(self) -> None:
        self._free = THREADS
        # Only those who wait or are served; first whose turn is next.
        self._tenants: dict[str, _Tenant] = {}
        self._threads = ThreadPoolExecutor(THREADS, "client certificates", _lower_priority)

    async def handshake(self, tenant: str, address: str, session: TlsSession) -> bool:
        """As the session's, which nobody else may use meanwhile. Raises TlsError."""
        await self._turn(tenant, levels(address))
        try:
            return await self._step(session)
        finally:
            self._end_turn(tenant)

    async def _turn(self, tenant: str, whose: Levels) -> None:
        of = self._tenants.setdefault(tenant, _Tenant())
        if of.waiting.size >= WAITING_MAX:
            # The oldest of who has most makes room for who has less.
            displaced = of.waiting.first_to_go(whose)
            if displaced is None:
                raise _too_many()
            displaced.close()
        waiting = _Waiting(of, whose, asyncio.get_running_loop().create_future())
        of.waiting.join(whose, waiting)
        self._let_in()
        try:
            await waiting.turn
        except BaseException:
            waiting.leave()
            if waiting.has_turn:  # it came just before the client left
                self._end_turn(tenant)
            self._forget(tenant)
            raise

    def _let_in(self) -> None:
        for tenant in self._tenants.values():
            if not self._free:
                return
            if not tenant.is_served and any(each.take_turn() for each in tenant.waiting.in_turn()):
                tenant.is_served = True
                self._free -= 1

    def _end_turn(self, name: str) -> None:
        # All others that wait are before it now.
        tenant = self._tenants[name] = self._tenants.pop(name)
        tenant.is_served = False
        self._free += 1
        self._let_in()
        self._forget(name)

    def _forget(self, name: str) -> None:
        tenant = self._tenants.get(name)
        if tenant is not None and not tenant.is_served and not tenant.waiting:
            del self._tenants[name]

    async def _step(self, session: TlsSession) -> bool:
        step = asyncio.get_running_loop().run_in_executor(self._threads, session.handshake)
        try:
            return await asyncio.shield(step)
        except asyncio.CancelledError:
            # The thread is free when it is done, even if the client does not wait for it.
            await asyncio.wait([step])
            raise


def _too_many() -> TooManyHandshakesError:
    return TooManyHandshakesError("too many handshakes at once")


def _lower_priority() -> None:
    # Only root may raise what the gateway itself was given.
    nice = max(NICE, os.getpriority(os.PRIO_PROCESS, 0))
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)
