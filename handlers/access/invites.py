"""Invites: how people come into an organization."""

from datetime import timedelta
from typing import Any

from control.access import seats
from control.boundary import identity
from control.mail import letters
from control.policy import org_policy, quotas
from control.policy.violations import refuse
from control.workflows.access import mail
from handlers import instants, paging
from handlers.access import joining, reach, views
from handlers.calls import OrgCall, SessionCall
from specserver import Conflict, Reply
from storage.access import invites, memberships, users
from storage.access.invites import Invite

Body = dict[str, Any]


def list_(call: OrgCall, limit: int, cursor: str | None = None) -> Body:
    found = invites.page(
        call.db, call.org.id, now=call.now, limit=limit, after=paging.after(call, cursor)
    )
    return paging.page(call, found, views.invite)


def create(call: OrgCall, body: Body) -> Reply:
    reach.check_role(call, body["role"])
    refuse(org_policy.check_address(body["email"], call.org.allowed_email_domains))
    _refuse_known(call, body["email"])
    _check_quota(call, body["email"])
    seats.refuse_full(call.db, call.org, call.now, with_pending=True)
    token = identity.new_invite_token()
    invite = _record(call, body, token.sha256)
    mail.post(call.db, call.services.sealer, _letter(call, invite, token.secret), invite)
    told = {"invite_id": invite.id, "email": invite.email, "role": invite.role}
    call.audit(target=invite.id, detail={"email": invite.email, "role": invite.role})
    call.emit("org.member.invited.v1", told)
    return Reply.created(views.invite(invite))


def revoke(call: OrgCall, invite: Invite) -> Reply:
    invite.revoke(call.now)
    call.audit(target=invite.id, detail={"email": invite.email})
    return Reply.no_content()


def accept(call: SessionCall, token: str) -> Body:
    invite = invites.take(call.db, identity.token_sha256(token))
    org = joining.join(call, invite, call.caller.user)
    call.audit(target=invite.id, org=org, detail={"role": invite.role})
    return views.organization(org, invite.role)


def _refuse_known(call: OrgCall, email: str) -> None:
    user = users.by_email(call.db, email)
    if user is not None and memberships.find(call.db, call.org.id, user.id) is not None:
        raise Conflict("this person is a member already", code="already_member")
    if invites.count_pending(call.db, call.org.id, call.now, email):
        raise Conflict(
            "this address has a pending invite: revoke it to send another",
            code="already_invited",
        )


def _check_quota(call: OrgCall, email: str) -> None:
    day_ago = call.now - timedelta(days=1)
    sent = invites.count_since(call.db, call.org.id, day_ago)
    refuse(quotas.check_one_more_invite(sent))
    to_them = invites.count_since(call.db, call.org.id, day_ago, email)
    refuse(quotas.check_one_more_invite_to(to_them))


def _record(call: OrgCall, body: Body, token_hash: str) -> Invite:
    return invites.create(
        call.db,
        call.org.id,
        email=body["email"],
        role=body["role"],
        token_hash=token_hash,
        invited_by=call.caller.id,
        inviter_id=call.caller.user.id,
        expires_at=call.now + timedelta(seconds=call.services.settings.invite_ttl_s),
    )


def _letter(call: OrgCall, invite: Invite, token: str) -> letters.Letter:
    by = call.caller.user
    return letters.invitation(
        to=invite.email,
        by=by.shown,
        org=call.org.name,
        role=invite.role,
        token=token,
        until=instants.timestamp(invite.expires_at),
        base_url=call.services.settings.base_url,
    )
