"""Why somebody can do something, or cannot, in a sentence."""

from typing import Any, Final

Body = dict[str, Any]
_KINDS: Final = {"custom_role": "custom role", "scim_group": "group"}


def told(permission: str | None, by: list[Body], *, elsewhere: bool) -> Body:
    """As the document has it: whether they have it, by what, and the same as a sentence."""
    return {
        "permission": permission,
        "allowed": permission is None or bool(by),
        "by": by,
        "explanation": sentence(permission, by, elsewhere=elsewhere),
    }


def sentence(permission: str | None, by: list[Body], *, elsewhere: bool) -> str:
    """`by` as the document has it; `elsewhere`: something gives it, but not where it is asked."""
    if permission is None:
        return "Allowed: everybody who is signed in can call this operation."
    if by:
        return f"Allowed: {permission} is held by {' and '.join(map(_held_by, by))}."
    if elsewhere:
        return (
            f"Not allowed here: they have {permission} in a part of the organization only. Ask for"
            " a team, a project or an instance of theirs to see by what; a role with it here, or in"
            " the whole organization, would allow this."
        )
    return (
        f"Not allowed: none of their roles has {permission}. A role with it in the team, in the"
        " project or in the whole organization would allow it."
    )


def _held_by(one: Body) -> str:
    kind = _KINDS.get(one["source"], "role")
    named = f"the {kind} {one['role']}"
    if one["project_id"] is not None:
        return f"{named} in the project {one['project_id']}"
    if one["team_id"] is not None:
        return f"{named} in the team {one['team_id']}"
    return f"{named} in the organization"
