"""Rights: held in the whole organization, or in teams, projects and instances of it."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract_tests.policy import rights_model as model
from contract_tests.policy.rights_model import (
    BLUE,
    EVERYONE,
    PLACES,
    PROJECTS,
    RED,
    cuts,
    held_roles,
    places,
    worlds,
)
from control.policy import permissions, rights
from control.policy.permissions import ALL, DEFAULTS, EVERY_TEAM, ROLES, TEAM, TEAM_ROLES
from control.policy.rights import NOTHING, Assigned, HeldRoles, Rights, Where
from storage.access.scopes import RecordPlace

IN_EVERYONE, IN_BLUE, IN_RED = (RecordPlace(team) for team in (EVERYONE, BLUE, RED))


def member(role: str, team_roles: dict[str, str], *, teams_only: bool = False) -> Rights:
    held = HeldRoles(role, teams_only, team_roles)
    return rights.of_member(held, DEFAULTS, everyone=EVERYONE)


of_members = held_roles.map(lambda one: rights.of_member(one, DEFAULTS, everyone=EVERYONE))


@pytest.mark.parametrize("role", ROLES)
def test_a_member_in_no_team_has_what_the_role_holds_and_no_more(role: str) -> None:
    held = member(role, {})
    assert held.anywhere == ROLES[role]
    for permission in ROLES[role] & TEAM:
        in_one = Where(frozenset({EVERYONE}), frozenset(), frozenset())
        where = None if role in EVERY_TEAM else in_one
        assert held.where(permission) == where
        assert held.has(permission, IN_EVERYONE)
        assert held.has(permission, IN_BLUE) is held.has(permission) is (role in EVERY_TEAM)
    for permission in ROLES[role] - TEAM:
        assert held.has(permission)
        assert held.where(permission) is None


@pytest.mark.parametrize("role", ["developer", "member"])
@pytest.mark.parametrize("team_role", TEAM_ROLES)
def test_a_role_given_for_one_team_holds_there_alone(role: str, team_role: str) -> None:
    held = member(role, {BLUE: team_role}, teams_only=True)
    for permission in TEAM:
        there = permission in TEAM_ROLES[team_role]
        where = held.where(permission)
        assert where is not None
        assert where.teams == (frozenset({BLUE}) if there else frozenset())
        assert [held.has(permission, one) for one in PLACES[:3]] == [False, there, False]
    assert held.everywhere == ROLES[role] - TEAM


def test_the_role_in_the_organization_decides_in_everyone_for_who_is_in_it() -> None:
    held = member("member", {EVERYONE: "viewer"})
    assert held.has("instances:write", IN_EVERYONE)
    held = member("member", {EVERYONE: "viewer"}, teams_only=True)
    assert not held.has("instances:write", IN_EVERYONE)
    assert held.has("instances:read", IN_EVERYONE)


def in_everyone(role: str, team_role: str | None, *, teams_only: bool) -> frozenset[str]:
    return rights.in_everyone(role, team_role, DEFAULTS, teams_only=teams_only)


def test_what_a_role_given_for_everyone_adds_there() -> None:
    for role in ("developer", "member"):
        own = in_everyone(role, None, teams_only=False)
        assert own == ROLES[role] & TEAM
        assert in_everyone(role, "admin", teams_only=False) == own
        assert in_everyone(role, None, teams_only=True) == frozenset()
        for team_role, held in TEAM_ROLES.items():
            assert in_everyone(role, team_role, teams_only=True) == held
    for only in (True, False):
        own = in_everyone("auditor", None, teams_only=only)
        assert in_everyone("auditor", "viewer", teams_only=only) == own
        assert in_everyone("auditor", "operator", teams_only=only) > own
        assert in_everyone("owner", "viewer", teams_only=only) == TEAM


@settings(max_examples=1_000)
@given(world=worlds)
def test_rights_are_those_of_the_model(world: model.World) -> None:
    model.check(world)


@pytest.mark.nightly
@settings(max_examples=10_000, deadline=None)
@given(world=worlds)
def test_rights_are_those_of_the_model_in_ten_thousand_worlds(world: model.World) -> None:
    model.check(world)


@given(roles=held_roles, place=places | st.none())
def test_each_right_has_a_grant_that_gives_it_there_and_no_grant_gives_more(
    roles: HeldRoles, place: RecordPlace | None
) -> None:
    grants = rights.grants_of(roles, DEFAULTS, EVERYONE)
    held = rights.combined(grants)
    given_there = [grant.permissions for grant in grants if grant.holds_at(place)]
    assert frozenset().union(*given_there) == {one for one in ALL if held.has(one, place)}


@given(roles=held_roles, less=st.data())
def test_whoever_loses_something_has_no_more_than_before(
    roles: HeldRoles, less: st.DataObject
) -> None:
    before = rights.of_member(roles, DEFAULTS, everyone=EVERYONE)
    kept = tuple(one for one in roles.assigned if less.draw(st.booleans()))
    projects = {k: v for k, v in roles.project_roles.items() if less.draw(st.booleans())}
    weaker = replace(roles, assigned=kept, project_roles=projects)
    after = rights.of_member(weaker, DEFAULTS, everyone=EVERYONE)
    assert after.beyond(before) == frozenset()


@given(given_=of_members, own=of_members)
def test_beyond_is_what_is_held_somewhere_and_not_by_the_other_there(
    given_: Rights, own: Rights
) -> None:
    # A project can belong to a team in which neither has anything.
    elsewhere = [RecordPlace("team_new", project) for project in PROJECTS]
    more = {
        one
        for one in ALL
        for place in (None, *PLACES, *elsewhere)
        if given_.has(one, place) and not own.has(one, place)
    }
    assert given_.beyond(own) == more
    assert own.beyond(own) == frozenset()
    assert given_.beyond(NOTHING) == given_.anywhere


@given(held=of_members, permission=st.sampled_from(sorted(ALL)))
def test_what_a_list_shows_is_what_is_held_for_each_of_it(held: Rights, permission: str) -> None:
    where = held.where(permission)
    for place in PLACES:
        shown = where is None or (
            place.team_id in where.teams
            or place.project_id in where.projects
            or place.instance_id in where.instances
        )
        assert held.has(permission, place) == shown
    found = held.has(permission) or any(held.has(permission, one) for one in PLACES)
    assert found == (permission in held.anywhere)


@given(held=of_members, to=cuts)
def test_a_cut_takes_away_what_and_not_where(held: Rights, to: frozenset[str]) -> None:
    cut = held.cut(to)
    for permission in ALL:
        for place in (None, *PLACES):
            kept = permission in to and held.has(permission, place)
            assert cut.has(permission, place) == kept


@given(held=of_members)
def test_nothing_but_the_permissions_of_teams_is_held_in_parts(held: Rights) -> None:
    for part in held.parts:
        assert frozenset().union(*part.values()) <= TEAM


def test_an_auditor_may_be_given_more_in_a_team() -> None:
    held = member("auditor", {BLUE: "operator"})
    assert held.where("instances:read") is None
    where = held.where("instances:write")
    assert where is not None
    assert where.teams == frozenset({BLUE})


def test_a_custom_role_in_a_team_holds_nothing_of_the_organization() -> None:
    given_ = Assigned("role_1", BLUE, ["org:close", "instances:erase", "logs:read", "no:such"])
    held = rights.of_member(HeldRoles("member", True, {}, (given_,)), DEFAULTS, everyone=EVERYONE)
    assert held.held_at(IN_BLUE) == held.everywhere | {"logs:read"}
    assert held.everywhere == ROLES["member"] - TEAM
    everywhere = rights.of_member(
        HeldRoles("member", True, {}, (given_._replace(team_id=None),)),
        DEFAULTS,
        everyone=EVERYONE,
    )
    assert everywhere.has("org:close")
    assert everywhere.has("logs:read", IN_RED)
    assert "no:such" not in everywhere.anywhere


def test_nothing_is_nothing() -> None:
    assert NOTHING.anywhere == frozenset()
    assert permissions.DEFAULTS.of_team_role("lord") == frozenset()
