"""The caller: who they are, their second factor and their password."""

from typing import Any

from control.boundary import identity
from control.workflows.access import mail
from handlers import instants
from handlers.access import (
    account_letters,
    email_changes,
    fresh_proof,
    orgs,
    recovery_codes,
    second_factor,
    views,
)
from handlers.access import sessions as session_handlers
from handlers.calls import CallerCall, SessionCall
from specserver import Reply
from storage.access import account_tokens, sessions, users
from storage.access import recovery_codes as stored_codes
from storage.access.account_tokens import PASSWORD_RESET
from storage.errors import StateConflict

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
        "mfa_expires_at": instants.timestamp_or_none(mfa_until),
        "recovery_codes_left": recovery_codes.left(call, caller.user) if session else None,
        "orgs": orgs.mine(call),
    }


def change_password(call: SessionCall) -> Reply:
    user = call.caller.user
    fresh_proof.require_password(call)
    revoked = sessions.revoke_others(call.db, call.caller.session, call.now)
    account_tokens.revoke_pending(call.db, user.id, PASSWORD_RESET, call.now)
    mail.tell(call.db, call.services.sealer, account_letters.password_changed(call, user))
    call.audit(target=user.id, detail={"sessions_revoked": revoked})
    return Reply.no_content()


def change_email(call: SessionCall, body: Body) -> Reply:
    fresh_proof.require_password(call)
    email_changes.ask(call, body["email"])
    call.audit(target=call.caller.user.id)
    valid_for_s = call.services.settings.email_change_ttl_s
    return Reply.accepted({"email": body["email"].lower(), "valid_for_s": valid_for_s})


def confirm_email(call: SessionCall, body: Body) -> Body:
    changed = email_changes.confirm(call, body["email_token"])
    call.audit(target=call.caller.user.id, detail=changed)
    return views.user(call.caller.user)


def enrol_totp(call: SessionCall, body: Body) -> Reply:
    user = call.caller.user
    fresh_proof.require(call, body.get("password"))
    # Until the commit: it must not be confirmed meanwhile with a code of the former secret.
    call.db.refresh(user, with_for_update=True)
    if user.totp_confirmed_at is not None:
        raise StateConflict("an authenticator app is already enrolled; remove it first")
    secret = identity.new_totp_secret()
    user.totp_secret_sealed = second_factor.seal_secret(call, user, secret)
    user.totp_last_step = None
    call.audit(target=user.id)
    uri = identity.totp_uri(secret, user.email)
    return Reply(201, {"secret": secret, "otpauth_uri": uri})


def confirm_totp(call: SessionCall, body: Body) -> Body:
    user = call.caller.user
    if user.totp_confirmed_at is not None:
        raise StateConflict("the authenticator app is already confirmed")
    second_factor.require_code(call, body["code"], confirmed=False)
    user.totp_confirmed_at = call.caller.session.mfa_at = call.now
    call.audit(target=user.id)
    shown = session_handlers.view(call, call.caller.session)
    return {**shown, "recovery_codes": recovery_codes.renewed(call, user)}


def renew_recovery_codes(call: SessionCall) -> Reply:
    user = users.locked(call.db, call.caller.user.id)
    if not user.has_second_factor:
        raise StateConflict(
            "you have no second factor; enroll an authenticator app with POST /v1/me/totp, or add a"
            " passkey"
        )
    call.audit(target=user.id)
    return Reply(201, {"recovery_codes": recovery_codes.renewed(call, user)})


def remove_totp(call: SessionCall) -> Reply:
    user = call.caller.user
    call.db.refresh(user, with_for_update=True)
    if user.totp_confirmed_at is None:
        raise StateConflict("no authenticator app is enrolled")
    user.totp_secret_sealed = user.totp_confirmed_at = user.totp_last_step = None
    if not user.has_second_factor:
        stored_codes.forget(call.db, user.id)
        sessions.forget_second_factor(call.db, user.id)
    call.audit(target=user.id)
    return Reply.no_content()
