"""Sealing the audit log: entries get their numbers and hashes soon after they were written."""

from typing import Any, Final

import structlog
from sqlalchemy.orm import Session

from control.work import Operation, Schedule, workflow
from storage.database import Database
from storage.errors import StateConflict
from storage.events import audit_chain, events, siem_deliveries

EVERY_S: Final = 2
_ORGS: Final = 1_000
_AT_ONCE: Final = 200
"""Entries that are sealed in one transaction: others wait to write."""
_ROUNDS_MAX: Final = 200
_log = structlog.get_logger(__name__)


@workflow("audit.seal", deadline_s=300)
def seal(op: Operation) -> None:
    """In rounds, so that an organization with many entries delays no other's."""
    for _ in range(_ROUNDS_MAX):
        with op.database.read() as db:
            waiting = audit_chain.unsealed(db, _ORGS)
        if not sum(_seal(op.database, org_id) for org_id in waiting):
            return


def _seal(database: Database, org_id: str | None) -> int:
    """What somebody else wrote into the log holds up this organization alone.

    A number that an entry has already, or content that cannot be read or hashed.
    """
    try:
        with database.write() as db:
            sealed = audit_chain.seal(db, org_id, _AT_ONCE)
            if sealed and org_id is not None and siem_deliveries.orgs_with_enabled(db, [org_id]):
                events.wake_deliverers(db)
            return sealed
    except (StateConflict, ValueError, TypeError, ArithmeticError) as error:
        _log.error("audit log not sealed", org_id=org_id, reason=str(error))
        return 0


def _lanes(db: Session) -> dict[str, dict[str, Any]]:
    """None while everything is sealed."""
    return {"schedule:audit": {}} if audit_chain.unsealed(db, 1) else {}


SCHEDULE: Final = Schedule("audit", seal, every_s=EVERY_S, lanes=_lanes)
