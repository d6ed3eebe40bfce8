"""Waking those who follow an organization's events when any process commits some.

So does whatever may change the right to follow them: a change of a key, a session, a membership or
a role, told under the id of its organization or its user (`storage/access/right_changes.py`).

Commits are heard in their order: whoever has been told of an event has been told before of all
changes of rights that were committed before it.

One thread of the process listens for all, while anybody follows: on PostgreSQL to NOTIFY, on a
connection of its own; on SQLite it looks when the file has changed.
"""

import asyncio
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Final, NamedTuple, TypeAlias

import structlog

from control.boundary.shared_timers import shared_timers
from control.work.listeners import KEEPALIVE
from storage.access import right_changes
from storage.database import Database
from storage.errors import StorageUnavailable
from storage.events import events

LOOK_EVERY_S: Final = 0.05
AGAIN_S: Final = 1.0
_log = structlog.get_logger("event_listener")


class WakeNews(NamedTuple):
    """What a follower was told: the number of the last event, and whether rights changed since."""

    seq: int
    rights_changed: bool


class Follower:
    """One that waits, on its event loop. What it misses it finds when it looks of itself."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._timers = shared_timers(self.loop)
        self._seq = 0
        self._rights_changed = False
        self._is_woken = False
        self._waiting: asyncio.Future[bool] | None = None

    def wake(self, seq: int | None = None) -> None:
        """On its event loop: events up to this number were committed, or rights have changed."""
        if seq is None:
            self._rights_changed = True
        else:
            self._seq = max(self._seq, seq)
        self._is_woken = True
        self.end_wait(woken=True)

    def take(self) -> WakeNews:
        """What was told until now, which is about to be looked at."""
        told = WakeNews(self._seq, self._rights_changed)
        self._is_woken = self._rights_changed = False
        return told

    async def wait(self, timeout_s: float) -> bool:
        """Whether it was woken, and not only the time went by."""
        if self._is_woken:
            return True
        # Thousands wait, and `asyncio.timeout` costs several times as much.
        self._waiting = self.loop.create_future()
        waiting = self._timers.add(self, timeout_s)
        try:
            return await self._waiting
        finally:
            waiting.discard(self)
            self._waiting = None

    def end_wait(self, *, woken: bool = False) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(woken)


Counts: TypeAlias = tuple[int, int]
Woken: TypeAlias = list[tuple[Follower, int | None]]


class EventListener:
    """The followers of this process, by the organizations and users whose changes wake them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._followers: defaultdict[str, set[Follower]] = defaultdict(set)
        self._lock = threading.Lock()
        self._listening = False
        self.is_listening = False
        """Whether whatever is committed now wakes its followers: else they look of themselves."""

    @contextmanager
    def following(self, whose: Collection[str]) -> Iterator[Follower]:
        """Until the end of the block the follower is woken by changes of each of these."""
        follower = Follower()
        with self._lock:
            for each in whose:
                self._followers[each].add(follower)
        try:
            self._begin()
            yield follower
        finally:
            with self._lock:
                for each in whose:
                    self._followers[each].discard(follower)
                    if not self._followers[each]:
                        del self._followers[each]

    def _begin(self) -> None:
        with self._lock:
            if self._listening:
                return
            # Where no thread can be had, the next follower tries again.
            threading.Thread(target=self._listen, name="event_listener", daemon=True).start()
            self._listening = True

    def _listen(self) -> None:
        """Until nobody follows any more."""
        listen = self._hear if self._database.dialect == "postgresql" else self._watch
        while self._goes_on():
            try:
                listen()
            except Exception as error:  # noqa: BLE001 - without the thread nobody would be woken
                # Until it listens again each follower looks of itself, every few seconds.
                self.is_listening = False
                self._wake_everyone()
                _log.warning("not told of events for a moment", error=str(error))
                time.sleep(AGAIN_S)
            else:
                self.is_listening = False

    def _goes_on(self) -> bool:
        with self._lock:
            self._listening = bool(self._followers)
            return self._listening

    def _wake(self, told: Mapping[str, int | None]) -> None:
        """All of one event loop in one turn of it, so that those who see the same look together.

        By organization or user: the number of its last event, or None where rights have changed.
        """
        woken: defaultdict[asyncio.AbstractEventLoop, Woken] = defaultdict(list)
        with self._lock:
            for each, seq in told.items():
                for follower in self._followers.get(each, ()):
                    woken[follower.loop].append((follower, seq))
        for loop, followers in woken.items():
            # Where the loop is closed, nobody waits any more.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_wake_all, followers)

    def _wake_everyone(self) -> None:
        """To look of themselves: nobody knows what they were not told."""
        self._wake(dict.fromkeys(self._followed()))

    def _told_from_now_on(self) -> None:
        """What was committed before this told nobody."""
        self.is_listening = True
        self._wake_everyone()

    def _followed(self) -> list[str]:
        with self._lock:
            return list(self._followers)

    def _hear(self) -> None:
        import psycopg  # noqa: PLC0415 - on SQLite nobody listens, and it is slow to import

        url = self._database.url.set(drivername="postgresql").update_query_dict(KEEPALIVE)
        address = url.render_as_string(hide_password=False)
        try:
            with psycopg.connect(address, autocommit=True) as connection:
                connection.execute(f"LISTEN {events.CHANNEL}".encode())
                self._told_from_now_on()
                while self._followed():
                    for heard in connection.notifies(timeout=0.5, stop_after=1):
                        whose, _, seq = heard.payload.partition(":")
                        self._wake({whose: int(seq) if seq else None})
        except psycopg.Error as error:
            raise StorageUnavailable("the connection for notifications was lost") from error

    def _watch(self) -> None:
        """`PRAGMA data_version` changes when any other connection has committed."""
        file = str(self._database.url.database)
        seen, known = None, dict[str, Counts]()
        with closing(sqlite3.connect(file)) as connection:
            while whose := self._followed():
                version = connection.execute("PRAGMA data_version").fetchone()
                if version != seen:
                    seen, before, known = version, known, self._counts(whose)
                    self._wake(_news(before, known))
                    self.is_listening = True
                time.sleep(LOOK_EVERY_S)

    def _counts(self, whose: Collection[str]) -> dict[str, Counts]:
        """How many events and how many changes of rights each has had, at one moment."""
        with self._database.read() as db:
            told, changed = events.counts(db, whose), right_changes.counts(db, whose)
        return {each: (told.get(each, 0), changed.get(each, 0)) for each in whose}


def _news(before: Mapping[str, Counts], known: Mapping[str, Counts]) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for whose, (seq, changes) in known.items():
        former = before.get(whose)
        if former is None or former[1] != changes:
            found[whose] = None
        elif former[0] != seq:
            found[whose] = seq
    return found


def _wake_all(woken: Woken) -> None:
    for follower, seq in woken:
        follower.wake(seq)
