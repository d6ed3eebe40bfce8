"""Predefined roles: what each holds, by default and in the organization."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from control.boundary import AuditedChanges
from control.policy import permissions
from control.policy.violations import refuse, wrong
from handlers.access import reach
from handlers.access.plan_features import require_custom_roles
from handlers.calls import OrgCall
from specserver import NotFound
from storage.errors import StateConflict

Body = dict[str, Any]

DEFAULTS: Final[Mapping[str, Mapping[str, frozenset[str]]]] = {
    "org": permissions.ROLES,
    "team": permissions.TEAM_ROLES,
}


def list_(call: OrgCall) -> Body:
    every = [_shown(call, scope, role) for scope, roles in DEFAULTS.items() for role in roles]
    return {"items": every, "next_cursor": None}


def update(call: OrgCall, role: str, scope: str, body: Body) -> Body:
    require_custom_roles(call)
    _refuse_outside(scope, body["permissions"])
    _replace(call, scope, role, frozenset(body["permissions"]))
    return _shown(call, scope, role)


def reset(call: OrgCall, role: str, scope: str) -> Body:
    _replace(call, scope, role, None)
    return _shown(call, scope, role)


def _replace(call: OrgCall, scope: str, role: str, held: frozenset[str] | None) -> None:
    """None: what it holds by default. Nobody gives or takes what they do not have themselves."""
    _refuse_unknown(scope, role)
    former = _held(call, scope, role)
    new = DEFAULTS[scope][role] if held is None else held
    beyond = (former | new) - call.caller.rights.everywhere
    reach.refuse(beyond, f"the role {role} has or would get")
    others = {k: v for k, v in (call.org.role_sets or {}).items() if k != f"{scope}:{role}"}
    changed = {} if new == DEFAULTS[scope][role] else {f"{scope}:{role}": sorted(new)}
    call.org.role_sets = {**others, **changed} or None
    told = {"role": role, "scope": scope, "was": sorted(former), "permissions": sorted(new)}
    changes = AuditedChanges.between({"permissions": former}, {"permissions": new})
    call.audit(target=call.org.id, detail=told, changes=changes)


def _refuse_unknown(scope: str, role: str) -> None:
    if role not in DEFAULTS[scope]:
        known = ", ".join(DEFAULTS[scope])
        raise NotFound(f"no role of the scope {scope} has this name: there are {known}")
    if f"{scope}:{role}" == permissions.FIXED:
        raise StateConflict("the role owner always holds every permission, and cannot be changed")


def _refuse_outside(scope: str, asked: Collection[str]) -> None:
    if scope == "team":
        found = [
            wrong(
                f"permissions/{i}",
                "scope",
                "must be a permission of the scope team: no team has it",
            )
            for i, one in enumerate(asked)
            if one not in permissions.TEAM
        ]
        refuse(found)


def _held(call: OrgCall, scope: str, role: str) -> frozenset[str]:
    sets = reach.sets_of(call)
    return sets.of_role(role) if scope == "org" else sets.of_team_role(role)


def _shown(call: OrgCall, scope: str, role: str) -> Body:
    return {
        "role": role,
        "scope": scope,
        "default_permissions": sorted(DEFAULTS[scope][role]),
        "permissions": sorted(_held(call, scope, role)),
    }
