"""Who is calling: the bearer token of a request, and the rights it has at this moment."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from sqlalchemy import Select, bindparam, select
from sqlalchemy.orm import Session

from control.access import role_holders
from control.boundary import identity
from control.boundary.admission_cache import AdmissionCache, ResolvedCredential
from control.policy.rights import NOTHING, Rights, combined
from specserver import Forbidden, Unauthenticated
from storage.access.api_keys import ApiKey
from storage.access.memberships import Membership
from storage.access.organizations import Organization
from storage.access.sessions import UserSession
from storage.access.users import User
from storage.columns import DatabaseClock, WholeRow
from storage.database import Database
from storage.prepared import Prepared
from storage.roles import held_roles, support_grants

REALM = 'Bearer realm="menagerie"'
_ORG_ID = re.compile(r"org_[0-9A-HJKMNP-TV-Z]{26}")
SUPPORT: Final = "support"
"""In place of a role: of those who are let in by a support grant, and are no members."""
OWNER: Final = "owner"
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
    support_grants: tuple[str, ...] = ()
    """The ids of those by which somebody of support is let in; then `role` is SUPPORT."""

    @property
    def id(self) -> str:
        """Of the API key, or of the user: what an audit names, and a replay belongs to."""
        return self.key.id if self.key is not None else self.user.id

    @property
    def actor_kind(self) -> str:
        """As the audit log has it."""
        if self.key is not None and self.key.service_account_id is not None:
            return "service_account"
        return "user" if self.kind == "session" else "api_key"

    @property
    def granted_by(self) -> dict[str, Any]:
        """For the audit log: what let them in, where that is not who they are."""
        return {"support_grants": list(self.support_grants)} if self.support_grants else {}

    @property
    def held_to(self) -> str | None:
        """The only organization that the session acts in; None for any of the person's."""
        return self.session.sso_org_id if self.session is not None else None

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
    resolved: ResolvedCredential | None = None
    """What they are of, where they were found by a credential."""


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
    db: Session,
    database: Database,
    token: str,
    *,
    org_id: str | None,
    mfa_ttl_s: int,
    cache: AdmissionCache | None = None,
) -> Admission:
    """The caller behind the token, and the org of that id as the caller may see it.

    Raises Unauthenticated for a token without force. There is no org alike where the caller is
    no member of it and where it never was. What is `cache` is not loaded again; the records are
    of no session then, and nothing can be changed by them.
    """
    if org_id is not None and not _ORG_ID.fullmatch(org_id):
        # Not every text can be asked of a database, so one that names no org is asked as "".
        org_id = ""
    sha256 = identity.token_sha256(token)
    if identity.token_kind(token) == "api_key":
        resolved, clock = _resolve(db, _KEYS, {"sha256": sha256}, cache)
        return _admit_key(resolved, clock + database.clock_offset, org_id)
    values = {"sha256": sha256, "org_id": org_id or ""}
    resolved, clock = _resolve(db, _SESSIONS, values, cache)
    return _admit_session(resolved, clock + database.clock_offset, timedelta(seconds=mfa_ttl_s))


def _resolve_key(key: ApiKey, user: User, org: Organization, *roles: Any) -> ResolvedCredential:
    owner = role_holders.of_row(roles, org.role_sets, org.id)
    # What it may is cut, and not where: it is in the teams that its owner is in.
    cut = owner.left_to(key)
    weaker = _weaker(key.role, owner)
    return ResolvedCredential(Caller("api_key", user, key, None, weaker, cut, mfa=False), org)


def _weaker(key_role: str, owner: role_holders.RoleHolder) -> str:
    """The role by which a key acts: that of its owner, or its own where that holds no more.

    It never makes somebody an owner, whatever their role holds: what owners alone may is theirs.
    """
    role, sets = owner.held.role, owner.sets
    if key_role == OWNER and role != OWNER:
        return role
    return key_role if sets.of_role(key_role) <= sets.of_role(role) else role


def _resolve_session(
    session: UserSession, user: User, org: Organization | None, *held: Any
) -> ResolvedCredential:
    *roles, granted = held
    caller = Caller("session", user, None, session, None, NOTHING, mfa=False)
    # A provider of one organization gives nothing in another, whoever is a member of both.
    if org is None or session.sso_org_id not in (None, org.id):
        return ResolvedCredential(caller, None)
    role = roles[0]
    if role is None:
        return ResolvedCredential(caller, org, tuple(_support_rights(granted)))
    member = role_holders.of_row(roles, org.role_sets, org.id)
    return ResolvedCredential(replace(caller, role=role, rights=member.rights), org)


def _support_rights(granted: dict[str, Any] | None) -> Iterator[role_holders.SupportRight]:
    for grant_id, (held, instance_ids, until) in (granted or {}).items():
        expires_at = support_grants.moment(until)
        yield role_holders.support_right(grant_id, held, instance_ids, expires_at)


