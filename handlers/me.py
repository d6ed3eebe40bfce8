"""The caller: who they are, their second factor and their password."""

from datetime import timedelta
from typing import Any

from control import identity
from handlers import orgs, second_factor, views
from handlers import sessions as session_handlers
from handlers.calls import CallerCall, SessionCall
from specserver import Forbidden, Reply
from storage import sessions
from storage.errors import Conflict
from storage.sessions import UserSession

Body = dict[str, Any]


def get(call: CallerCall) -> Body:
    caller = call.caller
    session = caller.session
    mfa_until = session_handlers.mfa_expires_at(call, session) if session and caller.mfa else None
    return {
        "kind": caller.kind,
        "user": views.user(caller.user) if session else None,
        "api_key": views.api_key(caller.key) if caller.key else None,
        "session_id": session.id if session else None,
        "assurance": "mfa" if caller.mfa else "none",
        "mfa_expires_at": views.timestamp_or_none(mfa_until),
        "orgs": orgs.mine(call),
    }


def change_password(call: SessionCall) -> Reply:
    user = call.caller.user
    _require_password(call)
    others = [one for one in _sessions(call) if one.id != call.caller.session.id]
    for session in others:
        session.revoke(call.now)
    call.audit(target=user.id, detail={"sessions_revoked": len(others)})
    return Reply.no_content()


def enrol_totp(call: SessionCall, body: Body) -> Reply:
    user = call.caller.user
    _require_fresh_or_password(call, body.get("password"))
    if user.totp_confirmed_at is not None:
        raise Conflict("an authenticator app is already enrolled; remove it first")
    secret = identity.new_totp_secret()
    user.totp_secret_sealed = second_factor.seal_secret(call, user, secret)
    user.totp_last_step = None
    call.audit(target=user.id)
    uri = identity.totp_uri(secret, user.email)
    return Reply(201, {"secret": secret, "otpauth_uri": uri})


def confirm_totp(call: SessionCall, body: Body) -> Body:
    user = call.caller.user
    if user.totp_confirmed_at is not None:
        raise Conflict("the authenticator app is already confirmed")
    second_factor.require_code(call, body["code"], confirmed=False)
    user.totp_confirmed_at = call.caller.session.mfa_at = call.now
    call.audit(target=user.id)
    return session_handlers.view(call, call.caller.session)


def remove_totp(call: SessionCall) -> Reply:
    user = call.caller.user
    if user.totp_confirmed_at is None:
        raise Conflict("no authenticator app is enrolled")
    user.totp_secret_sealed = user.totp_confirmed_at = user.totp_last_step = None
    for session in _sessions(call):
        session.mfa_at = None
    call.audit(target=user.id)
    return Reply.no_content()


def _require_fresh_or_password(call: SessionCall, password: str | None) -> None:
    """A session that signed in just now has shown the password; a stolen one is older."""
    if password is not None:
        _require_password(call)
        return
    ttl_s = call.services.settings.mfa_ttl_s
    if call.caller.session.created_at + timedelta(seconds=ttl_s) <= call.now:
        detail = f"you signed in more than {ttl_s // 60} minutes ago; send your password too"
        raise Forbidden(detail, code="password_required")


def _require_password(call: SessionCall) -> None:
    if not call.is_password_right(call.caller.user):
        raise Forbidden("the password is wrong", code="password_refused")


def _sessions(call: SessionCall) -> list[UserSession]:
    user_id = call.caller.user.id
    return sessions.page(call.db, user_id, now=call.now, limit=100_000, after=None).items
