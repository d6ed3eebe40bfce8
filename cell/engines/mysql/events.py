"""When the owner's events run: not in the first minute of a start, nor after a credential's end.

An event may end every other session of its owner, and be left by who held the credential before.
In that minute the owner can log in, look at the events and drop them. Events also take threads,
which no limit on connections counts: too many at once are ended, and none runs for a minute.
"""

import time
from threading import Lock
from typing import Any

import structlog

from cell.engines.mysql import accounts, client
from cell.engines.mysql.background_calls import BackgroundCalls
from cell.layout import Site, write_atomically
from cell.runtime.process import Process

log = structlog.get_logger("cell.mysql")

BEGIN = "SET GLOBAL event_scheduler = ON"
END = "SET GLOBAL event_scheduler = OFF"
HELD_FOR_S = 60.0
# It is there while they do not run, and says until when.
HELD = "events"
AT_ONCE_MAX = 64
END_WITHIN_S = 5.0
LOOK_AGAIN_S = 0.05
# A client's session is from `localhost`, an event from where its definer may be.
RUNNING = f"{client.SESSIONS} AND HOST = '%%'"
TOO_MANY = (
    f"more than {AT_ONCE_MAX} events ran at once: all of them were stopped, and none runs for a "
    "minute; drop or change those that take longer than their interval"
)


class Scheduler:
    def __init__(self, background: BackgroundCalls) -> None:
        self._background = background
        self._holding = Lock()
        self.held_for_s = HELD_FOR_S

    def hold(self, site: Site, why: str = "") -> None:
        """Before the server is told to, so that they begin again whatever comes between."""
        until = time.time() + self.held_for_s
        with self._holding:
            write_atomically(site.configuration / HELD, f"{until!r} {why}".encode())

    def look(self, site: Site, process: Process) -> str | None:
        """Called once a second while the server runs; answers what its owner should know."""
        try:
            held = (site.configuration / HELD).read_bytes()
        except FileNotFoundError:
            self._background.connect(site)
            if process.threads > AT_ONCE_MAX:
                self._background.tell(site, lambda cursor: self._bound(site, cursor))
            return None
        until, _, why = held.decode().partition(" ")
        # Never for longer, wherever the clock is set.
        if not 0 < float(until) - time.time() <= self.held_for_s:
            self._background.tell(site, lambda cursor: self._begin(site, cursor, held))
        return why or None

    def _bound(self, site: Site, cursor: Any) -> None:
        """What runs already goes on where the scheduler is merely stopped."""
        if (running := cursor.execute(RUNNING, [accounts.TENANT])) <= AT_ONCE_MAX:
            return
        self.hold(site, TOO_MANY)
        cursor.execute(END)
        log.warning("cell.events_stopped", instance_id=site.instance_id, running=running)
        deadline = time.monotonic() + END_WITHIN_S
        while client.kill_found(cursor, RUNNING, [accounts.TENANT]) and time.monotonic() < deadline:
            time.sleep(LOOK_AGAIN_S)

    def _begin(self, site: Site, cursor: Any, until: bytes) -> None:
        cursor.execute(BEGIN)
        held = site.configuration / HELD
        with self._holding:
            if same := held.read_bytes() == until:
                held.unlink()
        if not same:
            # Held anew meanwhile.
            cursor.execute(END)
