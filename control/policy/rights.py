"""What a caller may do, and with whose records: everywhere in an organization, or in parts of it.

The roles that somebody holds come to grants, each with what gives it, and grants come to `Rights`.
Both steps are pure: who may do what, and why, follows from nothing else.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from control.policy import permissions
from control.policy.permissions import RoleSets

Permissions = frozenset[str]
OWNER: Final = "owner"


class Located(Protocol):
    """Where a record belongs; None is for what it is no part of."""

    @property
    def team_id(self) -> str: ...
    @property
    def project_id(self) -> str | None: ...
    @property
    def instance_id(self) -> str | None: ...


class Where(NamedTuple):
    """Teams, projects and instances, by their ids."""

    teams: frozenset[str]
    projects: frozenset[str]
    instances: frozenset[str]


Part = Mapping[str, Permissions]
"""What is held for each of these teams, projects or instances."""


@dataclass(frozen=True)
class Rights:
    """`everywhere` is held for the organization and all that it has, the others by ids.

    In parts of it there are no permissions but those of `permissions.TEAM`.
    """

    everywhere: Permissions = frozenset()
    in_teams: Part = field(default_factory=dict)
    in_projects: Part = field(default_factory=dict)
    in_instances: Part = field(default_factory=dict)

    @property
    def parts(self) -> tuple[Part, Part, Part]:
        return self.in_teams, self.in_projects, self.in_instances

    @property
    def anywhere(self) -> Permissions:
        """What is held for one record at least, should there be one."""
        return self.everywhere.union(*(held for part in self.parts for held in part.values()))

    def has(self, permission: str, place: Located | None = None) -> bool:
        """For a record there; without a place, for the organization and all of its records."""
        if permission in self.everywhere:
            return True
        return place is not None and permission in self.held_at(place)

    def held_at(self, place: Located) -> Permissions:
        """All that is held for a record there."""
        ids = place.team_id, place.project_id, place.instance_id
        held = (
            part.get(one, frozenset()) for part, one in zip(self.parts, ids, strict=True) if one
        )
        return self.everywhere.union(*held)

    def where(self, permission: str) -> Where | None:
        """The parts for whose records it is held; None: all there are."""
        if permission in self.everywhere:
            return None
        return Where(
            *(
                frozenset(one for one, held in part.items() if permission in held)
                for part in self.parts
            )
        )

    def cut(self, to: Permissions) -> "Rights":
        """What is left where nothing but these permissions is granted."""
        parts = ({one: held & to for one, held in part.items()} for part in self.parts)
        return Rights(self.everywhere & to, *parts)

    def beyond(self, own: "Rights") -> Permissions:
        """What these have anywhere that `own` has not there: nobody gives it who is without it."""
        more = self.everywhere - own.everywhere
        for part, others in zip(self.parts, own.parts, strict=True):
            for one, held in part.items():
                more |= held - own.everywhere - others.get(one, frozenset())
        return more


NOTHING = Rights()


class Assigned(NamedTuple):
    """A role that the organization made, as it is given to somebody; None: in all of it."""

    role_id: str
    team_id: str | None
    permissions: Iterable[str]


class GroupRoles(NamedTuple):
    """What a group of an identity provider gives to whoever is in it; None: nothing there."""

    group_id: str
    org_role: str | None = None
    team_id: str | None = None
    team_role: str | None = None


@dataclass(frozen=True)
class HeldRoles:
    """What the records of an organization say of somebody who belongs to it."""

    role: str
    teams_only: bool = False
    """Taken out of the team Everyone."""
    team_roles: Mapping[str, str] = field(default_factory=dict)
    assigned: tuple[Assigned, ...] = ()
    project_roles: Mapping[str, str] = field(default_factory=dict)
    by_group: tuple[GroupRoles, ...] = ()


@dataclass(frozen=True)
class RoleGrant:
    """Permissions with what gives them; those of no team, project or instance hold everywhere."""

    source: str
    """`org_role`, `team_role`, `project_role`, `custom_role`, `scim_group` or `support_grant`."""
    name: str
    """Of the role, or the id of what the organization made, or of the group."""
    permissions: Permissions
    team_id: str | None = None
    project_id: str | None = None
    instance_id: str | None = None

    def holds_at(self, place: Located | None) -> bool:
        """Whether it gives anything for a record there, or without a place everywhere."""
        own = self.team_id, self.project_id, self.instance_id
        if own == (None, None, None):
            return True
        if place is None:
            return False
        there = place.team_id, place.project_id, place.instance_id
        return all(one is None or one == at for one, at in zip(own, there, strict=True))


def grants_of(roles: HeldRoles, sets: RoleSets, everyone: str) -> list[RoleGrant]:
    """All that somebody is given; `everyone` is the id of the team Everyone."""
    by_role = _in_org("org_role", roles.role, roles, sets, everyone)
    in_teams = [
        RoleGrant("team_role", role, sets.of_team_role(role), team_id)
        for team_id, role in roles.team_roles.items()
        # A role given for Everyone counts where it is the only one that holds there.
        if by_role[-1].team_id != team_id
    ]
    in_projects = [
        RoleGrant("project_role", role, permissions.of_project_role(role), project_id=project_id)
        for project_id, role in roles.project_roles.items()
    ]
    assigned = [_assigned(each) for each in roles.assigned]
    by_group = [
        each for group in roles.by_group for each in grants_of_group(group, roles, sets, everyone)
    ]
    return [*by_role, *in_teams, *in_projects, *assigned, *by_group]


def _in_org(
    source: str, role: str, roles: HeldRoles, sets: RoleSets, everyone: str, name: str | None = None
) -> list[RoleGrant]:
    """What a role in the organization gives; `name` says what gives it, if not the role."""
    held, name = sets.of_role(role), name or role
    if role in permissions.EVERY_TEAM:
        return [RoleGrant(source, name, held)]
    of_org = RoleGrant(source, name, held - permissions.TEAM)
    if roles.teams_only:
        return [of_org]
    return [of_org, RoleGrant(source, name, held & permissions.TEAM, everyone)]


def grants_of_group(
    group: GroupRoles, roles: HeldRoles, sets: RoleSets, everyone: str
) -> list[RoleGrant]:
    """What the group gives to whoever holds these roles; never what owners alone have."""
    found: list[RoleGrant] = []
    if group.org_role is not None and group.org_role != OWNER:
        found += _in_org("scim_group", group.org_role, roles, sets, everyone, group.group_id)
    if group.team_id is not None and group.team_role is not None:
        in_team = sets.of_team_role(group.team_role)
        found.append(RoleGrant("scim_group", group.group_id, in_team, group.team_id))
    return found


def _assigned(given: Assigned) -> RoleGrant:
    # A permission that there is no more, or that is of no team, must not be granted in one.
    known = permissions.ALL if given.team_id is None else permissions.TEAM
    return RoleGrant(
        "custom_role", given.role_id, known & frozenset(given.permissions), given.team_id
    )


def combined(grants: Iterable[RoleGrant]) -> Rights:
    """What all of them come to together."""
    everywhere: Permissions = frozenset()
    parts: tuple[defaultdict[str, Permissions], ...] = tuple(
        defaultdict[str, Permissions](frozenset) for _ in range(3)
    )
    for grant in grants:
        ids = grant.team_id, grant.project_id, grant.instance_id
        narrowest = next((place for place in (2, 1, 0) if ids[place] is not None), None)
        if narrowest is None:
            everywhere |= grant.permissions
        else:
            parts[narrowest][ids[narrowest] or ""] |= grant.permissions
    return Rights(everywhere, *(dict(part) for part in parts))


def of_member(roles: HeldRoles, sets: RoleSets, *, everyone: str) -> Rights:
    return combined(grants_of(roles, sets, everyone))


_EVERYONE: Final = "everyone"
"""Stands for its id, which no rule depends on."""


class _InEveryone(NamedTuple):
    team_id: str = _EVERYONE
    project_id: None = None
    instance_id: None = None


def in_everyone(
    role: str, team_role: str | None, sets: RoleSets, *, teams_only: bool
) -> Permissions:
    """What somebody holds for the records of Everyone, with a role given there or without."""
    given = {} if team_role is None else {_EVERYONE: team_role}
    held = of_member(HeldRoles(role, teams_only, given), sets, everyone=_EVERYONE)
    return held.cut(permissions.TEAM).held_at(_InEveryone())
