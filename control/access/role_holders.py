"""What people and programs may do in an organization, from its records."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from sqlalchemy.orm import Session

from control.policy import permissions, rights
from control.policy.permissions import RoleSets, role_sets
from control.policy.rights import Assigned, GroupRoles, HeldRoles, Rights, RoleGrant
from storage.access import teams, users
from storage.access.api_keys import ApiKey
from storage.roles import held_roles, support_grants

COLUMNS: Final = len(held_roles.COLUMNS)


class RoleHolder(NamedTuple):
    """The roles of a member, and what roles hold in the organization."""

    held: HeldRoles
    sets: RoleSets
    everyone: str

    @property
    def rights(self) -> Rights:
        return rights.of_member(self.held, self.sets, everyone=self.everyone)

    def left_to(self, key: ApiKey) -> Rights:
        """What a key has of its owner's rights, cut by its role and its scopes.

        One of a service account with the role of the account inherits all that the account has,
        by whichever roles; its scopes alone cut that.
        """
        inherits = key.service_account_id is not None and key.role == self.held.role
        if not inherits:
            return self.rights.cut(self.sets.granted(key.role, key.scopes))
        return self.rights if key.scopes is None else self.rights.cut(frozenset(key.scopes))

    @property
    def grants(self) -> list[RoleGrant]:
        return rights.grants_of(self.held, self.sets, self.everyone)


def of_row(row: Sequence[Any], changed: Mapping[str, list[str]] | None, org_id: str) -> RoleHolder:
    """Of what `storage.roles.held_roles.COLUMNS` has, and the role sets of the organization."""
    role, teams_only, team_roles, assigned, project_roles, groups = row
    given = tuple(Assigned(*each) for each in (assigned or {}).values())
    by_group = tuple(GroupRoles(group_id, *each) for group_id, each in (groups or {}).items())
    held = HeldRoles(role, bool(teams_only), team_roles or {}, given, project_roles or {}, by_group)
    return RoleHolder(held, role_sets(changed), teams.everyone_of(org_id))


def of_member(db: Session, org_id: str, user_id: str) -> RoleHolder | None:
    """None for somebody who is no member."""
    found = held_roles.find(db, org_id, user_id)
    return None if found is None else of_row(found[:COLUMNS], found[COLUMNS], org_id)


def of_role(role: str, org_id: str, sets: RoleSets) -> Rights:
    """What the role alone comes to for a new member."""
    return RoleHolder(HeldRoles(role), sets, teams.everyone_of(org_id)).rights


class SupportRight(NamedTuple):
    """What one support grant lets support do, until it expires."""

    grants: list[RoleGrant]
    expires_at: datetime


def support_right(
    grant_id: str, held: list[str], instance_ids: list[str] | None, expires_at: datetime
) -> SupportRight:
    """Of nothing but what may be granted to support, whatever the record says."""
    allowed = permissions.SUPPORT & frozenset(held)
    if instance_ids is None:
        return SupportRight([RoleGrant("support_grant", grant_id, allowed)], expires_at)
    of_instance = allowed & permissions.TEAM
    grants = [
        RoleGrant("support_grant", grant_id, of_instance, instance_id=instance_id)
        for instance_id in instance_ids
    ]
    # Nothing of the organization but that it is there, without which nobody finds an instance.
    grants.append(RoleGrant("support_grant", grant_id, allowed & {"org:read"}))
    return SupportRight(grants, expires_at)


def of_support(db: Session, org_id: str, user_id: str, at: datetime) -> list[RoleGrant]:
    """What support grants of the organization give the user now; nothing if not of support."""
    user = users.of_ids(db, [user_id]).get(user_id)
    if user is None or not user.is_support:
        return []
    return [
        grant
        for one in support_grants.active(db, org_id, at)
        for grant in support_right(one.id, one.permissions, one.instance_ids, one.expires_at).grants
    ]
