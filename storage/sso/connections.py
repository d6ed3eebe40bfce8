"""Connections to identity providers by which people sign in to an organization."""

from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import ForeignKey, Index, UniqueConstraint, and_, func, or_, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import identifiers, pages, tenancy
from storage.access import organizations
from storage.columns import Json, Owned, Record, one_of
from storage.errors import RecordNotFound
from storage.lookups import by_key
from storage.pages import Page

KINDS: Final = ("oidc", "saml")
STATUSES: Final = ("active", "pending_verification", "disabled")
REFRESHED_EVERY: Final = timedelta(days=1)
TRIED_AGAIN_AFTER: Final = timedelta(hours=1)
"""Where what the provider publishes could not be read."""


class SsoConnection(Owned, Record):
    """`settings` is what may be shown of it, by kind, and `secrets_sealed` its secrets.

    `default_role` is what new members get: a role of the organization, or the id of a custom one,
    which they have beside `member`. `attribute_mapping` has the names of the claims or attributes
    that hold `email`, `name` and `groups`. `provider` is what an OpenID Connect provider says of
    itself, and `keys` are those it was last seen to publish.
    """

    __tablename__ = "sso_connections"
    __table_args__ = (
        one_of("kind", KINDS),
        one_of("status", STATUSES),
        UniqueConstraint("org_id", "name"),
        Index(None, "org_id", "id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    kind: Mapped[str]
    name: Mapped[str]
    status: Mapped[str]
    default_role: Mapped[str]
    attribute_mapping: Mapped[dict[str, str]] = mapped_column(Json)
    settings: Mapped[dict[str, Any]] = mapped_column(Json)
    secrets_sealed: Mapped[bytes | None]
    # The role of whoever set it up: nobody comes by it who may do more than that.
    highest_role: Mapped[str] = mapped_column(default="member")
    # A second factor that the provider tells of counts here as one.
    trusts_mfa: Mapped[bool] = mapped_column(default=False)
    provider: Mapped[dict[str, Any] | None] = mapped_column(Json)
    provider_read_at: Mapped[datetime | None]
    keys: Mapped[list[dict[str, Any]] | None] = mapped_column(Json)
    keys_tried_at: Mapped[datetime | None]
    # When that was last tried without anybody asking for it; None: it was not yet.
    refresh_tried_at: Mapped[datetime | None] = mapped_column(index=True)
    # Why it failed the last time, in words for an administrator; None: it did not.
    refresh_failure: Mapped[str | None]
    refresh_failed_since: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    created_by: Mapped[str]

    @property
    def is_usable(self) -> bool:
        """Whether people may try to sign in by it; the first who succeeds verifies it."""
        return self.status != "disabled"

    def enable(self) -> None:
        """One that was never proven is to be proven still."""
        if self.status == "disabled":
            proven = self.kind == "oidc" or self.last_used_at is not None
            self.status = "active" if proven else "pending_verification"

    def disable(self) -> None:
        self.status = "disabled"

    def note_use(self, at: datetime) -> None:
        """Somebody came by it, which proves that its settings are right."""
        self.last_used_at = at
        if self.status == "pending_verification":
            self.status = "active"

    def became_known(
        self, provider: dict[str, Any], keys: list[dict[str, Any]] | None, at: datetime
    ) -> None:
        """What the provider says of itself; `keys` are None for a kind that publishes none."""
        self.provider, self.provider_read_at = provider, at
        if keys is not None:
            self.keys, self.keys_tried_at = keys, at
        self.refresh_tried_at, self.refresh_failure, self.refresh_failed_since = at, None, None

    def was_unread(self, reason: str, at: datetime) -> None:
        """What was read last stays. `reason` is a sentence that an administrator can act on."""
        self.refresh_tried_at, self.refresh_failure = at, reason
        self.refresh_failed_since = self.refresh_failed_since or at


def new_id() -> str:
    """Known before the record is there: its secrets are sealed for it."""
    return identifiers.new("ssoc_")


def add(db: Session, made: SsoConnection) -> SsoConnection:
    db.add(made)
    db.flush()
    return made


def fetch(db: Session, org_id: str, connection_id: str, *, lock: bool = False) -> SsoConnection:
    """The organization's; `lock` holds its row until the transaction ends."""
    found = by_key(db, SsoConnection, connection_id, lock=lock)
    if found is None or found.org_id != org_id:
        raise RecordNotFound("SSO connection not found")
    return found


def find(db: Session, org_id: str, connection_id: str) -> SsoConnection | None:
    """The organization's of that id, if there is one."""
    found = by_key(db, SsoConnection, connection_id)
    return None if found is None or found.org_id != org_id else found


def enter(db: Session, connection_id: str, *, lock_org: bool = True) -> SsoConnection:
    """The connection, for a request without an organization, which goes on within its.

    The organization is locked first, so that what is counted of it stays true; the connection is
    held in any case. Strangers who only begin a sign-in hold no organization up.
    """
    with tenancy.across(db, "whoever signs in is nobody yet, and names the connection alone"):
        rows = select(SsoConnection.org_id).where(SsoConnection.id == connection_id)
        org_id = db.scalar(rows)
        if org_id is None:
            raise RecordNotFound("SSO connection not found")
        if lock_org:
            organizations.lock(db, org_id)
    tenancy.restrict(db, org_id)
    return fetch(db, org_id, connection_id, lock=True)


def page(db: Session, org_id: str, *, limit: int, after: str | None) -> Page[SsoConnection]:
    """The organization's, newest first."""
    rows = select(SsoConnection).where(SsoConnection.org_id == org_id)
    return pages.keyset(db, rows, SsoConnection.id, limit=limit, after=after)


def due(db: Session, at: datetime, limit: int) -> list[SsoConnection]:
    """Of all organizations: those to be read again now, whose rows are held."""
    tried_at = SsoConnection.refresh_tried_at
    failed = and_(SsoConnection.refresh_failure.is_not(None), tried_at < at - TRIED_AGAIN_AFTER)
    rows = select(SsoConnection).where(SsoConnection.status != "disabled")
    rows = rows.where(or_(tried_at.is_(None), tried_at < at - REFRESHED_EVERY, failed))
    # Who is held by a request is read in the next turn.
    rows = rows.order_by(tried_at, SsoConnection.id).limit(limit).with_for_update(skip_locked=True)
    return list(db.scalars(rows))


def count(db: Session, org_id: str) -> int:
    rows = select(func.count()).select_from(SsoConnection)
    return db.scalars(rows.where(SsoConnection.org_id == org_id)).one()


def of_kind(db: Session, org_id: str, kind: str) -> list[SsoConnection]:
    """The organization's of this kind, oldest first."""
    rows = select(SsoConnection).where(SsoConnection.org_id == org_id, SsoConnection.kind == kind)
    return list(db.scalars(rows.order_by(SsoConnection.id)))
