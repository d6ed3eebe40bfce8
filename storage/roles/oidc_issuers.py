"""Issuers of tokens, and the public keys that each was last seen to publish."""

from datetime import datetime
from typing import Any

from sqlalchemy import exists, select
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage.columns import Json, Record
from storage.lookups import by_key
from storage.roles.workload_identities import WorkloadIdentity


class OidcIssuer(Record):
    """`keys` are JSON Web Keys as they were read at `read_at`. They stay when a later try fails."""

    __tablename__ = "oidc_issuers"

    issuer: Mapped[str] = mapped_column(primary_key=True)
    keys: Mapped[list[dict[str, Any]] | None] = mapped_column(Json)
    read_at: Mapped[datetime | None]
    tried_at: Mapped[datetime | None]
    failed_reason: Mapped[str | None]

    def became_known(self, keys: list[dict[str, Any]], at: datetime) -> None:
        self.keys, self.read_at, self.tried_at, self.failed_reason = keys, at, at, None

    def became_unreachable(self, reason: str, at: datetime) -> None:
        self.tried_at, self.failed_reason = at, reason


def find(db: Session, issuer: str) -> OidcIssuer | None:
    """None for one that nobody has trusted yet."""
    return by_key(db, OidcIssuer, issuer)


def expect(db: Session, issuer: str) -> None:
    """Have the issuer among those whose keys are read."""
    if find(db, issuer) is None:
        # SQLite writes its clause alike.
        new = postgresql.insert(OidcIssuer).values(issuer=issuer).on_conflict_do_nothing()
        db.execute(new)


def hold(db: Session, issuer: str) -> OidcIssuer:
    """The issuer, expected or not, which nobody else changes until the commit."""
    expect(db, issuer)
    found = by_key(db, OidcIssuer, issuer, lock=True)
    assert found is not None
    return found


def trusted(db: Session) -> list[str]:
    """Those that some workload identity names."""
    named = exists().where(WorkloadIdentity.issuer == OidcIssuer.issuer)
    return list(db.scalars(select(OidcIssuer.issuer).where(named).order_by(OidcIssuer.issuer)))


def read_at(db: Session, issuers: set[str]) -> dict[str, datetime | None]:
    """When the keys of each were read last."""
    rows = select(OidcIssuer.issuer, OidcIssuer.read_at).where(OidcIssuer.issuer.in_(issuers))
    return dict(db.execute(rows).tuples().all())
