"""Published heads of the audit log's chains, and the records of the signed log that has them."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import BigInteger, ForeignKey, Index, Text, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import identifiers, pages
from storage.columns import Owned, Record
from storage.events.audit_chain import AuditHead
from storage.lookups import delete_oldest, delete_some
from storage.pages import Page

_PREFIX: Final = "ahd_"
_PAGE: Final = 100


class PublishedHead(Owned, Record):
    __tablename__ = "audit_published_heads"
    __table_args__ = (
        Index("ix_audit_published_heads_chain_id", "chain", "id"),
        Index("ix_audit_published_heads_org_id_id", "org_id", "id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str | None] = mapped_column(ForeignKey("organizations.id"))
    chain: Mapped[str]
    seq: Mapped[int] = mapped_column(BigInteger)
    hash: Mapped[str]
    published_at: Mapped[datetime]
    signature: Mapped[str]
    public_key: Mapped[str]


class AuditPublication(Record):
    """A record of the log, as it is written to files and stores."""

    __tablename__ = "audit_publications"

    number: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    hash: Mapped[str]
    line: Mapped[str] = mapped_column(Text)
    published_at: Mapped[datetime] = mapped_column(index=True)


@dataclass(frozen=True)
class LastRecord:
    """The end of the log."""

    number: int
    hash: str


def moved_heads(db: Session, limit: int) -> list[AuditHead]:
    """Those that have entries which no published head is over, held until the commit."""
    rows = select(AuditHead).where(AuditHead.seq > AuditHead.published_seq)
    return list(db.scalars(rows.order_by(AuditHead.chain).limit(limit).with_for_update()))


def last(db: Session) -> LastRecord | None:
    """None where nothing was published yet."""
    rows = select(AuditPublication.number, AuditPublication.hash)
    found = db.execute(rows.order_by(AuditPublication.number.desc()).limit(1)).one_or_none()
    return None if found is None else LastRecord(*found)


def add(
    db: Session,
    record: AuditPublication,
    heads: Collection[AuditHead],
    signatures: Collection[str],
    public_key: str,
) -> None:
    """The record and the heads that are in it, each with its signature."""
    for head, signature in zip(heads, signatures, strict=True):
        head.published_seq = head.seq
        told = {"signature": signature, "public_key": public_key}
        db.add(
            PublishedHead(
                id=identifiers.new(_PREFIX),
                org_id=head.org_id,
                chain=head.chain,
                seq=head.seq,
                hash=head.hash,
                published_at=record.published_at,
                **told,
            )
        )
    db.add(record)


def page(db: Session, org_id: str, *, limit: int, after: str | None) -> Page[PublishedHead]:
    """The organization's, newest first."""
    rows = select(PublishedHead).where(PublishedHead.org_id == org_id)
    return pages.keyset(db, rows, PublishedHead.id, limit=limit, after=after)


def of_chain(db: Session, chain: str) -> list[PublishedHead]:
    """All that are kept, oldest first; for a session of the service itself."""
    rows = select(PublishedHead).where(PublishedHead.chain == chain)
    return list(db.scalars(rows.order_by(PublishedHead.id)))


def newest_first(db: Session) -> Iterator[AuditPublication]:
    """The records that are kept."""
    before: int | None = None
    while True:
        rows = select(AuditPublication).order_by(AuditPublication.number.desc()).limit(_PAGE)
        if before is not None:
            rows = rows.where(AuditPublication.number < before)
        found = list(db.scalars(rows))
        yield from found
        if len(found) < _PAGE:
            return
        before = found[-1].number


def forget_old_heads(db: Session, before: datetime, limit: int) -> int:
    """Delete at most `limit` of those published before that moment; how many went."""
    return delete_oldest(db, PublishedHead.id, _PREFIX, before, limit)


def forget_old_records(db: Session, before: datetime, limit: int) -> int:
    """Delete at most `limit` of those published before that moment, the last one excepted.

    The next record has its number and its hash.
    """
    end = last(db)
    if end is None:
        return 0
    old = (AuditPublication.published_at < before) & (AuditPublication.number < end.number)
    return delete_some(db, AuditPublication, old, limit, AuditPublication.number)
