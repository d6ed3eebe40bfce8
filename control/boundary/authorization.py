"""May they: a caller against the rule of an operation, and against a record of its path."""

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Final

from control.boundary.callers import NOT_FOUND, Caller
from control.policy.org_policy import is_too_old
from control.policy.rights import Located
from control.sso import demands
from specserver import Forbidden, NotFound
from storage.access.organizations import Organization

if TYPE_CHECKING:  # a rule has the records of a path, which are authorized here
    from control.boundary.rules import Rule

UNGRANTED: Final = frozenset({"none", "self"})
"""What x-authorize says in place of a permission."""


def authorize(rule: "Rule", caller: Caller, org: Organization | None, now: datetime) -> None:
    """Raises Forbidden with a code that says which of the caller's means falls short."""
    if org is not None:
        _hold_to_policy(caller, org, now)
    if caller.kind == "api_key" and (rule.session_only or "api_key" not in rule.accepts):
        raise Forbidden("this needs a user session, not an API key", code="session_required")
    if caller.kind not in rule.accepts:
        raise Forbidden("this needs an API key, not a user session", code="api_key_required")
    if rule.is_sso_refused and caller.held_to is not None:
        raise sso_session()
    if rule.permission not in UNGRANTED and rule.permission not in caller.rights.anywhere:
        raise lacking(rule.permission, caller.role)
    if rule.owner_only and caller.role != "owner":
        raise Forbidden("this needs an owner of the organization", code="owner_required")
    if not caller.mfa and _needs_mfa(rule.assurance, caller, org):
        raise mfa_required()


def _hold_to_policy(caller: Caller, org: Organization, now: datetime) -> None:
    """What the organization asks of those who act in it holds from the next request on."""
    demands.refuse_barred(caller, org)
    session, key = caller.session, caller.key
    if session is not None and is_too_old(session.created_at, org.session_max_age_s, now):
        raise Forbidden(
            f"sessions act in this organization for {org.session_max_age_s} s; sign in again",
            code="session_too_old",
        )
    if key is not None and is_too_old(key.created_at, org.api_key_max_age_s, now):
        raise Forbidden(
            f"API keys act in this organization for {org.api_key_max_age_s} s; create another",
            code="api_key_too_old",
        )


def _needs_mfa(assurance: str, caller: Caller, org: Organization | None) -> bool:
    """Asked here and not by handlers, so that a replay is held to it as the first request was."""
    if caller.support_grants:
        return True
    if assurance == "none" or (assurance == "step_up" and caller.kind == "api_key"):
        return False
    enrolled = caller.kind == "session" and caller.user.has_second_factor
    return assurance == "mfa" or enrolled or (org is not None and org.require_mfa)


def authorize_for(permission: str, caller: Caller, place: Located | None, shown_by: str) -> None:
    """Raises NotFound for a record in a place whose records the caller may not see (None: all).

    And Forbidden for one that they may see (by the permission `shown_by`), and not this.
    """
    if permission in UNGRANTED or caller.rights.has(permission, place):
        return
    if caller.rights.has(shown_by, place):
        raise lacking_in_team(permission)
    raise NotFound(NOT_FOUND)


def lacking(permission: str, role: str | None) -> Forbidden:
    held = f", which your role {role} or the key's scopes do not grant" if role else ""
    return _missing(permission, held)


def lacking_in_team(permission: str) -> Forbidden:
    return _missing(
        permission,
        " in the team that owns the record, which your roles in the organization and in that team,"
        " or the key's scopes, do not grant",
    )


def lacking_for(permission: str, members: Iterable[str]) -> Forbidden:
    """For members of a body that ask for more than the operation does."""
    named = ", ".join(f"/{member}" for member in sorted(members))
    return _missing(
        permission,
        f" to set {named}, which your role in the organization or the key's scopes do not grant;"
        " leave out what needs it",
    )


def _missing(permission: str, why: str) -> Forbidden:
    return Forbidden(
        f"this needs the permission {permission}{why}",
        code="permission_missing",
        permission=permission,
    )


def sso_session() -> Forbidden:
    return Forbidden(
        "this session began by single sign-on, and acts in its organization only: sign in with your"
        " password or a passkey to change your account, or to reach other organizations",
        code="sso_session",
    )


def mfa_required() -> Forbidden:
    return Forbidden(
        "this needs a user session with a second factor verified in the last 15 minutes",
        code="mfa_required",
    )
