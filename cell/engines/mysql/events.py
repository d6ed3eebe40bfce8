"""When the owner's events run: not in the first minute of a start, nor after a credential's end.

An event may end every other session of its owner, and be left by who held the credential before.
In that minute the owner can log in, look at the events and drop them.
"""

import time
from threading import Lock
from typing import Any

from cell.engines.mysql.beside import Beside
from cell.layout import Site, write_atomically

BEGIN = "SET GLOBAL event_scheduler = ON"
END = "SET GLOBAL event_scheduler = OFF"
HELD_FOR_S = 60.0
# It is there while they do not run, and says until when.
HELD = "events"


class Scheduler:
    def __init__(self, beside: Beside) -> None:
        self._beside = beside
        self._holding = Lock()
        self.held_for_s = HELD_FOR_S

    def hold(self, site: Site) -> None:
        """Before the server is told to, so that they begin again whatever comes between."""
        until = time.time() + self.held_for_s
        with self._holding:
            write_atomically(site.configuration / HELD, repr(until).encode())

    def look(self, site: Site) -> None:
        """Called once a second while the server runs."""
        try:
            until = (site.configuration / HELD).read_bytes()
        except FileNotFoundError:
            return
        # Never for longer, wherever the clock is set.
        if not 0 < float(until) - time.time() <= self.held_for_s:
            self._beside.tell(site, lambda cursor: self._begin(site, cursor, until))

    def _begin(self, site: Site, cursor: Any, until: bytes) -> None:
        cursor.execute(BEGIN)
        held = site.configuration / HELD
        with self._holding:
            if same := held.read_bytes() == until:
                held.unlink()
        if not same:
            # Held anew meanwhile.
            cursor.execute(END)
