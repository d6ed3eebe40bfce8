"""Owners who sign in without the identity provider that their organization enforces."""

from dataclasses import dataclass
from typing import Final

from sqlalchemy.orm import Session

from storage import tenancy
from storage.access import memberships, organizations
from storage.access.sessions import UserSession
from storage.events import audit
from storage.sso.domains import SsoDomain

ACTION: Final = "sso.break_glass"
_OWNERS_MAX: Final = 100


@dataclass(frozen=True)
class OwnersToTell:
    """The name of the organization, and the addresses of those who own it."""

    org_id: str
    org_name: str
    addresses: list[str]


def note(
    db: Session, domain: SsoDomain, session: UserSession, request_id: str
) -> OwnersToTell | None:
    """In the audit log of the organization that enforces it for the domain.

    None where the user is no owner of it: the session does nothing there.
    """
    with tenancy.across(db, "whoever signs in acts in no organization yet"):
        member = memberships.find(db, domain.org_id, session.user_id)
        if member is None or member.role != "owner":
            return None
        audit.append(
            db,
            domain.org_id,
            ACTION,
            actor_kind="user",
            actor_id=session.user_id,
            target=session.id,
            request_id=request_id,
            ip=session.ip,
            detail={"domain": domain.domain},
        )
        name = organizations.fetch(db, domain.org_id).name
        addresses = memberships.addresses(db, domain.org_id, ["owner"], _OWNERS_MAX)
        return OwnersToTell(domain.org_id, name, addresses)
