"""Rights: held in the whole organization, or in teams of it."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.policy import permissions, rights
from control.policy.permissions import ALL, EVERY_TEAM, ROLES, TEAM, TEAM_ROLES
from control.policy.rights import NOTHING, Rights

EVERYONE, BLUE, RED = "team_everyone", "team_blue", "team_red"


@dataclass(frozen=True)
class Thing:
    """A record of a team."""

    team_id: str


THINGS = [Thing(team_id) for team_id in (EVERYONE, BLUE, RED)]
granted = st.sets(st.sampled_from(sorted(ALL))).map(frozenset)


def member(role: str, team_roles: dict[str, str], *, teams_only: bool = False) -> Rights:
    return rights.of_member(role, team_roles, everyone=EVERYONE, teams_only=teams_only)


of_members = st.builds(
    member,
    st.sampled_from([*sorted(ROLES), "emperor"]),
    st.dictionaries(st.sampled_from([EVERYONE, BLUE, RED]), st.sampled_from([*TEAM_ROLES, "lord"])),
    teams_only=st.booleans(),
)


@pytest.mark.parametrize("role", ROLES)
def test_a_member_in_no_team_has_what_the_role_holds_and_no_more(role: str) -> None:
    held = member(role, {})
    assert held.anywhere == ROLES[role]
    for permission in ROLES[role] & TEAM:
        assert held.where(permission) == (None if role in EVERY_TEAM else frozenset({EVERYONE}))
        assert held.has(permission, Thing(EVERYONE))
        assert held.has(permission, Thing(BLUE)) is held.has(permission) is (role in EVERY_TEAM)
    for permission in ROLES[role] - TEAM:
        assert held.has(permission)
        assert held.where(permission) is None


@pytest.mark.parametrize("role", ["developer", "member"])
@pytest.mark.parametrize("team_role", TEAM_ROLES)
def test_a_role_given_for_one_team_holds_there_alone(role: str, team_role: str) -> None:
    held = member(role, {BLUE: team_role}, teams_only=True)
    for permission in TEAM:
        there = permission in TEAM_ROLES[team_role]
        assert held.where(permission) == (frozenset({BLUE}) if there else frozenset())
        assert [held.has(permission, one) for one in THINGS] == [False, there, False]
    assert held.everywhere == ROLES[role] - TEAM


def test_the_role_in_the_organization_decides_in_everyone_for_who_is_in_it() -> None:
    held = member("member", {EVERYONE: "viewer"})
    assert held.has("instances:write", Thing(EVERYONE))
    held = member("member", {EVERYONE: "viewer"}, teams_only=True)
    assert not held.has("instances:write", Thing(EVERYONE))
    assert held.has("instances:read", Thing(EVERYONE))


def test_what_a_role_given_for_everyone_adds_there() -> None:
    for role in ("developer", "member"):
        own = rights.in_everyone(role, None, teams_only=False)
        assert own == ROLES[role] & TEAM
        assert rights.in_everyone(role, "admin", teams_only=False) == own
        assert rights.in_everyone(role, None, teams_only=True) == frozenset()
        for team_role, held in TEAM_ROLES.items():
            assert rights.in_everyone(role, team_role, teams_only=True) == held
    for only in (True, False):
        own = rights.in_everyone("auditor", None, teams_only=only)
        assert rights.in_everyone("auditor", "viewer", teams_only=only) == own
        assert rights.in_everyone("auditor", "operator", teams_only=only) > own
        assert rights.in_everyone("owner", "viewer", teams_only=only) == TEAM


@given(held=of_members)
def test_all_that_is_held_in_a_team_is_what_it_has_there(held: Rights) -> None:
    for team_id in (EVERYONE, BLUE, RED):
        assert held.held_in(team_id) == {one for one in ALL if held.has_in(one, team_id)}


def test_an_auditor_may_be_given_more_in_a_team() -> None:
    held = member("auditor", {BLUE: "operator"})
    assert held.where("instances:read") is None
    assert held.where("instances:write") == frozenset({BLUE})


@given(held=of_members, permission=st.sampled_from(sorted(ALL)))
def test_what_a_list_shows_is_what_is_held_for_each_of_it(held: Rights, permission: str) -> None:
    teams = held.where(permission)
    for thing in THINGS:
        assert held.has(permission, thing) == (teams is None or thing.team_id in teams)
        assert held.has(permission, thing) == held.has_in(permission, thing.team_id)
    found = held.has(permission) or any(held.has(permission, one) for one in THINGS)
    assert found == (permission in held.anywhere)


@given(held=of_members, to=granted)
def test_a_cut_takes_away_what_and_not_where(held: Rights, to: frozenset[str]) -> None:
    cut = held.cut(to)
    for permission in ALL:
        for subject in (None, *THINGS):
            kept = permission in to and held.has(permission, subject)
            assert cut.has(permission, subject) == kept


@given(held=of_members)
def test_nothing_but_the_permissions_of_teams_is_held_in_teams(held: Rights) -> None:
    assert frozenset().union(*held.in_teams.values()) <= TEAM


def test_nothing_is_nothing() -> None:
    assert NOTHING.anywhere == frozenset()
    assert permissions.of_team_role("lord") == frozenset()
