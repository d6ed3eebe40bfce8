"""The places of one connection among those that are counted over all workers, and its handshake's.

An instance's limit counts whom its engine has let in. Whoever has yet to log in has a place among
those, with a share of it for each address, and so takes none from anybody who has. Where all of
those places are taken newcomers wait, and chance decides; but first of all come the addresses that
have logged in before.
"""

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from gateway.addresses import customer, levels
from gateway.pool_members import LOGIN, Levels, Member
from gateway.protocols.interface import Step
from gateway.refusal import Refusal
from gateway.routes import Route

if TYPE_CHECKING:
    from gateway.connection import Connection
    from gateway.shared import Shared

GOODBYE_WITHIN_S: Final = 0.2
NOT_WAITING: Final = asyncio.Event()
RESERVED_PART: Final = 5
"""One in so many of an instance's connections is kept for the cell's own logins."""


class ConnectionMember(Member, Protocol):
    def notice_breaks(self) -> None:
        """Give back its places where either side has ended."""


class Reservations:
    def __init__(self, shared: "Shared", member: ConnectionMember) -> None:
        self._shared = shared
        self._member = member
        self._joined: list[tuple[str, Levels]] = []
        self._from: tuple[Route, str] | None = None
        self.held: list[str] = []
        self.logs_in = self.waits = False
        self.placed = NOT_WAITING

    def enter_cell(self, route: Route, address: str) -> None:
        settings = self._shared.settings
        own = settings.cell_address_connections_max
        if not self._take(_share(route.counted_as, address), own):
            raise _too_many(f"the cell allows {own} from one address")
        if not self._join(route.counted_as, address, settings.cell_connections_max):
            self.leave()
            raise _too_many(f"the cell allows {settings.cell_connections_max}")

    def begin_login(self, route: Route, address: str) -> bool:
        """False where there is no place now; raises Refusal where a login would lead nowhere."""
        limit, waiting = route.connections_max, _waiting(route)
        if limit is not None and self._shared.slots.total(route.counted_as) >= limit:
            raise _too_many(f"this size allows {limit}")
        if self.waits:
            self._shared.pools.draw(waiting)
            return not self.waits
        # Whoever has just come does not go before those who wait.
        return self._shared.pools.is_empty(waiting) and self._log_in(route, address)

    def wait(self, route: Route, address: str) -> None:
        """Held until the instance is awake and has a place for a login."""
        limit, waiting = route.connections_max, _waiting(route)
        if not self._take(_share(waiting, address), limit):
            raise _too_many(f"this size allows {limit}")
        every = max(limit or 0, self._shared.settings.logins_waiting_max)
        if not self._join(waiting, address, every, known=self._is_known(route, address)):
            self.leave()
            raise _too_many("too many are waiting to log in")
        self.waits, self._from = True, (route, address)
        self.placed = asyncio.Event()

    def take_turn(self) -> bool:
        if not (self.waits and self._from is not None and self._log_in(*self._from)):
            return False
        self.placed.set()
        return True

    def _log_in(self, route: Route, address: str) -> bool:
        own, every = self._logins_max(route)
        waited, joined = self.held.copy(), self._joined.copy()
        if not self._take(_share(route.counted_as, address), own):
            return False
        known = self._is_known(route, address)
        if not self._join(f"{LOGIN}{route.counted_as}", address, every, known=known):
            self._give_back(self.held[-1])
            return False
        self.logs_in, self.waits, self._from = True, False, (route, address)
        self._part(waited, joined)
        return True

    def end_login(self, route: Route, step: Step) -> None:
        """The client is let in. Where what it asked is done it is too late to refuse it.

        Roles that the owner made leave some places free, so that nobody who knows a password of
        one can keep out the owner, who would end it.
        """
        limit = None if step.done else route.connections_max
        waited, joined = self.held.copy(), self._joined.copy()
        if not self._take(route.counted_as, limit):
            raise _too_many(f"this size allows {limit}")
        if step.of_owners_role and limit is not None:
            most = limit - limit // RESERVED_PART
            if not self._take(f"roles:{route.counted_as}", most):
                raise _too_many(f"roles that you created have {most} of the {limit} of this size")
        self.logs_in = self.waits = False
        self._part(waited, joined)
        # After its answer to a goodbye an engine hangs up at once.
        if step.unsure:
            self._shared.loop.call_later(GOODBYE_WITHIN_S, self._note_known_unless_over)
        else:
            self._shared.loop.call_later(0, self.note_known)
        if route.instance_id is not None:
            self._shared.activity.let_in(route.instance_id)

    def _note_known_unless_over(self) -> None:
        # Behind a client that reads nothing the engine's end is not read by itself.
        self._member.notice_breaks()
        self.note_known()

    def note_known(self) -> None:
        """The address of whoever is let in still; it goes before strangers for a day."""
        if self._from is not None and self.held:
            route, address = self._from
            self._shared.slots.known.add(route.counted_as, customer(address))

    def leave(self) -> None:
        self.logs_in = self.waits = False
        self._part(self.held.copy(), self._joined.copy())

    def _part(self, held: list[str], joined: list[tuple[str, Levels]]) -> None:
        for each in joined:
            self._joined.remove(each)
            self._shared.pools.leave(*each, self._member)
        for key in held:
            self._give_back(key)

    def _is_known(self, route: Route, address: str) -> bool:
        return self._shared.slots.known.has(route.counted_as, customer(address))

    def _logins_max(self, route: Route) -> tuple[int, int]:
        """From one address, and all told.

        By HTTPS the first answer lets in, and may take as long as a statement: a client with as
        many connections as its size allows may have all of them wait for one.
        """
        own, every = self._shared.settings.address_logins_max, self._shared.settings.logins_max
        if route.protocol.endswith("https"):
            own = max(own, route.connections_max or 0)
            every = max(every, own + own // 2)
        return own, every

    def _join(self, pool: str, address: str, limit: int, *, known: bool = False) -> bool:
        """Take a place in a pool that others have to leave to who has fewer in it, or is known."""
        from_whom = levels(address)
        if not self._take(pool, limit):
            known_max = limit // 2 if known else 0
            has_room = self._shared.pools.make_room(pool, from_whom, known_max)
            if not has_room or not self._take(pool, limit):
                return False
        self._joined.append((pool, from_whom))
        self._shared.pools.join(pool, from_whom, self._member, known=known)
        return True

    def _give_back(self, key: str) -> None:
        self.held.remove(key)
        self._shared.slots.leave(key)

    def _take(self, key: str, limit: int | None) -> bool:
        if not self._shared.slots.enter(key, limit):
            return False
        self.held.append(key)
        return True


class Handshake:
    """The place of a connection among those that have asked for nothing yet, here in the worker."""

    def __init__(self, shared: "Shared", connection: "Connection") -> None:
        self._shared = shared
        self._connection = connection
        self._levels: Levels | None = None
        shared.unproven[connection] = None

    def is_from(self, address: str) -> None:
        """The oldest of one address makes room for its newest."""
        if self._levels is not None or self._connection not in self._shared.unproven:
            return
        self._levels = levels(address)
        count = self._shared.handshakes.join(self._levels, self._connection)
        if count > self._shared.settings.address_handshakes_max:
            self._shared.refused["made_room"] += 1
            self._shared.handshakes.oldest(self._levels).close()

    def end(self) -> None:
        self._shared.unproven.pop(self._connection, None)
        if self._levels is not None:
            self._shared.handshakes.leave(self._levels, self._connection)
            # It may be told so more than once.
            self._levels = None


def _waiting(route: Route) -> str:
    return f"waiting:{route.counted_as}"


def _share(pool: str, address: str) -> str:
    return f"share:{pool} {customer(address)}"


def _too_many(text: str) -> Refusal:
    return Refusal("too_many_connections", f"too many connections: {text}", 1)
