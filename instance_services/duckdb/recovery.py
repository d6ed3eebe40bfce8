"""Owns opening a database whose log the engine cannot replay as it opens it.

The steps, each only where the one before was in vain: the engine opens the database and replays its
log; another engine that has a default database already does, which most of what the first cannot
replay needs; the log is set aside, where it holds nothing that was acknowledged, or where whoever
runs the service allows that what it holds is lost.
"""

import contextlib
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import structlog

from instance_services.duckdb import catalog
from instance_services.duckdb.allowance import log_of, size
from instance_services.duckdb.database import EngineLimits, configuration, open_database
from instance_services.duckdb.durable import Unacknowledged, sync_folder
from instance_services.duckdb.errors import told

log = structlog.get_logger()

# Made by whoever runs the service, to open a database without the log that cannot be read.
ALLOWED = "open-without-log"
# For the cell, which tells the owner: why the database was not opened, and what is to be known of
# one that was.
TROUBLE = "trouble"
NOTICE = "notice"

# There while a log is replayed, and so after a process that ended in it.
OPENING = "opening"

_OF_THE_LOG = "replaying WAL"
_DAMAGED = "Corrupt WAL"
# What the log itself is to blame for. The rest (a disk, a lock, memory, which is told as a failed
# transaction too) may be otherwise the next time.
_ITS_FAULT = (
    *(duckdb.DataError, duckdb.InternalException, duckdb.NotSupportedError),
    *(duckdb.ProgrammingError, duckdb.SerializationException),
)

_UNDONE = (
    "a change of the schema that was running when the engine ended at {moment} was undone; it had"
    " not been acknowledged, and nothing else is missing"
)
_LOST = (
    "the database is as it was at {kept}: the log written since then could not be read, and was set"
    " aside at {moment}; restore a backup, or write again what is missing"
)
_UNREADABLE = (
    "the log of what was written since {kept} cannot be replayed; nothing is deleted, and the"
    " database is not opened without it. Restore a backup, or ask whoever runs this service to open"
    " it as of {kept} ({why})"
)
_ENDED_IN_IT = (
    "the process ended while it replayed the log of what was written since {kept}; nothing is"
    " deleted. If that happens again, restore a backup, or ask whoever runs this service to open"
    " the database as of {kept}"
)


class Unreadable(Exception):  # noqa: N818 - a state of the files
    """The database could be opened only by giving up what was acknowledged."""


def open_recovered(path: Path, temp_directory: Path, limits: EngineLimits) -> Any:
    """A connection as `open_database` gives it; Unreadable, or duckdb.Error where it cannot."""
    trouble = path.with_name(TROUBLE)
    try:
        with _told_if_it_ends(path):
            connection = _opened(path, temp_directory, limits)
    except (duckdb.Error, Unreadable) as error:
        reason = told(error, path.parent, rendered=False)
        log.error("the database cannot be opened", reason=reason)  # noqa: TRY400 - one line
        trouble.write_text(reason, encoding="utf-8")
        raise
    trouble.unlink(missing_ok=True)
    return connection


@contextlib.contextmanager
def _told_if_it_ends(path: Path) -> Iterator[None]:
    """What is to be known where the process does not come to say it."""
    opening = path.with_name(OPENING)
    if size(log_of(path)):
        if opening.is_file():
            _gave_up(path)
        opening.write_text(_ENDED_IN_IT.format(kept=_moment(path.stat().st_mtime)), "utf-8")
    try:
        yield
    finally:
        opening.unlink(missing_ok=True)


def _opened(path: Path, temp_directory: Path, limits: EngineLimits) -> Any:
    try:
        connection = open_database(path, temp_directory, limits)
    except duckdb.Error as error:
        if not _is_of_the_log(error):
            raise
        log.warning("the log cannot be replayed as the database opens", why=_why(error))
        _recover(path, temp_directory, limits)
        connection = open_database(path, temp_directory, limits)
    _settle(connection, path)
    return connection


def _settle(connection: Any, path: Path) -> None:
    """What the log held is told with the next answer: it belongs in the file now."""
    unacknowledged = Unacknowledged(path)
    if unacknowledged.is_set:
        # Where there is no room for it, the log stays: it has just been shown to be readable.
        with contextlib.suppress(duckdb.Error):
            connection.execute(f"CHECKPOINT {catalog.quoted(catalog.database(connection))}")
        unacknowledged.clear()


def _recover(path: Path, temp_directory: Path, limits: EngineLimits) -> None:
    why = _replay_beside(path, temp_directory, limits)
    if why is None:
        log.info("the log was replayed into the database file")
        return
    if not _gave_up(path):
        raise Unreadable(_UNREADABLE.format(kept=_moment(path.stat().st_mtime), why=why))


def _replay_beside(path: Path, temp_directory: Path, limits: EngineLimits) -> str | None:
    """Why the log cannot be replayed this way either; None where it is in the file now."""
    connection = duckdb.connect(":memory:", config=configuration(temp_directory, limits))
    name = catalog.quoted(path.stem)
    file = str(path).replace("'", "''")
    try:
        connection.execute(f"ATTACH '{file}' AS {name}")
        connection.execute(f"CHECKPOINT {name}")
        connection.execute(f"DETACH {name}")
    except duckdb.Error as error:
        if not _is_of_the_log(error):
            raise
        return _why(error)
    finally:
        connection.close()
    return None


def _gave_up(path: Path) -> bool:
    """Whether the log may be, and was, set aside."""
    allowed = path.with_name(ALLOWED)
    if Unacknowledged(path).is_set:
        _set_aside(path, _UNDONE.format(moment=_moment(log_of(path).stat().st_mtime)))
    elif allowed.is_file():
        kept, moment = _moment(path.stat().st_mtime), _moment(datetime.now(UTC).timestamp())
        _set_aside(path, _LOST.format(kept=kept, moment=moment))
        # Once, and not for whatever comes.
        allowed.unlink()
    else:
        return False
    return True


def _set_aside(path: Path, notice: str) -> None:
    """Renames the log; nothing of it is deleted."""
    written = log_of(path)
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    aside = written.with_name(f"{written.name}.{stamp}")
    log.error("the log is set aside", kept_as=aside.name, size_bytes=size(written), notice=notice)
    path.with_name(NOTICE).write_text(notice, encoding="utf-8")
    written.rename(aside)
    sync_folder(path.parent)


def _is_of_the_log(error: duckdb.Error) -> bool:
    text = str(error)
    return _OF_THE_LOG in text and (isinstance(error, _ITS_FAULT) or _DAMAGED in text)


def _why(error: duckdb.Error) -> str:
    """The first line, without paths."""
    first = str(error).partition("\n")[0]
    return re.sub(r'Failure while replaying WAL file "[^"]*": ', "", first)


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
