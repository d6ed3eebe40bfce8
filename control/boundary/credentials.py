"""Who is calling: the bearer token of a request, and the rights it has at this moment."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from control import identity
from control.policy import permissions
from specserver import Forbidden, NotFound, Unauthenticated
from storage.api_keys import ApiKey
from storage.memberships import Membership
from storage.organizations import Organization
from storage.sessions import UserSession
from storage.users import User

REALM = 'Bearer realm="menagerie"'
_ORG_ID = re.compile(r"org_[0-9A-HJKMNP-TV-Z]{26}")
NOT_FOUND = "there is nothing of that name here, or you may not see it"


@dataclass(frozen=True)
class Caller:
    """Whoever calls. In an org, `role` and `permissions` are what holds there; else None and none.

    For an API key `user` is its owner, and `role` the weaker of the owner's and the key's.
    """

    kind: Literal["api_key", "session"]
    user: User
    key: ApiKey | None
    session: UserSession | None
    role: str | None
    permissions: frozenset[str]
    mfa: bool

    @property
    def id(self) -> str:
        """Of the API key, or of the user: what an audit names, and a replay belongs to."""
        return self.key.id if self.key is not None else self.user.id


@dataclass(frozen=True)
class Admission:
    """A caller let in, and the org of the path where it names one."""

    caller: Caller | None
    org: Organization | None
    at: datetime


def bearer_token(header: str | None) -> str | None:
    """The token of an Authorization header; None without one, Unauthenticated when malformed."""
    if header is None:
        return None
    scheme, _, token = header.partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or identity.token_kind(token) is None:
        raise refused()
    return token


def missing() -> Unauthenticated:
    return Unauthenticated(
        "this needs an API key or a user session: send Authorization: Bearer <token>",
        headers={"WWW-Authenticate": REALM},
    )


def refused() -> Unauthenticated:
    """One answer for unknown, expired and revoked credentials, which tells nothing of them."""
    return Unauthenticated(
        "the credentials are not valid: unknown, expired or revoked",
        headers={"WWW-Authenticate": f'{REALM}, error="invalid_token"'},
    )


def admit(
    db: Session, token: str, *, org_id: str | None, now: datetime, mfa_ttl_s: int
) -> Admission:
    """The caller behind the token and, with an org id, that org as the caller may see it.

    Raises Unauthenticated for a token without force, and NotFound alike for an org the caller
    is no member of and for one that never was.
    """
    if org_id is not None and not _ORG_ID.fullmatch(org_id):
        # Not every text can be asked of a database, so one that names no org is asked as "".
        org_id = ""
    if identity.token_kind(token) == "api_key":
        return _admit_key(db, token, org_id, now)
    return _admit_session(db, token, org_id, now, timedelta(seconds=mfa_ttl_s))


def _admit_key(db: Session, token: str, org_id: str | None, now: datetime) -> Admission:
    # The membership is joined, so that a key dies with its owner's membership.
    row = db.execute(
        select(ApiKey, User, Membership.role, Organization)
        .join(User, User.id == ApiKey.created_by)
        .join(Organization, Organization.id == ApiKey.org_id)
        .join(
            Membership,
            (Membership.org_id == ApiKey.org_id) & (Membership.user_id == ApiKey.created_by),
        )
        .where(ApiKey.token_hash == identity.token_sha256(token))
    ).one_or_none()
    if row is None:
        raise refused()
    key, user, role, org = row
    if key.revoked_at is not None or (key.expires_at is not None and key.expires_at <= now):
        raise refused()
    if key.suspended_at is not None:
        raise Forbidden(
            "this API key is suspended; a member who may write API keys can lift that",
            code="key_suspended",
        )
    if org_id is not None and org_id != key.org_id:
        raise NotFound(NOT_FOUND)
    rights = permissions.effective(role, key.role, key.scopes)
    weaker = key.role if permissions.of_role(key.role) <= permissions.of_role(role) else role
    caller = Caller("api_key", user, key, None, weaker, rights, mfa=False)
    return Admission(caller, org if org_id is not None else None, now)


def _admit_session(
    db: Session, token: str, org_id: str | None, now: datetime, mfa_ttl: timedelta
) -> Admission:
    row = db.execute(
        select(UserSession, User)
        .join(User, User.id == UserSession.user_id)
        .where(UserSession.token_hash == identity.token_sha256(token))
    ).one_or_none()
    if row is None or not row[0].is_live(now):
        raise refused()
    session, user = row
    mfa = session.mfa_at is not None and session.mfa_at + mfa_ttl > now
    if org_id is None:
        return Admission(Caller("session", user, None, session, None, frozenset(), mfa), None, now)
    membership = db.execute(
        select(Organization, Membership.role)
        .join(Membership, Membership.org_id == Organization.id)
        .where(Organization.id == org_id, Membership.user_id == user.id)
    ).one_or_none()
    if membership is None:
        raise NotFound(NOT_FOUND)
    org, role = membership
    rights = permissions.of_role(role)
    return Admission(Caller("session", user, None, session, role, rights, mfa), org, now)
