"""Leaks of API keys: where each was found, so that the same place is acted upon once."""

import hashlib
from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import ForeignKey, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import tenancy
from storage.access import organizations
from storage.access.api_keys import ApiKey
from storage.access.memberships import Membership
from storage.access.organizations import Organization
from storage.access.users import User
from storage.columns import Owned, Record
from storage.events import events
from storage.lookups import by_key

_OWNERS_MAX = 100


class KeyLeak(Owned, Record):
    """A place where a key was found. Whoever unsuspends the key has decided about it."""

    __tablename__ = "key_leaks"

    key_id: Mapped[str] = mapped_column(ForeignKey("api_keys.id"), primary_key=True)
    place_sha256: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    source: Mapped[str]
    url: Mapped[str]


class KnownToken(NamedTuple):
    """Of an API key, whatever became of it. They sort by organization."""

    org_id: str
    token_hash: str


def known(db: Session, token_hashes: Collection[str]) -> list[KnownToken]:
    """Those of API keys of whatever organization, in the order in which these are locked."""
    rows = select(ApiKey.org_id, ApiKey.token_hash).where(ApiKey.token_hash.in_(token_hashes))
    with tenancy.across(db, "the token alone tells which organization it is of"):
        return sorted(KnownToken(*row) for row in db.execute(rows))


def take(db: Session, token: KnownToken) -> tuple[ApiKey, Organization]:
    """The key and its organization, for a request without one, which goes on within it.

    The organization is locked first, as by all that changes it or its keys.
    """
    events.write(db)
    db.flush()
    with tenancy.across(db, "the token alone tells which organization it is of"):
        organizations.lock(db, token.org_id)
    tenancy.restrict(db, token.org_id)
    rows = select(ApiKey).where(ApiKey.token_hash == token.token_hash).with_for_update()
    key = db.scalars(rows.execution_options(populate_existing=True)).one()
    return key, organizations.fetch(db, token.org_id)


def note(db: Session, key: ApiKey, source: str, url: str) -> bool:
    """Note the place; False where it is known already."""
    place = hashlib.sha256(f"{source}\n{url}".encode()).hexdigest()
    if by_key(db, KeyLeak, key.id, place) is not None:
        return False
    leak = {"key_id": key.id, "place_sha256": place, "org_id": key.org_id}
    db.add(KeyLeak(**leak, source=source, url=url))
    db.flush()
    return True


def owners(db: Session, org_id: str) -> list[str]:
    """The email addresses of the organization's owners, those of the oldest accounts first."""
    rows = select(User.email).join(Membership, Membership.user_id == User.id)
    rows = rows.where(Membership.org_id == org_id, Membership.role == "owner")
    return list(db.scalars(rows.order_by(User.id).limit(_OWNERS_MAX)))
