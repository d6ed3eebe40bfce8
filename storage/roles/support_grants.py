"""Support grants: what an organization lets the support of the service do, for a time."""

from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, bindparam, func, select, text
from sqlalchemy.orm import Mapped, Session, mapped_column
from sqlalchemy.sql.selectable import ScalarSelect

from storage import identifiers, pages
from storage.access.users import User
from storage.columns import EPOCH, MILLISECOND, Json, Owned, Record
from storage.errors import RecordNotFound
from storage.json_rows import JsonArray, JsonObject
from storage.lookups import by_key, delete_oldest
from storage.pages import Page

_IN_FORCE = text("revoked_at IS NULL")


class SupportGrant(Owned, Record):
    """Permissions for whoever is of support; `instance_ids` None: for the whole organization."""

    __tablename__ = "support_grants"
    __table_args__ = (
        Index(None, "org_id", "id"),
        Index(
            "ix_support_grants_open",
            "org_id",
            postgresql_where=_IN_FORCE,
            sqlite_where=_IN_FORCE,
        ),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    permissions: Mapped[list[str]] = mapped_column(Json)
    instance_ids: Mapped[list[str] | None] = mapped_column(Json)
    reason: Mapped[str]
    created_by: Mapped[str]
    expires_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]

    def status(self, now: datetime) -> str:
        if self.revoked_at is not None:
            return "revoked"
        return "active" if self.expires_at > now else "expired"

    def revoke(self, at: datetime) -> None:
        """Revoking twice keeps the first moment."""
        self.revoked_at = self.revoked_at or at


def create(
    db: Session,
    org_id: str,
    *,
    permissions: Collection[str],
    instance_ids: Collection[str] | None,
    reason: str,
    created_by: str,
    expires_at: datetime,
) -> SupportGrant:
    grant = SupportGrant(
        id=identifiers.new("sg_"),
        org_id=org_id,
        permissions=sorted(permissions),
        instance_ids=None if instance_ids is None else sorted(instance_ids),
        reason=reason,
        created_by=created_by,
        expires_at=expires_at,
    )
    db.add(grant)
    db.flush()
    return grant


def fetch(db: Session, org_id: str, grant_id: str, *, lock: bool = False) -> SupportGrant:
    """The organization's; `lock` holds its row until the transaction ends."""
    grant = by_key(db, SupportGrant, grant_id, lock=lock)
    if grant is None or grant.org_id != org_id:
        raise RecordNotFound("support grant not found")
    return grant


def page(db: Session, org_id: str, *, limit: int, after: str | None) -> Page[SupportGrant]:
    """The organization's, newest first, revoked and expired ones too."""
    rows = select(SupportGrant).where(SupportGrant.org_id == org_id)
    return pages.keyset(db, rows, SupportGrant.id, limit=limit, after=after)


def count_active(db: Session, org_id: str, now: datetime) -> int:
    rows = select(func.count()).select_from(SupportGrant)
    rows = rows.where(
        SupportGrant.org_id == org_id,
        SupportGrant.revoked_at.is_(None),
        SupportGrant.expires_at > now,
    )
    return db.scalars(rows).one()


def active(db: Session, org_id: str, now: datetime) -> list[SupportGrant]:
    rows = select(SupportGrant).where(
        SupportGrant.org_id == org_id,
        SupportGrant.revoked_at.is_(None),
        SupportGrant.expires_at > now,
    )
    return list(db.scalars(rows))


def forget_old(db: Session, before: datetime, limit: int) -> int:
    """Delete at most `limit` that were given before that moment; each has ended long since."""
    return delete_oldest(
        db, SupportGrant.id, "sg_", before, limit, SupportGrant.expires_at < before
    )


def moment(stored: int | str) -> datetime:
    """Of a timestamp within JSON: milliseconds since 1970, or on PostgreSQL a text."""
    if isinstance(stored, str):
        return datetime.fromisoformat(stored)
    return EPOCH + stored * MILLISECOND


def of_user() -> ScalarSelect[Any]:
    """Those not revoked of the organization `:org_id`, where the user of an outer query is support.

    Permissions, instances, and when it expires as `moment` reads it, by the grants' ids.
    """
    given = JsonArray(SupportGrant.permissions, SupportGrant.instance_ids, SupportGrant.expires_at)
    return (
        select(JsonObject(SupportGrant.id, given))
        .where(
            SupportGrant.org_id == bindparam("org_id"),
            SupportGrant.revoked_at.is_(None),
            User.is_support,
        )
        .correlate(User)
        .scalar_subquery()
    )
