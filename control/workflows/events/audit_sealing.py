"""Sealing the audit log: entries get their numbers and hashes soon after they were written."""

from typing import Any, Final

from sqlalchemy.orm import Session

from control.work import Operation, Schedule, workflow
from storage.events import audit_chain

EVERY_S: Final = 2
_ORGS: Final = 1_000
_AT_ONCE: Final = 200
"""Entries that are sealed in one transaction: others wait to write."""
_ROUNDS_MAX: Final = 200


@workflow("audit.seal", deadline_s=300)
def seal(op: Operation) -> None:
    """In rounds, so that an organization with many entries delays no other's."""
    for _ in range(_ROUNDS_MAX):
        with op.database.read() as db:
            waiting = audit_chain.unsealed(db, _ORGS)
        if not waiting:
            return
        for org_id in waiting:
            with op.database.write() as db:
                audit_chain.seal(db, org_id, _AT_ONCE)


def _lanes(db: Session) -> dict[str, dict[str, Any]]:
    """None while everything is sealed."""
    return {"schedule:audit": {}} if audit_chain.unsealed(db, 1) else {}


SCHEDULE: Final = Schedule("audit", seal, every_s=EVERY_S, lanes=_lanes)
