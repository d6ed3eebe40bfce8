"""Service accounts: members that are programs, whose API keys end with no person.

Each has a user of the same id, who has no password and belongs to the one organization. Whatever
is given to members (roles, teams, projects) is given to it in the same way.
"""

from datetime import datetime

from sqlalchemy import ForeignKey, UniqueConstraint, func, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import identifiers, pages
from storage.access import memberships
from storage.access.users import SERVICE_DOMAIN, User
from storage.columns import Owned, Record
from storage.errors import RecordNotFound, StateConflict
from storage.lookups import by_key
from storage.pages import Page


class ServiceAccount(Owned, Record):
    __tablename__ = "service_accounts"
    __table_args__ = (UniqueConstraint("org_id", "name"),)

    id: Mapped[str] = mapped_column(ForeignKey("users.id"), primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    name: Mapped[str]
    role: Mapped[str]
    created_by: Mapped[str]
    disabled_at: Mapped[datetime | None]

    def check_usable(self) -> None:
        if self.disabled_at is not None:
            raise StateConflict(
                "the service account is disabled and gets no further keys; create another one"
            )

    def disable(self, at: datetime) -> None:
        if self.disabled_at is not None:
            raise StateConflict("the service account is disabled already")
        self.disabled_at = at


def create(db: Session, org_id: str, *, name: str, role: str, created_by: str) -> ServiceAccount:
    id_ = identifiers.new("sa_")
    db.add(User(id=id_, email=f"{id_.lower()}@{SERVICE_DOMAIN}", name=name))
    db.flush()
    memberships.create(db, org_id, id_, role)
    account = ServiceAccount(id=id_, org_id=org_id, name=name, role=role, created_by=created_by)
    db.add(account)
    db.flush()
    return account


def fetch(db: Session, org_id: str, account_id: str, *, lock: bool = False) -> ServiceAccount:
    """The organization's; `lock` holds its row until the transaction ends."""
    account = by_key(db, ServiceAccount, account_id, lock=lock)
    if account is None or account.org_id != org_id:
        raise RecordNotFound("service account not found")
    return account


def page(db: Session, org_id: str, *, limit: int, after: str | None) -> Page[ServiceAccount]:
    """The organization's, newest first, disabled ones too."""
    rows = select(ServiceAccount).where(ServiceAccount.org_id == org_id)
    return pages.keyset(db, rows, ServiceAccount.id, limit=limit, after=after)


def count(db: Session, org_id: str) -> int:
    """Disabled ones too, which stay."""
    rows = select(func.count()).select_from(ServiceAccount)
    return db.scalars(rows.where(ServiceAccount.org_id == org_id)).one()
