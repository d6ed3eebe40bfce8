"""When credentials were last used: noted at most once a minute, and never in a caller's way."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Final, TypeAlias

import structlog
from sqlalchemy import or_, update

from control.boundary.callers import Caller
from storage.access.api_keys import ApiKey
from storage.access.sessions import UserSession
from storage.database import Database
from storage.errors import StorageError
from storage.sso.scim_tokens import ScimToken

Credential: TypeAlias = ApiKey | ScimToken | UserSession
EVERY: Final = timedelta(minutes=1)
_REMEMBERED_MAX: Final = 10_000
_log = structlog.get_logger(__name__)


class LastUsed:
    """Writes from a thread of its own, so that a read stays a read."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._noted: dict[str, datetime] = {}
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="last-used")

    def note(self, caller: Caller, at: datetime) -> None:
        record = caller.key or caller.session
        assert record is not None
        self.note_record(record, at)

    def note_record(self, record: Credential, at: datetime) -> None:
        if record.last_used_at is not None and record.last_used_at + EVERY > at:
            return
        with self._lock:
            before = self._noted.get(record.id)
            if before is not None and before + EVERY > at:
                return
            if len(self._noted) >= _REMEMBERED_MAX:
                self._noted.clear()
            self._noted[record.id] = at
        self._thread.submit(self._write, type(record), record.id, at)

    def flush(self) -> None:
        """Wait until everything noted is written."""
        done: Future[None] = self._thread.submit(lambda: None)
        done.result()

    def _write(self, record: type[Credential], identifier: str, at: datetime) -> None:
        earlier = or_(record.last_used_at.is_(None), record.last_used_at < at)
        noting = update(record).where(record.id == identifier, earlier).values(last_used_at=at)
        try:
            with self._database.write() as db:
                db.execute(noting)
        except StorageError as error:
            # It is shown to people and decides nothing, so a lost one is not an outage.
            _log.warning("last_used_not_noted", id=identifier, reason=error.detail)
