"""What a caller may do, and with whose records: in the whole organization, or in teams of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from control.policy import permissions

Permissions = frozenset[str]


class OfTeam(Protocol):
    """A record that belongs to a team."""

    @property
    def team_id(self) -> str: ...


@dataclass(frozen=True)
class Rights:
    """`everywhere` is held for the organization and all that it has, `in_teams` by teams' ids.

    In teams there are no permissions but those of `permissions.TEAM`.
    """

    everywhere: Permissions = frozenset()
    in_teams: Mapping[str, Permissions] = field(default_factory=dict)

    @property
    def anywhere(self) -> Permissions:
        """What is held for one record at least, should there be one."""
        return self.everywhere.union(*self.in_teams.values())

    def has(self, permission: str, subject: OfTeam | None = None) -> bool:
        """For this record; without one, for the organization and all of its records."""
        if permission in self.everywhere:
            return True
        return subject is not None and self.has_in(permission, subject.team_id)

    def has_in(self, permission: str, team_id: str) -> bool:
        """For the records of this team."""
        return permission in self.everywhere or permission in self.in_teams.get(team_id, ())

    def held_in(self, team_id: str) -> Permissions:
        """All that is held for the records of this team."""
        return self.everywhere | self.in_teams.get(team_id, frozenset())

    def where(self, permission: str) -> frozenset[str] | None:
        """The teams for whose records it is held; None: all there are."""
        if permission in self.everywhere:
            return None
        return frozenset(team for team, held in self.in_teams.items() if permission in held)

    def cut(self, to: Permissions) -> "Rights":
        """What is left where nothing but these permissions is granted."""
        return Rights(
            self.everywhere & to, {team: held & to for team, held in self.in_teams.items()}
        )


NOTHING = Rights()
_EVERYONE: Final = "everyone"
"""Stands for its id, which no rule depends on."""


def of_member(
    role: str, team_roles: Mapping[str, str], *, everyone: str, teams_only: bool
) -> Rights:
    """Of a role in the organization, and roles in teams by the teams' ids.

    `everyone` is the id of the team Everyone, in which are all but those with `teams_only`.
    """
    held = permissions.of_role(role)
    if role in permissions.EVERY_TEAM:
        everywhere, in_teams = held, {}
    else:
        everywhere = held - permissions.TEAM
        in_teams = {} if teams_only else {everyone: held & permissions.TEAM}
    for team_id, team_role in team_roles.items():
        # A role given for Everyone counts where it is the only one that holds there.
        in_teams.setdefault(team_id, permissions.of_team_role(team_role))
    return Rights(everywhere, in_teams)


def in_everyone(role: str, team_role: str | None, *, teams_only: bool) -> Permissions:
    """What somebody holds for the records of Everyone, with a role given there or without."""
    given = {} if team_role is None else {_EVERYONE: team_role}
    held = of_member(role, given, everyone=_EVERYONE, teams_only=teams_only)
    return held.cut(permissions.TEAM).held_in(_EVERYONE)
