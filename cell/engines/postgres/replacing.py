"""Data that takes the place of an instance's data once it is whole."""

import contextlib
from collections.abc import AsyncIterator

from cell.engines.postgres import data_folder
from cell.layout import Site
from cell.runtime import disks
from cell.runtime.own_threads import in_own_thread


@contextlib.asynccontextmanager
async def replacing(site: Site) -> AsyncIterator[Site]:
    """The data of the site that it gives takes the place of the former, or leaves it as it was."""
    next_site = data_folder.staged(site)
    try:
        yield next_site
    except BaseException:
        await in_own_thread(data_folder.clear, site)
        raise
    await in_own_thread(disks.synchronise, next_site.data)
    await in_own_thread(data_folder.replace, site)
