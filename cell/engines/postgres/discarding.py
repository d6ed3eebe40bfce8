"""Data that is not used any more, removed while nobody waits for that."""

import asyncio
from pathlib import Path

from cell.engines.postgres import data_folder
from cell.layout import Site


class Discarding:
    def __init__(self) -> None:
        self._removing: dict[Path, asyncio.Task[None]] = {}

    def begin(self, site: Site) -> None:
        """Of one site once at a time."""
        unused = data_folder.discarded(site)
        if unused and site.directory not in self._removing:
            work = asyncio.to_thread(data_folder.remove, unused)
            task = self._removing[site.directory] = asyncio.create_task(work)
            task.add_done_callback(lambda _: self._removing.pop(site.directory, None))

    async def until_done(self, site: Site) -> None:
        if (removing := self._removing.get(site.directory)) is not None:
            await removing
