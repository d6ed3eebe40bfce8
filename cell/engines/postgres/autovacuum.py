"""When the server runs code of its owner by itself: not right after a start or a credential's end.

To count a table anew, autovacuum calls the functions in its indexes and statistics, and whoever
held the credential before may have left some. In that minute the owner can look for them and drop
them.
"""

import asyncio
import signal
import time
from threading import Lock

from cell.engines.postgres import data_folder, server
from cell.engines.postgres.configuration import AUTOVACUUM
from cell.engines.postgres.roles import Connection
from cell.layout import Site
from cell.runtime.host import Host
from cell.runtime.process import Process

HELD_FOR_S = 60.0
OFF_WITHIN_S = 2.0
LOOK_AGAIN_S = 0.02
BYTES_MAX = 100
# The launcher ends by itself once it has read the configuration.
END = """
SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity
WHERE backend_type = 'autovacuum worker'
UNION ALL SELECT false FROM pg_catalog.pg_stat_activity
WHERE backend_type = 'autovacuum launcher'
"""


class Autovacuum:
    def __init__(self, host: Host) -> None:
        self._host = host
        self._holding = Lock()
        self.held_for_s = HELD_FOR_S

    def hold(self, site: Site) -> bool:
        """From when the server reads its configuration the next time; whether it was held."""
        until = time.time() + self.held_for_s
        content = f"# {until!r}\nautovacuum = 'off'\n".encode()
        with self._holding:
            held = _said(site)
            server.write(self._host, site, AUTOVACUUM, content)
        return bool(held)

    async def end(self, site: Site, connection: Connection) -> None:
        """From now on, on a server that runs; what is running ends, whatever it catches."""
        if not self.hold(site) and (process := self._host.find(site)) is not None:
            process.signal(signal.SIGHUP)
        deadline = time.monotonic() + OFF_WITHIN_S
        while (await connection.execute(END)).rowcount:
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(LOOK_AGAIN_S)

    def look(self, site: Site, process: Process) -> None:
        """Called once a second while the server runs."""
        with self._holding:
            held = _said(site)
            # A signal ends one that has only begun.
            if not held or not data_folder.takes_logins(site):
                return
            # Never for longer, wherever the clock is set.
            if 0 < float(held.split(maxsplit=2)[1]) - time.time() <= self.held_for_s:
                return
            server.write(self._host, site, AUTOVACUUM, b"")
        process.signal(signal.SIGHUP)


def _said(site: Site) -> str:
    """Empty also for an instance that an earlier release started."""
    return data_folder.read(site.configuration / AUTOVACUUM, BYTES_MAX)
