"""Accounts of people."""

from typing import Any

from control.boundary import Call, identity
from control.boundary.passwords import chosen
from control.sso import enforcement
from handlers.access import joining, views
from specserver import Conflict, Reply
from storage.access import invites, users

Body = dict[str, Any]


def create(call: Call, body: Body) -> Reply:
    """Whoever has the token has read the letter: the address is theirs."""
    invite = invites.take(call.db, identity.token_sha256(body["invite_token"]))
    joining.check_open(call, invite)
    enforcement.refuse_other_ways(call.db, invite.email, call.services.settings.base_url)
    if users.by_email(call.db, invite.email) is not None:
        raise Conflict(
            "there is an account with the address of this invite: sign in and accept the invite",
            code="account_exists",
        )
    # Nobody has it hashed who does not come in by it.
    about = (invite.email, body["name"])
    password_hash = chosen(body["password"], about, "password", call.services.breaches)
    user = users.create(call.db, email=invite.email, name=body["name"], password_hash=password_hash)
    org = joining.join(call, invite, user)
    call.audit(target=user.id, org=org, detail={"invite_id": invite.id, "role": invite.role})
    return Reply(201, {**views.user(user), "org": views.organization(org, invite.role)})
