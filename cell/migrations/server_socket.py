"""A conduit in the folder that an engine runs in, for a server that connects to a source itself.

The folder is the engine's: what is made there is made in a folder that is held open, by name, and
follows no link.
"""

import asyncio
import contextlib
import os

from cell.layout import Site
from cell.migrations.conduit import CHUNK_BYTES, SOCKET, Conduit
from cell.runtime import engine_files
from cell.runtime.engine_files import EnginePath
from cell.runtime.host import Host

FOLDER = "source"
PASSWORDS = "passwords"


class ServerSocket:
    """Made anew with each start of the engine, which empties its folder."""

    def __init__(self, host: Host, site: Site, conduit: Conduit) -> None:
        self._host = host
        self._site = site
        self._conduit = conduit
        self._server: asyncio.Server | None = None
        self._made: tuple[int, int] | None = None

    @property
    def folder(self) -> str:
        """As the server finds it."""
        return str(self._host.view(self._site).run / FOLDER)

    @property
    def _place(self) -> EnginePath:
        return self._site.run / FOLDER

    async def ensure(self) -> None:
        found = engine_files.find(self._place / SOCKET)
        if found is not None and (found.st_dev, found.st_ino) == self._made:
            return
        await self.end()
        # The cell's own until all is there, and never the engine's to change.
        await asyncio.to_thread(engine_files.make_folder, self._place)
        owner = self._host.owner(self._site)
        with engine_files.held(self._place) as folder:
            # Nobody else can put a link there.
            self._server = await asyncio.start_unix_server(
                self._conduit.serve, f"/proc/self/fd/{folder}/{SOCKET}", limit=CHUNK_BYTES
            )
            os.chmod(SOCKET, 0o600, dir_fd=folder)
            self._write_passwords(folder, owner)
            if owner is not None:
                os.chown(SOCKET, owner, owner, dir_fd=folder, follow_symlinks=False)
                os.fchown(folder, 0, owner)
                os.fchmod(folder, 0o750)
            made = os.stat(SOCKET, dir_fd=folder, follow_symlinks=False)
        self._made = (made.st_dev, made.st_ino)

    async def end(self) -> None:
        if self._server is not None:
            self._server.close()
            self._conduit.end()
            self._server, self._made = None, None
        with contextlib.suppress(OSError):
            await asyncio.to_thread(engine_files.remove, self._place)

    def _write_passwords(self, folder: int, owner: int | None) -> None:
        """For libpq, in its own format; a line of text."""
        password = self._conduit.source.password
        escaped = password.replace("\\", "\\\\").replace(":", "\\:")
        descriptor = engine_files.create(PASSWORDS, folder, owner)
        with os.fdopen(descriptor, "wb") as file:
            file.write(f"*:*:*:*:{escaped}\n".encode())
