"""An empty data folder for each release of a server: made once for a cell, copied for instances."""

import asyncio
import contextlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cell.engines.mysql import files
from cell.engines.mysql.dialects import Dialect
from cell.engines.mysql.options import DATABASES, TEMPORARY
from cell.engines.mysql.servers import ServerInstallation
from cell.layout import PASSABLE, Site, sync_folder
from cell.runtime import engine_files
from cell.runtime.engine_files import EnginePath
from cell.runtime.host import Host

INSTALL_TIMEOUT_S = 300.0
STATEMENTS = "template.sql"
MAKING = "making-"


class Templates:
    """Those of one dialect in one cell's home; no other cell works there."""

    def __init__(self, host: Host, dialect: Dialect) -> None:
        self._host = host
        self._dialect = dialect
        self._making = asyncio.Lock()

    async def copy(self, server: ServerInstallation, site: Site) -> None:
        """Gives the site a data folder of its own, whole or not at all."""
        template = await self.find(server, site)
        await asyncio.to_thread(put, self._host, site, template)

    async def find(self, server: ServerInstallation, site: Site) -> Path:
        """Where the template lies; made now where it is not there yet, as the site's user.

        Of several who want it at once one makes it, and the others wait.
        """
        place = self._host.home / "templates" / f"{self._dialect.engine}-{server.version}"
        async with self._making:
            if not place.exists():
                place.parent.mkdir(exist_ok=True)
                place.parent.chmod(PASSABLE)
                await _make(self._host, self._dialect, server, site, place)
        return place


def put(host: Host, site: Site, source: Path) -> None:
    """A copy of `source` becomes the site's data, in place of what is there."""
    new = site.data / f"{DATABASES}.new"
    files.copy(source, new)
    files.settle(new, host.owner(site))
    files.replace(new, site.data / DATABASES)


async def _make(
    host: Host, dialect: Dialect, server: ServerInstallation, site: Site, place: Path
) -> None:
    with _workshop(host, site, place.parent) as shop:
        shop.configuration.joinpath(STATEMENTS).write_text(
            "".join(f"{statement};\n" for statement in dialect.template)
        )
        shop.configuration.joinpath(STATEMENTS).chmod(0o644)
        temporary = shop.data / TEMPORARY
        await asyncio.to_thread(engine_files.make_folder, temporary, host.owner(shop))
        view = host.view(shop)
        words = dialect.install(
            server,
            str(view.data / DATABASES),
            str(view.data / TEMPORARY),
            str(view.configuration / STATEMENTS),
        )
        await host.run(shop, words, mounts=server.mounts, timeout_s=INSTALL_TIMEOUT_S)
        await asyncio.to_thread(_keep, shop.data / DATABASES, place)


def _keep(made: EnginePath, place: Path) -> None:
    """Copied, so that it is the cell's and nothing of it is the user's who made it."""
    part = place.with_name(f"{place.name}.part")
    files.copy(made, part)
    files.settle(part)
    part.rename(place)
    sync_folder(place.parent)


@contextmanager
def _workshop(host: Host, site: Site, folder: Path) -> Iterator[Site]:
    """A site for a moment, of the same user."""
    for left in folder.glob(f"{MAKING}*"):
        # By a cell that ended while it made one.
        with contextlib.suppress(OSError):
            engine_files.remove(left)
    directory = folder / f"{MAKING}{secrets.token_hex(4)}"
    shop = Site(site.instance_id, site.uid, directory, EnginePath(directory / "run"))
    shop.make(host.owner(site))
    try:
        yield shop
    finally:
        with contextlib.suppress(OSError):
            engine_files.remove(directory)
