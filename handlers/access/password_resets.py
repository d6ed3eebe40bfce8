"""Resets of passwords: for people who have lost theirs, by a letter to their address."""

from typing import Any

from control.boundary import Call, identity
from control.boundary.passwords import chosen
from control.sso import enforcement
from control.workflows.access import mail, password_resets
from handlers.access import account_letters
from specserver import Conflict, Reply
from storage.access import account_tokens, sessions, users
from storage.access.account_tokens import PASSWORD_RESET, AccountToken
from storage.access.users import User

Body = dict[str, Any]


def create(call: Call, body: Body) -> Reply:
    """Nobody is looked up: neither the answer nor its time tells whose address it is."""
    enforcement.refuse_other_ways(call.db, body["email"], call.services.settings.base_url)
    asked = {"request_id": call.request_id, "ip": call.ip}
    password_resets.ask(call.db, call.services.sealer, body["email"], asked)
    return Reply.accepted({"valid_for_s": call.services.settings.password_reset_ttl_s})


def complete(call: Call, body: Body) -> Reply:
    """The second factor and API keys stay as they are: whoever reads the mail has neither."""
    token = account_tokens.by_hash(
        call.db, PASSWORD_RESET, identity.token_sha256(body["reset_token"])
    )
    _refuse_ended(call, token)
    user = users.locked(call.db, token.user_id)
    call.db.refresh(token)
    _refuse_ended(call, token)
    enforcement.refuse_other_ways(call.db, user.email, call.services.settings.base_url)
    about = (user.email, user.name)
    user.password_hash = chosen(body["password"], about, "password", call.services.breaches)
    ended = _close(call, user, token)
    call.audit(target=user.id, detail={"sessions_revoked": ended})
    mail.tell(call.db, call.services.sealer, account_letters.password_changed(call, user))
    return Reply.no_content()


def _close(call: Call, user: User, token: AccountToken) -> int:
    """Whoever came in by the former password is out; how many sessions that were."""
    token.use(call.now)
    user.verify(user.email, user.email_verified_at or call.now)
    call.db.flush()
    account_tokens.revoke_pending(call.db, user.id, PASSWORD_RESET, call.now)
    return sessions.revoke_all(call.db, user.id, call.now)


def _refuse_ended(call: Call, token: AccountToken) -> None:
    status = token.status(call.now)
    if status == "used":
        raise Conflict("this reset was used already; ask for another", code="reset_used")
    if status != "pending":
        raise Conflict("this reset is no longer valid; ask for another", code="reset_expired")
