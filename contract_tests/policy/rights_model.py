"""The slow and obvious model of who may do what, one permission and one record at a time."""

from dataclasses import dataclass

from hypothesis import strategies as st

from control.policy import rights
from control.policy.permissions import (
    ALL,
    EVERY_TEAM,
    PROJECT_ROLES,
    ROLES,
    TEAM,
    TEAM_ROLES,
    role_sets,
)
from control.policy.rights import Assigned, HeldRoles
from storage.access.scopes import RecordPlace

EVERYONE, BLUE, RED = "team_everyone", "team_blue", "team_red"
TEAMS = [EVERYONE, BLUE, RED]
PROJECTS = ["proj_1", "proj_2"]
PLACES = [
    *(RecordPlace(team) for team in TEAMS),
    *(RecordPlace(team, project) for team in TEAMS for project in PROJECTS),
    *(RecordPlace(team, "proj_1", f"inst_{team}") for team in TEAMS),
    # In a team that nobody has a role in: a project keeps what is held for it, wherever it moves.
    *(RecordPlace("team_green", project) for project in PROJECTS),
]

permission_sets = st.frozensets(st.sampled_from(sorted(ALL)), max_size=8)
cuts = st.frozensets(st.sampled_from(sorted(ALL)))
places = st.sampled_from(PLACES)
assignments = st.builds(
    Assigned,
    st.sampled_from(["role_1", "role_2"]),
    st.sampled_from([None, *TEAMS]),
    permission_sets | st.just(["no:such"]),
)
held_roles = st.builds(
    HeldRoles,
    st.sampled_from([*sorted(ROLES), "emperor"]),
    st.booleans(),
    st.dictionaries(st.sampled_from(TEAMS), st.sampled_from([*TEAM_ROLES, "lord"])),
    st.lists(assignments, max_size=3).map(tuple),
    st.dictionaries(st.sampled_from(PROJECTS), st.sampled_from([*PROJECT_ROLES, "lord"])),
)
changed_roles = st.dictionaries(
    st.sampled_from([f"org:{role}" for role in ROLES] + [f"team:{role}" for role in TEAM_ROLES]),
    permission_sets.map(sorted),
    max_size=3,
)


@dataclass(frozen=True)
class World:
    """Somebody of an organization that has changed what some predefined roles hold."""

    held: HeldRoles
    changed: dict[str, list[str]]


worlds = st.builds(World, held_roles, changed_roles)


def may(world: World, permission: str, place: RecordPlace | None) -> bool:
    """Sentence by sentence, as the guide has it (docs/permissions.md)."""
    rules = (_by_role_everywhere, _by_role_in_everyone, _by_custom_role, _by_team_role)
    return any(rule(world, permission, place) for rule in (*rules, _by_project_role))


def _by_role_everywhere(world: World, permission: str, _place: RecordPlace | None) -> bool:
    """For the organization, and by some roles for what every team has."""
    reaches = permission not in TEAM or world.held.role in EVERY_TEAM
    return reaches and permission in _of_org_role(world)


def _is_in_everyone_by_role(world: World) -> bool:
    return world.held.role not in EVERY_TEAM and not world.held.teams_only


def _by_role_in_everyone(world: World, permission: str, place: RecordPlace | None) -> bool:
    there = place is not None and place.team_id == EVERYONE
    return there and _is_in_everyone_by_role(world) and permission in _of_org_role(world)


def _by_custom_role(world: World, permission: str, place: RecordPlace | None) -> bool:
    for given in world.held.assigned:
        if permission in ALL and permission in given.permissions:
            if given.team_id is None:
                return True
            if place is not None and place.team_id == given.team_id and permission in TEAM:
                return True
    return False


def _by_team_role(world: World, permission: str, place: RecordPlace | None) -> bool:
    """In Everyone it counts for those who are not in it by their role in the organization."""
    if place is None or (place.team_id == EVERYONE and _is_in_everyone_by_role(world)):
        return False
    role = world.held.team_roles.get(place.team_id)
    changed = world.changed.get(f"team:{role}")
    held = TEAM_ROLES.get(role or "", frozenset()) if changed is None else frozenset(changed)
    return permission in held and permission in TEAM


def _by_project_role(world: World, permission: str, place: RecordPlace | None) -> bool:
    if place is None or place.project_id is None:
        return False
    role = world.held.project_roles.get(place.project_id, "")
    return permission in PROJECT_ROLES.get(role, frozenset())


def _of_org_role(world: World) -> frozenset[str]:
    role = world.held.role
    changed = world.changed.get(f"org:{role}")
    if changed is None or role == "owner":
        return ROLES.get(role, frozenset())
    return frozenset(changed)


def check(world: World) -> None:
    """That the rights of this world are those of the model, for every permission and place."""
    sets = role_sets(world.changed)
    held = rights.of_member(world.held, sets, everyone=EVERYONE)
    for permission in ALL:
        for place in (None, *PLACES):
            expected = may(world, permission, place)
            assert held.has(permission, place) == expected, (permission, place)
