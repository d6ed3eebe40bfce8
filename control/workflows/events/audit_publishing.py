"""Publishing the heads of the audit log's chains: each hour, in a signed log outside of it too."""

from collections.abc import Iterable
from typing import Final, Protocol

import structlog
from sqlalchemy.orm import Session

from control.events import audit_records
from control.services import Services
from control.work import Operation, Schedule, workflow
from storage.database import now
from storage.events import audit_chain, audit_publications
from storage.events.audit_publications import AuditPublication

EVERY_S: Final = 3_600
HEADS_MAX: Final = 500
"""In one record."""
_log = structlog.get_logger(__name__)


class KeepsRecordsError(Exception):
    """Records could not be written there; the text says why."""


class KeepsRecords(Protocol):
    """A place outside of the database that records are added to, and none is changed in."""

    title: str

    def keep(self, newest_first: Iterable[AuditPublication]) -> int:
        """Add those that are not there, oldest first; how many. Raises KeepsRecordsError."""


@workflow("audit.publish", deadline_s=600)
def publish(op: Operation) -> None:
    """What a place could not take is added at the next turn."""
    while True:
        with op.database.write() as db:
            if _publish(db, op.services) < HEADS_MAX:
                break
    for place in op.services.audit_logs:
        try:
            with op.database.read() as db:
                place.keep(audit_publications.newest_first(db))
        except KeepsRecordsError as error:
            _log.warning("audit log not published", place=place.title, reason=str(error))


def _publish(db: Session, services: Services) -> int:
    """The heads that have moved, as one record; how many there are."""
    moved = audit_publications.moved_heads(db, HEADS_MAX)
    if not moved:
        return 0
    before = audit_publications.last(db)
    number, previous = (before.number + 1, before.hash) if before else (1, audit_chain.NOTHING)
    moment = now(db)
    time = audit_chain.written(moment)
    told = [{"chain": each.chain, "seq": each.seq, "hash": each.hash} for each in moved]
    heads = audit_records.signed_heads(services.signer, told, time)
    line = audit_records.line_of(services.signer, number, previous, time, heads)
    record = AuditPublication(
        number=number, hash=audit_records.hash_of(line), line=line, published_at=moment
    )
    key = audit_records.encoded(services.signer.public_key)
    audit_publications.add(db, record, moved, [each["signature"] for each in heads], key)
    return len(moved)


SCHEDULE: Final = Schedule("audit_heads", publish, every_s=EVERY_S)