@dataclass(frozen=True)
class _Query:
    """Of one kind of credential.

    `load` gives what `resolved` is made of, `seen` the same as texts, `both` one after the other;
    all of them with the clock before what is seen.
    """

    load: Prepared
    seen: Prepared
    both: Prepared
    resolved: Callable[..., ResolvedCredential]


def _query(
    credential: type[ApiKey | UserSession],
    joined: Callable[[Select[Any]], Select[Any]],
    resolved: Callable[..., ResolvedCredential],
    *more: Any,
) -> _Query:
    held = (*held_roles.COLUMNS, *more)
    loaded = (credential, User, Organization, *held, DatabaseClock())
    texts = [WholeRow(*each.__table__.columns) for each in (credential, User, Organization)]
    seen = (*texts, *held)
    proof = credential.token_hash == bindparam("sha256")

    def of(*columns: Any) -> Prepared:
        return Prepared(joined(select(*columns).select_from(credential)).where(proof))

    return _Query(
        load=of(*loaded),
        seen=of(DatabaseClock(), *seen),
        both=of(*loaded, *seen),
        resolved=resolved,
    )


# The membership is joined, so that a key dies with its owner's membership.
_KEYS: Final = _query(
    ApiKey,
    lambda rows: (
        rows.join(User, User.id == ApiKey.created_by)
        .join(Organization, Organization.id == ApiKey.org_id)
        .join(
            Membership,
            (Membership.org_id == ApiKey.org_id) & (Membership.user_id == ApiKey.created_by),
        )
    ),
    _resolve_key,
)
# Whoever is of support sees an organization that grants something to support.
_SESSIONS: Final = _query(
    UserSession,
    lambda rows: (
        rows.join(User, User.id == UserSession.user_id)
        .outerjoin(
            Membership,
            (Membership.user_id == User.id) & (Membership.org_id == bindparam("org_id")),
        )
        .outerjoin(
            Organization,
            (Organization.id == bindparam("org_id"))
            & (Membership.user_id.is_not(None) | User.is_support),
        )
    ),
    _resolve_session,
    support_grants.of_user(),
)


def _resolve(
    db: Session, query: _Query, values: dict[str, str], cache: AdmissionCache | None
) -> tuple[ResolvedCredential, datetime]:
    """What the credential comes to, and the database's clock. Raises for one there is not."""
    if cache is None:
        row = _only(query.load, db, values)
        return query.resolved(*row[:-1]), row[-1]
    credential = tuple(values.values())
    clock, *seen = _only(query.seen, db, values)
    resolved = cache.get(credential, seen)
    if resolved is not None:
        return resolved, clock
    # By one statement, so that what is loaded are the rows that are seen.
    row = _only(query.both, db, values)
    loaded, seen = tuple(row[: -len(seen)]), list(row[-len(seen) :])
    resolved = query.resolved(*loaded[:-1])
    cache.note(credential, seen, resolved)
    return resolved, loaded[-1]


def _only(query: Prepared, db: Session, values: dict[str, str]) -> tuple[Any, ...]:
    row: tuple[Any, ...] | None = query.one_or_none(db, **values)
    if row is None:
        raise refused()
    return row


def _admit_key(resolved: ResolvedCredential, now: datetime, org_id: str | None) -> Admission:
    key, org = resolved.caller.key, resolved.org
    assert key is not None
    if key.revoked_at is not None or (key.expires_at is not None and key.expires_at <= now):
        raise refused()
    if key.suspended_at is not None:
        raise Forbidden(
            "this API key is suspended; a member with api-keys:write can unsuspend it",
            code="key_suspended",
        )
    return Admission(resolved.caller, org if org_id == key.org_id else None, now, resolved)


def _admit_session(resolved: ResolvedCredential, now: datetime, mfa_ttl: timedelta) -> Admission:
    session = resolved.caller.session
    assert session is not None
    if not session.is_live(now):
        raise refused()
    mfa = session.mfa_at is not None and session.mfa_at + mfa_ttl > now
    caller = replace(resolved.caller, mfa=True) if mfa else resolved.caller
    if resolved.org is None or caller.role is not None:
        return Admission(caller, resolved.org, now, resolved)
    return _admit_support(resolved, caller, now)


def _admit_support(resolved: ResolvedCredential, caller: Caller, now: datetime) -> Admission:
    """By the support grants that are in force; without one, there is no such organization."""
    granted = [grant for one in resolved.support if one.expires_at > now for grant in one.grants]
    if not granted:
        return Admission(caller, None, now, resolved)
    ids = tuple(dict.fromkeys(grant.name for grant in granted))
    support = replace(caller, role=SUPPORT, rights=combined(granted), support_grants=ids)
    return Admission(support, resolved.org, now, resolved)
