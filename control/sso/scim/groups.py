"""What it means that an identity provider pushes a group: who is in it from now on."""

from collections.abc import Collection
from collections.abc import Set as AbstractSet
from typing import Any, Final

from control.policy import quotas
from control.sso.scim.call import ScimCall
from specserver import Conflict, Forbidden, Invalid
from storage.sso import scim_groups, scim_users
from storage.sso.scim_groups import ScimGroup

MEMBERS_MAX: Final = 10_000
"""People in one group."""
_TOLD_MAX: Final = 50
"""Ids of people that one entry of the audit log names; of more, it tells how many."""


def create(
    call: ScimCall, display_name: str, external_id: str | None, members: Collection[str]
) -> ScimGroup:
    """A new one, or one that was named in a sign-in before and has not been pushed yet."""
    group = scim_groups.by_name(call.db, call.org.id, display_name)
    if group is not None and group.is_pushed:
        raise _taken()
    if group is None:
        for refused in quotas.check_one_more_group(scim_groups.count(call.db, call.org.id)):
            raise Forbidden(refused["message"], code="group_limit")
        group = scim_groups.create(
            call.db, call.org.id, display_name, external_id=external_id, is_pushed=True
        )
    else:
        group.rename(display_name)
        group.external_id, group.is_pushed = external_id, True
    added = sorted(set(members))
    _check_members(call, added, len(added))
    scim_groups.put_members(call.db, group, added)
    call.audit("scim_group.create", group.id, {"members_added": _some(added)})
    return group


def update(
    call: ScimCall,
    group: ScimGroup,
    display_name: str,
    external_id: str | None,
    members: AbstractSet[str] | None = None,
) -> None:
    """As the provider has it now; `members` None: who is in it stays."""
    if scim_users.folded(display_name) != group.name_key:
        other = scim_groups.by_name(call.db, call.org.id, display_name)
        if other is not None:
            raise _taken()
    before = group.display_name, group.external_id
    group.rename(display_name)
    group.external_id = external_id
    told: dict[str, Any] = {}
    if before != (group.display_name, group.external_id):
        told["renamed"] = True
    if members is not None:
        told |= _change_members(call, group, members)
    if not told:
        return
    call.audit("scim_group.update", group.id, told)
    group.touch(call.now)
    call.db.flush()


def delete(call: ScimCall, group: ScimGroup) -> None:
    """Nobody holds a role by it any more, but those whom a sign-in has put into it."""
    removed = sorted(members_of(call, group))
    call.audit("scim_group.delete", group.id, {"members_removed": _some(removed)})
    if scim_groups.is_claimed(call.db, group):
        scim_groups.take_members(call.db, group, removed)
        group.is_pushed, group.external_id = False, None
    else:
        call.db.delete(group)
    call.db.flush()


def members_of(call: ScimCall, group: ScimGroup) -> set[str]:
    """The ids of those whom SCIM has put into it."""
    rows = scim_groups.pushed_members(call.db, call.org.id, [group.id])
    return {user_id for _, user_id in rows}


def _change_members(call: ScimCall, group: ScimGroup, members: AbstractSet[str]) -> dict[str, Any]:
    before = members_of(call, group)
    added, removed = sorted(members - before), sorted(before - members)
    _check_members(call, added, len(members))
    scim_groups.put_members(call.db, group, added)
    scim_groups.take_members(call.db, group, removed)
    told = {"members_added": added, "members_removed": removed}
    return {name: _some(ids) for name, ids in told.items() if ids}


def _check_members(call: ScimCall, added: Collection[str], total: int) -> None:
    if total > MEMBERS_MAX:
        raise Invalid(f"a group can have {MEMBERS_MAX:,} members; this one would have {total:,}")
    unknown = sorted(set(added) - scim_users.names(call.db, call.org.id, added).keys())
    if unknown:
        raise Invalid(
            f"there is no user with the id {unknown[0]!r:.100}: push users before their groups,"
            " and name them by the id that the service gave them (groups in groups are not"
            " supported)"
        )


def _some(ids: list[str]) -> list[str] | int:
    return ids if len(ids) <= _TOLD_MAX else len(ids)


def _taken() -> Conflict:
    return Conflict("a group with this displayName already exists, whatever its case")
