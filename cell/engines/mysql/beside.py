"""What a server is told beside the measuring of all: it may take long to answer."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import structlog

from cell.engines.mysql import administrator, client
from cell.layout import Site
from cell.runtime.host import Host

log = structlog.get_logger("cell.mysql")

ANSWER_TIMEOUT_S = 10.0


class Beside:
    """One thing at a time for each server; whoever finds it busy comes again."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="mysql-beside")
        self._telling: dict[Path, Future[None]] = {}

    def tell(self, site: Site, told: Callable[[Any], None]) -> None:
        """`told` gets a cursor of the administrator's; what fails is tried at a later look."""
        telling = self._telling.get(site.directory)
        if telling is None or telling.done():
            busy = {path: each for path, each in self._telling.items() if not each.done()}
            self._telling = {**busy, site.directory: self._threads.submit(self._tell, site, told)}

    def _tell(self, site: Site, told: Callable[[Any], None]) -> None:
        ours = administrator.login(self._host, site)
        opened = client.session(site.socket, ours.username, ours.password, ANSWER_TIMEOUT_S)
        try:
            with opened as cursor:
                told(cursor)
        except (client.NotThereError, client.RefusedError) as error:
            log.warning("cell.not_told", instance_id=site.instance_id, reason=str(error))
