"""What happens at the storage limit: data can be read and removed, and nothing be added."""

from collections.abc import Callable
from typing import Any

import structlog

from cell.engines.mysql import accounts, client
from cell.engines.mysql.background_calls import BackgroundCalls
from cell.layout import Site, write_atomically
from cell.specification import Size

log = structlog.get_logger("cell.mysql")

LIMIT = "storage"
# It is there while writes are refused.
FULL = "full"
ARIA_CHECKPOINT_S = 2
# Begins Aria's checkpoints anew, with one at once; without writes it would make none.
CHECKPOINT = f"SET GLOBAL aria_checkpoint_interval = {ARIA_CHECKPOINT_S}"
# So that it does not go back and forth at the limit.
LIFTED_BELOW = 0.95


def limit(site: Site, size: Size) -> None:
    write_atomically(site.configuration / LIMIT, str(size.storage_bytes).encode())


def starts(site: Site, size: Size) -> None:
    """A start gives all rights anew."""
    limit(site, size)
    (site.configuration / FULL).unlink(missing_ok=True)


class StorageLimit:
    """Sets and lifts it."""

    def __init__(self, background: BackgroundCalls, rights: Callable[[bool], list[str]]) -> None:
        self._background = background
        self._rights = rights

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
        self._background.tell(site, lambda cursor: self._set(site, cursor, full=not held))

    def _set(self, site: Site, cursor: Any, *, full: bool) -> None:
        for statement in (*self._rights(not full), "FLUSH PRIVILEGES"):
            cursor.execute(statement)
        # A session keeps the rights that it has found on its database.
        client.kill_all(cursor, accounts.TENANT)
        if full:
            cursor.execute(CHECKPOINT)
            (site.configuration / FULL).touch(mode=0o600)
        else:
            (site.configuration / FULL).unlink(missing_ok=True)
        event = "cell.storage_full" if full else "cell.storage_freed"
        log.warning(event, instance_id=site.instance_id)
