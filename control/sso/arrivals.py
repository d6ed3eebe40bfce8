"""Somebody whom an identity provider has verified comes to the organization of its connection.

They are known by the connection and the provider's own name for them (the subject). Somebody who is
not is given the account that has their address only where the organization has shown that the
domain of the address is its own: else whoever runs an identity provider could come as anybody.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy.orm import Session

from control.access import role_holders, seats
from control.policy.org_policy import allows_address
from control.sso import account_limits, group_grants
from specserver import Conflict, Forbidden
from storage import identifiers
from storage.access import memberships, organizations, users
from storage.access.organizations import Organization
from storage.access.users import SERVICE_DOMAIN, User
from storage.roles import roles
from storage.sso import domains, identities
from storage.sso.connections import SsoConnection

SUBJECT_MAX: Final = 500
_EMAIL_MAX: Final = 254
_NAME_MAX: Final = 100
_EMAIL: Final = re.compile(r"[^@\s\x00-\x1f\x7f]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+")
# What is shown as nothing, though it counts as visible; no display name has them.
_BLANK: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_MEMBER: Final = "member"
CUSTOM: Final = "role_"


@dataclass(frozen=True)
class VerifiedIdentity:
    """Who somebody is by their provider, whose signature was verified.

    `email_is_verified` is whether the provider says that the address reaches them. `has_mfa` is
    whether it says that they passed a second factor.
    """

    subject: str
    email: str
    email_is_verified: bool
    name: str = ""
    groups: tuple[str, ...] = ()
    has_mfa: bool = False
    authenticated_at: datetime | None = None


@dataclass(frozen=True)
class Arrival:
    """The account, and what was made for it: `linked` is an account that was there before."""

    user: User
    is_new_account: bool = False
    is_linked: bool = False
    member_role: str | None = None
    """What a new member got; None for somebody who was one."""

    @property
    def told(self) -> dict[str, Any]:
        """For the audit log."""
        return {"account_created": self.is_new_account, "account_linked": self.is_linked}


def arrive(
    db: Session, connection: SsoConnection, identity: VerifiedIdentity, place: str, now: datetime
) -> Arrival:
    """The account of this identity, a member of the connection's organization from now on.

    `place` is the address that they come from, as rates count it.

    The transaction has entered the organization, and holds it. Raises Conflict for a connection
    that is disabled, an organization that is closed and an account that may not be linked,
    Forbidden for an address that the organization does not let in, or where too many accounts were
    made, and PaymentRequired where there is no seat. Nothing is left then.
    """
    org = organizations.fetch(db, connection.org_id)
    _refuse_shut(org, connection)
    known = identities.find(db, connection, identity.subject)
    if known is not None:
        known.last_seen_at = now
        arrival = Arrival(users.of_ids(db, [known.user_id])[known.user_id])
    else:
        arrival = _first(db, org, identity, place, now)
        identities.add(db, connection, identity.subject, arrival.user.id, now)
    role = _join(db, org, connection, arrival.user, identity, now)
    group_grants.claimed(db, org.id, arrival.user.id, connection.id, identity.groups, now)
    _refuse_stronger(db, org, connection, arrival.user)
    connection.note_use(now)
    return Arrival(arrival.user, arrival.is_new_account, arrival.is_linked, role)


def _refuse_shut(org: Organization, connection: SsoConnection) -> None:
    if org.status == "closed":
        raise Conflict("the organization is closed and read-only", code="org_closed")
    if not connection.is_usable:
        raise Conflict(
            "this SSO connection is disabled; an administrator of the organization can enable it",
            code="sso_connection_disabled",
        )


def _refuse_stronger(db: Session, org: Organization, connection: SsoConnection, user: User) -> None:
    """Whoever set the connection up chose who says who somebody is: it is no way to more rights."""
    db.flush()
    member = role_holders.of_member(db, org.id, user.id)
    assert member is not None, "they are a member by now"
    if member.rights.beyond(role_holders.of_role(connection.highest_role, org.id, member.sets)):
        raise Forbidden(
            "you may do more in the organization than whoever set up this SSO connection"
            f" ({connection.highest_role}): sign in with your password or a passkey, and have an"
            " owner save the settings of the connection once more",
            code="sso_exceeds_connection",
        )


def _first(
    db: Session, org: Organization, identity: VerifiedIdentity, place: str, now: datetime
) -> Arrival:
    """Of somebody who has not come by this connection before."""
    email = _address(identity)
    is_theirs = identity.email_is_verified and (
        domains.domain_of(email) in domains.verified(db, org.id)
    )
    user = users.by_email(db, email)
    if user is None:
        made = users.create(db, email=email, name=_name(identity, email))
        if is_theirs:
            made.verify(email, now)
        else:
            account_limits.count(db, org.id, made.id, place, now)
        return Arrival(made, is_new_account=True)
    if not is_theirs:
        raise _not_linked(identity, email)
    user.verify(user.email, user.email_verified_at or now)
    return Arrival(user, is_linked=True)


def _not_linked(identity: VerifiedIdentity, email: str) -> Conflict:
    if not identity.email_is_verified:
        why = "the identity provider does not say that it has verified the address"
    else:
        why = f"the organization has not verified the domain {domains.domain_of(email)}"
    return Conflict(
        f"there is an account with the address {email}, and {why}, so it is not known to be the"
        " same person: an administrator has to verify the domain (and the provider the address)",
        code="sso_account_exists",
    )


def _join(
    db: Session,
    org: Organization,
    connection: SsoConnection,
    user: User,
    identity: VerifiedIdentity,
    now: datetime,
) -> str | None:
    """The role of a new member; None for somebody who is one."""
    if memberships.find(db, org.id, user.id) is not None:
        return None
    # Of the address that the account has, as an invite's is; the provider's may be another by now.
    if not allows_address(user.email, org.allowed_email_domains):
        raise Forbidden(
            f"the organization does not allow the email address {identity.email or user.email}:"
            " an administrator can allow its domain (allowed_email_domains)",
            code="email_domain_refused",
        )
    seats.refuse_full(db, org, now)
    role = connection.default_role
    is_custom = role.startswith(CUSTOM)
    memberships.create(db, org.id, user.id, _MEMBER if is_custom else role)
    if is_custom:
        given = roles.find(db, org.id, role)
        if given is None:  # it was deleted meanwhile
            return _MEMBER
        roles.assign(db, given, user.id, None, created_by=connection.created_by)
    return role


def _address(identity: VerifiedIdentity) -> str:
    email = identity.email.strip().lower()
    is_one = len(email) <= _EMAIL_MAX and _EMAIL.fullmatch(email) is not None
    if not is_one or email.endswith(f"@{SERVICE_DOMAIN}"):
        raise Forbidden(
            "the identity provider gave no usable email address: have it send one, and see which"
            " claim or attribute the connection reads it from (attribute_mapping)",
            code="sso_email_missing",
        )
    return email


def _name(identity: VerifiedIdentity, email: str) -> str:
    """As a display name may be; in place of one that cannot be shown, what is before the @."""
    for given in (identity.name, email.partition("@")[0]):
        shown = "".join(each for each in given if each.isprintable() and each not in _BLANK)
        shown = shown.strip()[:_NAME_MAX].strip()
        if shown:
            return shown
    return identifiers.new("member_")
