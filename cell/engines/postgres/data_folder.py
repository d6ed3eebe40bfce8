"""Where an instance's data lies, and how other data takes its place whatever happens meanwhile."""

import contextlib
import secrets
from collections.abc import Iterable
from pathlib import Path

from cell.engines import leftover_files
from cell.engines.driver import EngineError
from cell.layout import Site, sync_folder
from cell.runtime import engine_files
from cell.runtime.engine_files import Place

VERSION = "PG_VERSION"
VERSION_BYTES_MAX = 16
LOCK = "postmaster.pid"
LOCK_BYTES_MAX = 4096
STATUS_LINE = 7
# What a server writes or reads there by itself (ALTER SYSTEM, pg_upgrade); ours are elsewhere.
BLANK = ("postgresql.auto.conf", "postgresql.conf", "pg_hba.conf", "pg_ident.conf")
# They would make a follower of it.
RECOVERY = "recovery.signal"
SIGNALS = ("standby.signal", RECOVERY)
# Exported snapshots and the like; what queries spilled; temporary tables, by session and file.
LEFT_OVER = (
    r"pg_(dynshmem|notify|serial|snapshots|stat_tmp|subtrans)/.+"
    r"|base/(pgsql_tmp/.+|\d+/t\d+_\d+(_[a-z]+)?(\.\d+)?)"
)


def staged(site: Site) -> Site:
    """The same instance with other folders, beside its own; nothing runs in them for long."""
    return Site(site.instance_id, site.uid, site.directory / "next", site.run)


def major(site: Site) -> str | None:
    """Which version the data is of; None where there is none."""
    said = read(site.data / VERSION, VERSION_BYTES_MAX).strip()
    return said if said.isdecimal() else None


def takes_logins(site: Site) -> bool:
    """What the server wrote last; one that was killed may have said so, and another may begin.

    Asked before a connection is made, so that the owner's log does not fill with our attempts.
    """
    return _status(site) == "ready"


def is_starting(site: Site) -> bool:
    """Which lasts while it recovers."""
    return _status(site) == "starting"


def _status(site: Site) -> str:
    lines = read(site.data / LOCK, LOCK_BYTES_MAX).splitlines()
    return lines[STATUS_LINE].strip() if len(lines) > STATUS_LINE else ""


def read(place: Place, most: int, *, end: bool = False) -> str:
    """The beginning, or the end, of a file that is the engine's; empty where it is none."""
    return engine_files.read(place, most, end=end).decode("ascii", errors="replace")


def blank(site: Site, owner: int | None) -> None:
    """Empties settings in the data, where none of ours are, whatever lies in their places."""
    for name in SIGNALS:
        engine_files.remove(site.data / name)
    for name in BLANK:
        engine_files.make_file(site.data / name, owner)


def prepare(site: Site) -> bool:
    """For a start: whether a cluster is there; EngineError where there is something else."""
    finish(site)
    if major(site) is not None:
        # Of a server that was killed; the next start would remove it.
        leftover_files.remove(site.data, LEFT_OVER)
        return True
    if engine_files.names(site.data):
        # A new cluster in its place would be the end of it.
        raise EngineError("the data directory is not a valid cluster")
    return False


def clear(site: Site) -> None:
    """Removes what an attempt left that did not come to its end."""
    engine_files.remove(staged(site).directory)


def replace(site: Site) -> None:
    """Puts the staged data in place. Once begun, it is also ended, if not by this process.

    What was there lies beside it until it is discarded, which takes time nobody should wait for.
    """
    engine_files.rename(staged(site).data, _ready(site))
    sync_folder(site.directory)
    finish(site)
    staged(site).directory.rename(_unused(site))


def discarded(site: Site) -> list[Path]:
    """What is not used any more."""
    return list(site.directory.glob("unused-*"))


def finish(site: Site) -> None:
    """Ends a replacement that was begun."""
    ready = _ready(site)
    if not ready.is_dir():
        return
    with contextlib.suppress(FileNotFoundError):
        engine_files.rename(site.data, _unused(site))
    engine_files.rename(ready, site.data)
    sync_folder(site.directory)


def _unused(site: Site) -> Path:
    return site.directory / f"unused-{secrets.token_hex(4)}"


def _ready(site: Site) -> Path:
    return site.directory / "data.ready"


def remove(folders: Iterable[Path]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):
            engine_files.remove(folder)
