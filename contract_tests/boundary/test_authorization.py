"""Which of a caller's means falls short is told, and what would be enough."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from control.boundary.authorization import authorize, authorize_for
from control.boundary.callers import NOT_FOUND, Caller
from control.boundary.rules import Rule
from control.policy.rights import Rights
from specserver import Forbidden, NotFound
from storage.access.organizations import Organization
from storage.access.scopes import RecordPlace

ENROLLED_AT = datetime(2026, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 6, 1, tzinfo=UTC)
EITHER = frozenset({"api_key", "session"})
MFA = (
    "mfa_required",
    "this needs a user session with a second factor verified in the last 15 minutes",
)


def rule(**values: Any) -> Rule:
    chosen = {
        "permission": "org:write",
        "session_only": False,
        "assurance": "none",
        "owner_only": False,
        "accepts": EITHER,
        "is_sso_refused": False,
    }
    return cast("Rule", SimpleNamespace(**(chosen | values)))


def caller(
    kind: str = "session",
    *,
    role: str | None = "member",
    held: tuple[str, ...] = ("org:write",),
    in_team: tuple[str, ...] = (),
    mfa: bool = False,
    enrolled: bool = False,
    support_grants: tuple[str, ...] = (),
) -> Caller:
    user = SimpleNamespace(has_second_factor=enrolled, email="ada@example.com")
    rights = Rights(frozenset(held), {"team_1": frozenset(in_team)})
    proof = SimpleNamespace(created_at=NOW, sso_org_id=None, is_break_glass=False)
    key, session = (proof, None) if kind == "api_key" else (None, proof)
    proofs = {"key": key, "session": session, "support_grants": support_grants}
    values = {
        "kind": kind,
        "role": role,
        "rights": rights,
        "mfa": mfa,
        "user": user,
        "held_to": None,
    }
    return cast("Caller", SimpleNamespace(**values, **proofs))


def org(**asked: Any) -> Organization:
    nothing = {"require_mfa": False, "session_max_age_s": None, "api_key_max_age_s": None}
    nothing["sso_enforced_domains"] = None
    return cast("Organization", SimpleNamespace(**{**nothing, **asked}))


@pytest.mark.parametrize(
    ("asked", "who", "code", "detail"),
    [
        (
            rule(session_only=True),
            caller("api_key"),
            "session_required",
            "this needs a user session, not an API key",
        ),
        (
            rule(accepts={"session"}),
            caller("api_key"),
            "session_required",
            "this needs a user session, not an API key",
        ),
        (
            rule(accepts={"api_key"}),
            caller(),
            "api_key_required",
            "this needs an API key, not a user session",
        ),
        (
            rule(permission="org:close"),
            caller(),
            "permission_missing",
            (
                "this needs the permission org:close, which your role member or the key's scopes"
                " do not grant"
            ),
        ),
        (
            rule(permission="org:close"),
            caller(role=None),
            "permission_missing",
            "this needs the permission org:close",
        ),
        (
            rule(owner_only=True),
            caller(role="admin"),
            "owner_required",
            "this needs an owner of the organization",
        ),
        (rule(assurance="mfa"), caller(), *MFA),
        (rule(assurance="mfa"), caller("api_key"), *MFA),
        (rule(assurance="step_up"), caller(enrolled=True), *MFA),
        (rule(assurance="second_factor"), caller(enrolled=True), *MFA),
    ],
)
def test_what_falls_short_is_told(asked: Rule, who: Caller, code: str, detail: str) -> None:
    with pytest.raises(Forbidden) as refused:
        authorize(asked, who, org(require_mfa=False), NOW)
    assert (refused.value.code, refused.value.detail) == (code, detail)


@pytest.mark.parametrize(
    ("asked", "who"),
    [
        (rule(), caller()),
        (rule(), caller("api_key")),
        (rule(session_only=True), caller()),
        (rule(permission="none"), caller(held=())),
        (rule(permission="self"), caller(held=())),
        (rule(permission="logs:read"), caller(held=(), in_team=("logs:read",))),
        (rule(owner_only=True), caller(role="owner")),
        (rule(assurance="mfa"), caller(mfa=True)),
        (rule(assurance="step_up"), caller("api_key", enrolled=True)),
        (rule(assurance="step_up"), caller()),
        (rule(assurance="second_factor"), caller()),
        (rule(assurance="second_factor"), caller("api_key", enrolled=True)),
        (rule(), caller(enrolled=True)),
    ],
)
def test_who_may(asked: Rule, who: Caller) -> None:
    authorize(asked, who, org(require_mfa=False), NOW)
    authorize(asked, who, None, NOW)


def test_an_organization_may_ask_everybody_for_the_second_factor() -> None:
    for assurance in ("step_up", "second_factor"):
        with pytest.raises(Forbidden) as refused:
            authorize(rule(assurance=assurance), caller(), org(require_mfa=True), NOW)
        assert refused.value.code == "mfa_required"
        authorize(rule(assurance=assurance), caller(mfa=True), org(require_mfa=True), NOW)
    authorize(rule(), caller(), org(require_mfa=True), NOW)
    authorize(rule(assurance="step_up"), caller("api_key"), org(require_mfa=True), NOW)


@pytest.mark.parametrize(
    ("kind", "limit", "code", "detail"),
    [
        (
            "session",
            "session_max_age_s",
            "session_too_old",
            "sessions act in this organization for 3600 s; sign in again",
        ),
        (
            "api_key",
            "api_key_max_age_s",
            "api_key_too_old",
            "API keys act in this organization for 3600 s; create another",
        ),
    ],
)
def test_an_organization_may_ask_for_a_new_session_or_key(
    kind: str, limit: str, code: str, detail: str
) -> None:
    """Before all else: whoever lacks a permission besides is told of it after signing in again."""
    asked, who = org(**{limit: 3600}), caller(kind)
    authorize(rule(), who, asked, NOW + timedelta(seconds=3599))
    for wanted in (rule(), rule(permission="org:close"), rule(assurance="mfa")):
        with pytest.raises(Forbidden) as refused:
            authorize(wanted, who, asked, NOW + timedelta(seconds=3600))
        assert (refused.value.code, refused.value.detail) == (code, detail)
    # What is asked of the one is not of the other, nor where the path names no organization.
    other = caller("api_key" if kind == "session" else "session")
    authorize(rule(), other, asked, NOW + timedelta(days=365))
    authorize(rule(), who, None, NOW + timedelta(days=365))


def test_support_comes_in_by_a_second_factor_only() -> None:
    with pytest.raises(Forbidden) as refused:
        authorize(rule(), caller(support_grants=("sg_1",)), org(), NOW)
    assert refused.value.code == "mfa_required"
    authorize(rule(), caller(support_grants=("sg_1",), mfa=True), org(), NOW)


def test_a_record_of_a_team_is_not_there_for_those_who_may_not_see_it() -> None:
    mine, other = RecordPlace("team_1"), RecordPlace("team_2")
    who = caller(held=(), in_team=("instances:read", "instances:write"))
    authorize_for("instances:write", who, mine, "instances:read")
    authorize_for("none", who, other, "instances:read")
    authorize_for("self", who, other, "instances:read")
    with pytest.raises(NotFound) as hidden:
        authorize_for("instances:write", who, other, "instances:read")
    assert hidden.value.detail == NOT_FOUND
    with pytest.raises(Forbidden) as refused:
        authorize_for("instances:delete", who, mine, "instances:read")
    assert refused.value.code == "permission_missing"
    assert refused.value.members == {"permission": "instances:delete"}
    assert refused.value.detail == (
        "this needs the permission instances:delete in the team that owns the record, which your"
        " roles in the organization and in that team, or the key's scopes, do not grant"
    )
