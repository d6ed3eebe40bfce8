"""Domains: host names of their owners' own that lead to instances."""

from datetime import datetime
from typing import Any, Final

from sqlalchemy import ForeignKey, Index, func, select, text
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import pages, tenancy
from storage.columns import Json, Owned, Record, one_of
from storage.errors import RecordNotFound
from storage.instances.instances import Instance
from storage.lookups import by_key
from storage.pages import Page

STATUSES: Final = ("pending", "verified", "failed")
_VERIFIED: Final = text("status = 'verified'")


class Domain(Owned, Record):
    """Anybody may claim a name; only one claim is verified, and DNS says whose.

    `certificate` is what the cell last told of it, as cell/openapi.yaml has it.
    """

    __tablename__ = "domains"
    __table_args__ = (
        one_of("status", STATUSES),
        Index(None, "instance_id", "hostname", unique=True),
        Index(
            "ix_domains_verified_hostname",
            "hostname",
            unique=True,
            postgresql_where=_VERIFIED,
            sqlite_where=_VERIFIED,
        ),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    instance_id: Mapped[str] = mapped_column(ForeignKey("instances.id"))
    hostname: Mapped[str]
    cname_target: Mapped[str]
    status: Mapped[str] = mapped_column(default="pending")
    status_reason: Mapped[str | None]
    checked_at: Mapped[datetime | None]
    verified_at: Mapped[datetime | None]
    certificate: Mapped[dict[str, Any] | None] = mapped_column(Json)

    def verify_again(self) -> None:
        """It stays in force while it is looked up, where it was."""
        if self.status == "failed":
            self.status, self.status_reason = "pending", None

    def became_verified(self, at: datetime) -> None:
        self.status, self.status_reason = "verified", None
        self.checked_at = at
        self.verified_at = self.verified_at or at

    def became_failed(self, reason: str, at: datetime) -> None:
        """`reason` is a sentence its owner can act on."""
        self.status, self.status_reason = "failed", reason
        self.checked_at, self.verified_at = at, None
        self.certificate = None


def fetch(db: Session, instance: Instance, domain_id: str, *, lock: bool = False) -> Domain:
    found = by_key(db, Domain, domain_id, lock=lock)
    if found is None or found.instance_id != instance.id or found.org_id != instance.org_id:
        raise RecordNotFound("domain not found")
    return found


def page(db: Session, instance: Instance, *, limit: int, after: str | None) -> Page[Domain]:
    """The instance's domains, newest first."""
    rows = select(Domain).where(Domain.org_id == instance.org_id, Domain.instance_id == instance.id)
    return pages.keyset(db, rows, Domain.id, limit=limit, after=after)


def count(db: Session, instance: Instance) -> int:
    rows = select(func.count()).select_from(Domain).where(Domain.instance_id == instance.id)
    return db.scalars(rows.where(Domain.org_id == instance.org_id)).one()


def verified_hostnames(db: Session, instance: Instance) -> list[str]:
    """Those that the instance answers to, in alphabetical order."""
    rows = select(Domain.hostname).where(
        Domain.org_id == instance.org_id,
        Domain.instance_id == instance.id,
        Domain.status == "verified",
    )
    return list(db.scalars(rows.order_by(Domain.hostname)))


def verified_of_cell(db: Session, cell_id: str) -> list[Domain]:
    """Those of all organizations' instances there: what the cell tells of them is noted."""
    rows = select(Domain).join(Instance, Instance.id == Domain.instance_id)
    return list(db.scalars(rows.where(Instance.cell_id == cell_id, Domain.status == "verified")))


def holder(db: Session, hostname: str) -> Domain | None:
    """Whoever's verified domain the name is now, of any organization."""
    rows = select(Domain).where(Domain.hostname == hostname, Domain.status == "verified")
    with tenancy.across(db, "a name on the internet is one organization's at a time"):
        return db.scalars(rows.with_for_update()).one_or_none()
