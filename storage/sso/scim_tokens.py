"""SCIM tokens: what an identity provider pushes people and groups with, known by their hash."""

from datetime import datetime

from sqlalchemy import ForeignKey, or_, select
from sqlalchemy import func as sql
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import identifiers, pages, tenancy
from storage.columns import Owned, Record
from storage.errors import RecordNotFound
from storage.lookups import by_key
from storage.pages import Page


class ScimToken(Owned, Record):
    """Good in its organization alone, and for nothing but SCIM."""

    __tablename__ = "scim_tokens"

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"), index=True)
    name: Mapped[str]
    prefix: Mapped[str]
    token_hash: Mapped[str] = mapped_column(unique=True)
    # Of people who come by it, in the organization.
    default_role: Mapped[str]
    created_by: Mapped[str]
    expires_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]

    def is_live(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > now)


def create(
    db: Session,
    org_id: str,
    *,
    name: str,
    prefix: str,
    token_hash: str,
    default_role: str,
    created_by: str,
    expires_at: datetime | None,
) -> ScimToken:
    token = ScimToken(
        id=identifiers.new("scimt_"),
        org_id=org_id,
        name=name,
        prefix=prefix,
        token_hash=token_hash,
        default_role=default_role,
        created_by=created_by,
        expires_at=expires_at,
    )
    db.add(token)
    db.flush()
    return token


def fetch(db: Session, org_id: str, token_id: str, *, lock: bool = False) -> ScimToken:
    """One of the organization that is not revoked; `lock` holds it until the commit."""
    token = by_key(db, ScimToken, token_id, lock=lock)
    if token is None or token.org_id != org_id or token.revoked_at is not None:
        raise RecordNotFound("SCIM token not found")
    return token


def page(db: Session, org_id: str, *, limit: int, after: str | None) -> Page[ScimToken]:
    """Those that are not revoked, newest first; expired ones are listed."""
    rows = select(ScimToken).where(ScimToken.org_id == org_id, ScimToken.revoked_at.is_(None))
    return pages.keyset(db, rows, ScimToken.id, limit=limit, after=after)


def count(db: Session, org_id: str, now: datetime) -> int:
    """Those in force."""
    rows = select(sql.count()).select_from(ScimToken)
    rows = rows.where(ScimToken.org_id == org_id, ScimToken.revoked_at.is_(None))
    is_unexpired = or_(ScimToken.expires_at.is_(None), ScimToken.expires_at > now)
    return db.scalars(rows.where(is_unexpired)).one()


def by_token_hash(db: Session, token_hash: str) -> ScimToken | None:
    """The one of that secret, in force or not: the caller decides by the database's clock."""
    with tenancy.across(db, "a token is known before its organization is"):
        rows = select(ScimToken).where(ScimToken.token_hash == token_hash)
        return db.scalars(rows).one_or_none()
