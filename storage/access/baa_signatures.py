"""Signatures of the business associate agreement: which version, by whom, and its text."""

from sqlalchemy import ForeignKey, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage.columns import Owned, Record
from storage.lookups import by_key


class BaaSignature(Owned, Record):
    """An organization's, of one version. `created_at` is when it was signed.

    The text is kept as it was signed: the operator may replace theirs. So are name and address of
    who signed, who may leave.
    """

    __tablename__ = "baa_signatures"

    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"), primary_key=True)
    version: Mapped[str] = mapped_column(primary_key=True)
    text: Mapped[str]
    signed_by: Mapped[str] = mapped_column(ForeignKey("users.id"))
    signer_name: Mapped[str]
    signer_email: Mapped[str]


def sign(
    db: Session, org_id: str, version: str, text: str, *, by: str, name: str, email: str
) -> BaaSignature:
    """The database refuses a second signature of the version."""
    signed = BaaSignature(
        org_id=org_id,
        version=version,
        text=text,
        signed_by=by,
        signer_name=name,
        signer_email=email,
    )
    db.add(signed)
    db.flush()
    return signed


def find(db: Session, org_id: str, version: str) -> BaaSignature | None:
    return by_key(db, BaaSignature, org_id, version)


def latest(db: Session, org_id: str) -> BaaSignature | None:
    """The organization's newest signature, of whatever version."""
    rows = select(BaaSignature).where(BaaSignature.org_id == org_id)
    newest = BaaSignature.created_at.desc(), BaaSignature.version.desc()
    return db.scalars(rows.order_by(*newest).limit(1)).one_or_none()


def is_signed(db: Session, org_id: str) -> bool:
    """Any version: what was signed stays in force when the text is replaced."""
    rows = select(BaaSignature.version).where(BaaSignature.org_id == org_id).limit(1)
    return db.scalar(rows) is not None
