"""What happens at the storage limit: data can be read and removed, and nothing be added."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import structlog

from cell.engines.mysql import accounts, administrator, client
from cell.layout import Site, write_atomically
from cell.records import Size
from cell.runtime.host import Host

log = structlog.get_logger("cell.mysql")

LIMIT = "storage"
# It is there while writes are refused.
FULL = "full"
# So that it does not go back and forth at the limit.
LIFTED_BELOW = 0.95
ANSWER_TIMEOUT_S = 10.0


def limit(site: Site, size: Size) -> None:
    write_atomically(site.configuration / LIMIT, str(size.storage_bytes).encode())


def starts(site: Site, size: Size) -> None:
    """A start gives all rights anew."""
    limit(site, size)
    (site.configuration / FULL).unlink(missing_ok=True)


class Holder:
    """Sets and lifts it, beside the measuring of all: a server may take long to be told."""

    def __init__(self, host: Host, rights: Callable[[bool], list[str]]) -> None:
        self._host = host
        self._rights = rights
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="mysql-storage")
        self._telling: dict[Path, Future[None]] = {}

    def look(self, site: Site, used_bytes: int) -> None:
        """Called with each measure of a server that runs."""
        try:
            limit_bytes = int((site.configuration / LIMIT).read_bytes())
        except FileNotFoundError:
            # Started by a release that knew no such limit.
            return
        held = (site.configuration / FULL).exists()
        if held == (used_bytes > limit_bytes * (LIFTED_BELOW if held else 1)):
            return
        telling = self._telling.get(site.directory)
        if telling is None or telling.done():
            self._telling[site.directory] = self._threads.submit(self._tell, site, full=not held)

    def _tell(self, site: Site, *, full: bool) -> None:
        ours = administrator.login(self._host, site)
        opened = client.session(site.socket, ours.username, ours.password, ANSWER_TIMEOUT_S)
        try:
            with opened as cursor:
                for statement in (*self._rights(not full), "FLUSH PRIVILEGES"):
                    cursor.execute(statement)
                # A session keeps the rights that it has found on its database.
                client.kill_all(cursor, accounts.TENANT)
        except (client.NotThereError, client.RefusedError) as error:
            # Tried again when it is measured next.
            log.warning("cell.not_told", instance_id=site.instance_id, reason=str(error))
            return
        if full:
            (site.configuration / FULL).touch(mode=0o600)
        else:
            (site.configuration / FULL).unlink(missing_ok=True)
        event = "cell.storage_full" if full else "cell.storage_freed"
        log.warning(event, instance_id=site.instance_id)
