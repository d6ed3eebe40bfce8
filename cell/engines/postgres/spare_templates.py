"""Copies of a template made ahead: an order takes one and waits for none to be made."""

import asyncio
import contextlib
from pathlib import Path

import structlog

from cell.engines.driver import EngineError
from cell.engines.postgres import archive
from cell.engines.postgres.installation import Installation, alone
from cell.runtime import disks, engine_files
from cell.runtime.engine_files import EnginePath

log = structlog.get_logger("cell.postgres")


class Spares:
    def __init__(self) -> None:
        self._refilling: dict[Path, asyncio.Task[None]] = {}

    def take(self, installation: Installation, data: EnginePath, owner: int | None) -> bool:
        """Fills the empty folder `data`; False where there is no copy, or no longer."""
        for spare in installation.spares:
            with contextlib.suppress(FileNotFoundError):
                engine_files.rename(spare, data)
                if owner is not None:
                    engine_files.give(data, owner)
                disks.synchronise(data)
                return True
        return False

    def refill(self, installation: Installation) -> None:
        """Begins to, where that was not begun before; an order does not wait for it."""
        running = self._refilling.get(installation.template)
        if running is None or running.done():
            work = asyncio.to_thread(_refill, installation)
            self._refilling[installation.template] = asyncio.create_task(work)


def _refill(installation: Installation) -> None:
    try:
        for spare in installation.spares:
            if not spare.exists():
                with alone(installation.template.parent):
                    _make(installation, spare)
    except (OSError, EngineError) as error:
        # Orders make their own copies then, and say what is wrong.
        log.warning("cell.postgres.no_spare", reason=str(error))


def _make(installation: Installation, spare: Path) -> None:
    making = spare.with_name("making-spare")
    making.mkdir(mode=0o700)
    archive.unpack(installation.template, EnginePath(making), None)
    if spare.exists():
        engine_files.remove(making)
    else:
        making.rename(spare)
