"""Joining an organization by an invite."""

from control import events
from control.access import role_holders, seats
from control.boundary import Call
from control.boundary.call import refuse_closed
from control.policy.alert_kinds import OWNER_ADDED
from control.policy.org_policy import allows_address
from control.sso import demands
from specserver import Conflict, Forbidden
from storage.access import api_keys, memberships, organizations
from storage.access.invites import Invite
from storage.access.organizations import Organization
from storage.access.users import User


def join(call: Call, invite: Invite, user: User) -> Organization:
    """Make the user a member in the role of the invite, which is used by it."""
    _refuse_another_address(invite, user)
    org = check_open(call, invite)
    _refuse_other_ways(call, org, user)
    if memberships.find(call.db, org.id, user.id) is not None:
        raise Conflict("you are a member of this organization already", code="already_member")
    memberships.create(call.db, org.id, user.id, invite.role)
    if invite.role == "owner":
        tell_of_owner(call, org, user)
    invite.accept(user.id, call.now)
    # Whoever has the token has read what was sent to this address.
    user.verify(user.email, user.email_verified_at or call.now)
    return org


def _refuse_another_address(invite: Invite, user: User) -> None:
    if user.email != invite.email:
        raise Forbidden(
            "this invite is for another email address: sign in with the one it was sent to",
            code="wrong_email",
        )


def _refuse_other_ways(call: Call, org: Organization, user: User) -> None:
    """Whom the organization wants to come by single sign-on comes by nothing else."""
    session = call.caller.session if call.caller else None
    demands.refuse_joining(org, user, session, call.services.settings.base_url)


def tell_of_owner(call: Call, org: Organization, user: User) -> None:
    """Whoever owns an organization can do everything in it: the others are to know."""
    title, reason = f"{user.email} is an owner of {{name}} now", "if that is wrong, remove them"
    events.raise_(call.db, org, OWNER_ADDED, "warning", title, reason, cause=user.id)


def check_open(call: Call, invite: Invite) -> Organization:
    """The organization, which lets somebody in by the invite now."""
    _refuse_ended(invite.status(call.now))
    org = organizations.fetch(call.db, invite.org_id)
    refuse_closed(org)
    _refuse_domain(org, invite.email)
    if not _can_still_invite(call, invite):
        raise Conflict(
            "whoever sent this invite can no longer invite to its role; ask for another",
            code="invite_revoked",
        )
    seats.refuse_full(call.db, org, call.now)
    return org


def _refuse_domain(org: Organization, email: str) -> None:
    """As the organization wants it now: the invite may be older than its choice."""
    if not allows_address(email, org.allowed_email_domains):
        raise Forbidden(
            "the organization does not allow email addresses of this domain any more",
            code="email_domain_refused",
        )


def _refuse_ended(status: str) -> None:
    if status == "used":
        raise Conflict("this invite was used already", code="invite_used")
    if status == "revoked":
        raise Conflict("this invite was revoked; ask for another", code="invite_revoked")
    if status == "expired":
        raise Conflict("this invite has expired; ask for another", code="invite_expired")


def _can_still_invite(call: Call, invite: Invite) -> bool:
    """An invite is no way to keep a right that was taken away."""
    inviter = role_holders.of_member(call.db, invite.org_id, invite.inviter_id)
    if inviter is None or not inviter.rights.has("members:write"):
        return False
    given = role_holders.of_role(invite.role, invite.org_id, inviter.sets)
    if given.beyond(inviter.rights):
        return False
    return not api_keys.is_stopped(call.db, invite.org_id, invite.invited_by)
