"""How a worker hears of work that other processes enqueued: NOTIFY, or SQLite's data_version.

While it listens it is seen to live.
"""

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Final, Protocol

import structlog

from control.work.notifier import process
from control.work.presence import Presence
from control.work.queue import CHANNEL
from storage.database import Database

LOOK_EVERY_S: Final = 0.05
CONNECT_AGAIN_S: Final = 0.25
"""Less than others wait before they take a worker that is not seen for gone."""
# A connection that a firewall dropped is noticed at both ends, in some 30 s.
KEEPALIVE: Final = {"keepalives_idle": "15", "keepalives_interval": "5", "keepalives_count": "3"}
_log = structlog.get_logger("work")


class Notified(Protocol):
    def notify(self) -> None:
        """There may be something new; from any thread."""


def listener(
    database: Database,
    notifier: Notified,
    stopping: threading.Event,
    presence: Presence,
    channel: str = CHANNEL,
) -> Callable[[], None]:
    """A function that notifies until stopped; the worker's own poll stands behind it."""
    if database.dialect == "postgresql":
        return lambda: _listen(database, notifier, stopping, presence, channel)
    return lambda: _watch(database, notifier, stopping, presence)


def _listen(
    database: Database,
    notifier: Notified,
    stopping: threading.Event,
    presence: Presence,
    channel: str,
) -> None:
    import psycopg  # noqa: PLC0415 - on SQLite nobody listens, and it is slow to import

    url = database.url.set(drivername="postgresql").update_query_dict(KEEPALIVE)
    address = url.render_as_string(hide_password=False)
    try:
        with (
            psycopg.connect(address, autocommit=True) as connection,
            presence.by_session(connection),
        ):
            connection.execute(f"LISTEN {channel}".encode())
            # What was enqueued before the LISTEN notified nobody.
            notifier.notify()
            while not stopping.is_set():
                for heard in connection.notifies(timeout=LOOK_EVERY_S * 10, stop_after=1):
                    if heard.payload != process():
                        notifier.notify()
    except psycopg.OperationalError as error:
        _log.warning("connection for notifications lost", error=str(error))
        stopping.wait(CONNECT_AGAIN_S)


def _watch(
    database: Database, notifier: Notified, stopping: threading.Event, presence: Presence
) -> None:
    """`PRAGMA data_version` changes when any other connection has committed."""
    # A connection of its own outside transactions: an open one would always see the same version.
    with (
        presence.by_file(),
        closing(sqlite3.connect(str(database.url.database), isolation_level=None)) as connection,
    ):
        seen = None
        while not stopping.is_set():
            version = connection.execute("PRAGMA data_version").fetchone()
            if version != seen:
                seen = version
                notifier.notify()
            stopping.wait(LOOK_EVERY_S)
