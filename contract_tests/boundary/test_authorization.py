"""Which of a caller's means falls short is told, and what would be enough."""

from datetime import UTC, datetime
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
    user = SimpleNamespace(totp_confirmed_at=ENROLLED_AT if enrolled else None)
    rights = Rights(frozenset(held), {"team_1": frozenset(in_team)})
    told = {"kind": kind, "role": role, "rights": rights, "mfa": mfa, "user": user}
    return cast("Caller", SimpleNamespace(**told, support_grants=support_grants))


def org(*, require_mfa: bool) -> Organization:
    return cast("Organization", SimpleNamespace(require_mfa=require_mfa))


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
        authorize(asked, who, org(require_mfa=False))
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
    authorize(asked, who, org(require_mfa=False))
    authorize(asked, who, None)


def test_an_organization_may_ask_everybody_for_the_second_factor() -> None:
    for assurance in ("step_up", "second_factor"):
        with pytest.raises(Forbidden) as refused:
            authorize(rule(assurance=assurance), caller(), org(require_mfa=True))
        assert refused.value.code == "mfa_required"
        authorize(rule(assurance=assurance), caller(mfa=True), org(require_mfa=True))
    authorize(rule(), caller(), org(require_mfa=True))
    authorize(rule(assurance="step_up"), caller("api_key"), org(require_mfa=True))


def test_support_comes_in_by_a_second_factor_only() -> None:
    with pytest.raises(Forbidden) as refused:
        authorize(rule(), caller(support_grants=("sg_1",)), org(require_mfa=False))
    assert refused.value.code == "mfa_required"
    authorize(rule(), caller(support_grants=("sg_1",), mfa=True), org(require_mfa=False))


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
