"""The chain of the audit log: each entry has a number and a hash that holds all entries before it.

Both are given after the commit, so no write pays or waits for them; whoever gives them holds the
head of the chain. An organization has a chain of its own, and so have the entries without one.
"""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any, Final

import orjson
from sqlalchemy import BigInteger, ForeignKey, and_, delete, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import identifiers
from storage.columns import Owned, Record
from storage.events.audit import AuditEntry

WITHOUT_ORG: Final = "installation"
"""The name of the chain of entries that are of no organization."""
NOTHING: Final = "0" * 64
"""In place of the hash before the first entry."""
HASHED: Final = (
    *("id", "org_id", "seq", "time", "action", "actor_kind", "actor_id", "target"),
    *("request_id", "ip", "detail"),
)
"""The members of an entry that its hash is over."""


class AuditHead(Owned, Record):
    """The end of a chain, and where it begins since the oldest entries were forgotten."""

    __tablename__ = "audit_heads"

    chain: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str | None] = mapped_column(ForeignKey("organizations.id"))
    seq: Mapped[int] = mapped_column(BigInteger)
    hash: Mapped[str]
    kept_from: Mapped[int] = mapped_column(BigInteger)
    hash_before: Mapped[str]
    published_seq: Mapped[int] = mapped_column(BigInteger)


def chain_of(org_id: str | None) -> str:
    return WITHOUT_ORG if org_id is None else org_id


def members_of(entry: AuditEntry) -> dict[str, Any]:
    """As they are hashed; `seq` is that of the entry."""
    return {
        **{name: getattr(entry, name) for name in HASHED if name != "time"},
        "time": written(entry.created_at),
    }


def written(moment: datetime) -> str:
    """In full: the database keeps milliseconds."""
    text = moment.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00") + "Z"


def hash_of(previous: str, members: Mapping[str, Any]) -> str:
    """SHA-256 over the hash before, a newline, and the entry as JSON with sorted members.

    An empty text is hashed as null, as an export does not tell these apart.
    """
    hashed = {name: None if members[name] == "" else members[name] for name in HASHED}
    text = orjson.dumps(hashed, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(previous.encode() + b"\n" + text).hexdigest()


def unsealed(db: Session, limit: int) -> list[str | None]:
    """The organizations with entries that have no number yet; None stands for those without.

    One question for each: a DISTINCT would read all the entries that wait.
    """
    waiting = AuditEntry.seq.is_(None)
    without = select(AuditEntry.id).where(waiting, AuditEntry.org_id.is_(None)).limit(1)
    found: list[str | None] = [] if db.scalar(without) is None else [None]
    last: str | None = ""
    while len(found) < limit:
        rows = select(AuditEntry.org_id).where(waiting, AuditEntry.org_id > last)
        last = db.scalar(rows.order_by(AuditEntry.org_id).limit(1))
        if last is None:
            break
        found.append(last)
    return found


def seal(db: Session, org_id: str | None, limit: int) -> int:
    """Number at most `limit` entries of the organization in the order of their ids; how many.

    An entry whose transaction was committed late gets a later number than ones made after it.
    """
    head = _held(db, org_id)
    rows = select(AuditEntry).where(AuditEntry.org_id == org_id, AuditEntry.seq.is_(None))
    entries = list(db.scalars(rows.order_by(AuditEntry.id).limit(limit)))
    for entry in entries:
        head.seq += 1
        entry.seq = head.seq
        head.hash = entry.hash = hash_of(head.hash, members_of(entry))
    return len(entries)


def forget_old(db: Session, before: datetime, limit: int) -> int:
    """Delete at most `limit` of those written before that moment, by chain; how many went.

    Only what is sealed, and only the beginning of a chain: the head says where it begins now.
    """
    bound = identifiers.first_of("aud_", before)
    gone = 0
    # Two that forget at once hold the heads in one order.
    for org_id in sorted(_begun_before(db, bound, limit), key=chain_of):
        if gone < limit:
            gone += _forget_of(db, org_id, bound, limit - gone)
    return gone


def _begun_before(db: Session, bound: str, limit: int) -> list[str | None]:
    """The organizations whose first entry is that old; of more than `limit` the oldest.

    Where the first is of a clock that was ahead, none after it can go yet: it is not among them,
    so that it is in no other's way.
    """
    found: list[tuple[str, str | None]] = []
    without = and_(AuditEntry.org_id.is_(None), AuditHead.org_id.is_(None))
    for same in (AuditEntry.org_id == AuditHead.org_id, without):
        rows = select(AuditEntry.id, AuditHead.org_id).join(AuditHead, same)
        rows = rows.where(AuditEntry.seq == AuditHead.kept_from, AuditEntry.id < bound)
        found += db.execute(rows.order_by(AuditEntry.id).limit(limit)).tuples()
    found.sort(key=lambda each: each[0])
    return [org_id for _, org_id in found[:limit]]


def _forget_of(db: Session, org_id: str | None, bound: str, limit: int) -> int:
    head = _held(db, org_id)
    kept = AuditEntry.org_id == org_id, AuditEntry.seq >= head.kept_from
    rows = select(AuditEntry.id, AuditEntry.seq, AuditEntry.hash).where(*kept)
    found = db.execute(rows.order_by(AuditEntry.seq).limit(limit))
    old = list(takewhile(lambda row: row.id < bound, found))
    if not old:
        return 0
    last = old[-1]
    head.kept_from, head.hash_before = last.seq + 1, last.hash
    gone = delete(AuditEntry).where(*kept, AuditEntry.seq <= last.seq).returning(AuditEntry.id)
    return len(db.execute(gone, execution_options={"synchronize_session": False}).all())


def _held(db: Session, org_id: str | None) -> AuditHead:
    """The head, which nobody else moves until the commit."""
    chain = chain_of(org_id)
    new = {"chain": chain, "org_id": org_id, "seq": 0, "hash": NOTHING}
    new |= {"kept_from": 1, "hash_before": NOTHING, "published_seq": 0}
    made = postgresql.insert if db.get_bind().dialect.name == "postgresql" else sqlite.insert
    db.execute(made(AuditHead).values(new).on_conflict_do_nothing())
    held = select(AuditHead).where(AuditHead.chain == chain).with_for_update()
    return db.scalars(held.execution_options(populate_existing=True)).one()
