"""Who is calling: the bearer token of a request, and the rights it has at this moment."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from control import identity
from control.policy import permissions, rights
from control.policy.rights import NOTHING, Rights
from specserver import Forbidden, Unauthenticated
from storage import teams
from storage.api_keys import ApiKey
from storage.columns import DatabaseClock
from storage.database import Database
from storage.memberships import Membership
from storage.organizations import Organization
from storage.sessions import UserSession
from storage.users import User

REALM = 'Bearer realm="menagerie"'
_ORG_ID = re.compile(r"org_[0-9A-HJKMNP-TV-Z]{26}")
NOT_FOUND = "not found, or you do not have access to it"


@dataclass(frozen=True)
class Caller:
    """Whoever calls. In an org, `role` and `rights` are what holds there; else None and none.

    For an API key `user` is its owner, and `role` the weaker of the owner's and the key's.
    """

    kind: Literal["api_key", "session"]
    user: User
    key: ApiKey | None
    session: UserSession | None
    role: str | None
    rights: Rights
    mfa: bool

    @property
    def id(self) -> str:
        """Of the API key, or of the user: what an audit names, and a replay belongs to."""
        return self.key.id if self.key is not None else self.user.id

    @property
    def credential_id(self) -> str:
        """Of the API key, or of the session: what a right that outlasts the request ends with."""
        proof = self.key or self.session
        assert proof is not None
        return proof.id


@dataclass(frozen=True)
class Admission:
    """A caller in force, and the org of the path as this caller may see it."""

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
        "the API key or session is unknown, expired or revoked",
        headers={"WWW-Authenticate": f'{REALM}, error="invalid_token"'},
    )


def admit(
    db: Session, database: Database, token: str, *, org_id: str | None, mfa_ttl_s: int
) -> Admission:
    """The caller behind the token, and the org of that id as the caller may see it.

    Raises Unauthenticated for a token without force. There is no org alike where the caller is
    no member of it and where it never was.
    """
    if org_id is not None and not _ORG_ID.fullmatch(org_id):
        # Not every text can be asked of a database, so one that names no org is asked as "".
        org_id = ""
    if identity.token_kind(token) == "api_key":
        return _admit_key(db, database, token, org_id)
    return _admit_session(db, database, token, org_id, timedelta(seconds=mfa_ttl_s))


# One query a request, made once: what it costs to build them is most of what they cost.

_MEMBER: Final = (Membership.role, Membership.teams_only, teams.roles_of_member())
# The membership is joined, so that a key dies with its owner's membership.
_KEY: Final = (
    select(ApiKey, User, *_MEMBER, Organization, DatabaseClock())
    .join(User, User.id == ApiKey.created_by)
    .join(Organization, Organization.id == ApiKey.org_id)
    .join(
        Membership,
        (Membership.org_id == ApiKey.org_id) & (Membership.user_id == ApiKey.created_by),
    )
    .where(ApiKey.token_hash == bindparam("sha256"))
)
_SESSION: Final = (
    select(UserSession, User, *_MEMBER, Organization, DatabaseClock())
    .join(User, User.id == UserSession.user_id)
    .outerjoin(
        Membership,
        (Membership.user_id == User.id) & (Membership.org_id == bindparam("org_id")),
    )
    .outerjoin(Organization, Organization.id == Membership.org_id)
    .where(UserSession.token_hash == bindparam("sha256"))
)


def _admit_key(db: Session, database: Database, token: str, org_id: str | None) -> Admission:
    row = db.execute(_KEY, {"sha256": identity.token_sha256(token)}).one_or_none()
    if row is None:
        raise refused()
    key, user, role, teams_only, team_roles, org, clock = row
    now = clock + database.clock_offset
    if key.revoked_at is not None or (key.expires_at is not None and key.expires_at <= now):
        raise refused()
    if key.suspended_at is not None:
        raise Forbidden(
            "this API key is suspended; a member with api-keys:write can unsuspend it",
            code="key_suspended",
        )
    # What it may is cut, and not where: it is in the teams that its owner is in.
    everyone = teams.everyone_of(key.org_id)
    held = rights.of_member(role, team_roles or {}, everyone=everyone, teams_only=teams_only)
    cut = held.cut(permissions.granted(key.role, key.scopes))
    weaker = key.role if permissions.of_role(key.role) <= permissions.of_role(role) else role
    caller = Caller("api_key", user, key, None, weaker, cut, mfa=False)
    return Admission(caller, org if org_id == key.org_id else None, now)


def _admit_session(
    db: Session, database: Database, token: str, org_id: str | None, mfa_ttl: timedelta
) -> Admission:
    values = {"sha256": identity.token_sha256(token), "org_id": org_id or ""}
    row = db.execute(_SESSION, values).one_or_none()
    if row is None:
        raise refused()
    session, user, role, teams_only, team_roles, org, clock = row
    now = clock + database.clock_offset
    if not session.is_live(now):
        raise refused()
    mfa = session.mfa_at is not None and session.mfa_at + mfa_ttl > now
    held = NOTHING
    if role is not None:
        everyone = teams.everyone_of(org.id)
        held = rights.of_member(role, team_roles or {}, everyone=everyone, teams_only=teams_only)
    return Admission(Caller("session", user, None, session, role, held, mfa), org, now)
