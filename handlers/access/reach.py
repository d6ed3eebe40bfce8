"""What a caller may give to others and take from them: nothing beyond what they have."""

from control.access import role_holders
from control.policy.permissions import RoleSets, role_sets
from control.policy.rights import Permissions, Rights
from handlers.calls import OrgCall
from specserver import Forbidden


def sets_of(call: OrgCall) -> RoleSets:
    """What the predefined roles of the caller's organization hold."""
    return role_sets(call.org.role_sets)


def check_role(call: OrgCall, role: str) -> None:
    """Nobody gives a role in the organization that holds more than they do."""
    given = role_holders.of_role(role, call.org.id, sets_of(call))
    refuse(given.beyond(call.caller.rights), f"the role {role} has")


def check_member(call: OrgCall, user_id: str) -> None:
    """Nobody changes what somebody has who holds more than they do."""
    member = role_holders.of_member(call.db, call.org.id, user_id)
    if member is not None:
        refuse(member.rights.beyond(call.caller.rights), "this member has")


def check_given(call: OrgCall, given: Rights, who: str) -> None:
    refuse(given.beyond(call.caller.rights), who)


def refuse(beyond: Permissions, who: str) -> None:
    """`who` is the beginning of the sentence: the role, or the member, that has them."""
    if beyond:
        raise Forbidden(
            f"{who} permissions that you do not have there: {', '.join(sorted(beyond))}",
            code="role_exceeds_yours",
        )
