"""What a server is told beside the measuring of all: it may take long to answer.

On a connection that stays open: a server that has no thread left takes no login, but goes on with
those that are in.
"""

import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pymysql
import structlog

from cell.engines.mysql import administrator, client
from cell.layout import Site
from cell.runtime.host import Host

log = structlog.get_logger("cell.mysql")

ANSWER_TIMEOUT_S = 10.0
# One that does not answer has a thread for that long.
SERVERS_AT_ONCE = 16
# As long as any server takes.
STAY = "SET SESSION wait_timeout = 31536000"


class BackgroundCalls:
    """One thing at a time for each server; whoever finds it busy comes again."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._threads = ThreadPoolExecutor(SERVERS_AT_ONCE, thread_name_prefix="mysql-beside")
        self._telling: dict[Path, Future[None]] = {}
        self._open: dict[Path, tuple[str, Any]] = {}

    def tell(self, site: Site, told: Callable[[Any], None]) -> None:
        """`told` gets a cursor of the administrator's; what fails is tried at a later look."""
        telling = self._telling.get(site.directory)
        if telling is None or telling.done():
            busy = {path: each for path, each in self._telling.items() if not each.done()}
            self._telling = {**busy, site.directory: self._threads.submit(self._tell, site, told)}

    def connect(self, site: Site) -> None:
        """So that it is there when it is needed."""
        if site.directory not in self._open:
            self.tell(site, lambda _: None)

    def disconnect(self, site: Site) -> None:
        _, connection = self._open.pop(site.directory, ("", None))
        if connection is not None:
            with contextlib.suppress(pymysql.err.Error):
                connection.close()

    def _tell(self, site: Site, told: Callable[[Any], None]) -> None:
        try:
            with client.talking(self._connection(site)) as cursor:
                told(cursor)
        except client.FAILURES as error:
            self.disconnect(site)
            log.warning("cell.not_told", instance_id=site.instance_id, reason=str(error))

    def _connection(self, site: Site) -> Any:
        ours = administrator.login(self._host, site)
        # Each start has an administrator's name of its own.
        name, connection = self._open.get(site.directory, ("", None))
        if name != ours.username:
            self.disconnect(site)
            connection = client.opened(site.socket, ours.username, ours.password, ANSWER_TIMEOUT_S)
            self._open[site.directory] = ours.username, connection
            with client.talking(connection) as cursor:
                cursor.execute(STAY)
        return connection
