"""User sessions: signing in, stepping up, signing out."""

from datetime import datetime, timedelta
from typing import Any

import structlog

from control.boundary import Call, identity, mfa_required
from control.boundary.refusal_log import name_account
from control.sso import enforcement
from handlers import paging
from handlers.access import second_factor, views
from handlers.calls import SessionCall, SignedIn
from specserver import Reply, Unauthenticated
from storage import identifiers
from storage.access import sessions, users
from storage.access.sessions import UserSession
from storage.access.users import User

Body = dict[str, Any]

_log = structlog.get_logger("sign_in")
_USER_AGENT_LENGTH = 200


def create(call: Call, body: Body) -> Reply:
    user = _authenticate(call, body)
    with_mfa = "totp_code" in body
    if with_mfa and not second_factor.use_code(call, user, body["totp_code"]):
        raise _refused(call, user, "code")
    by_recovery_code = identity.is_recovery_code(body.get("totp_code", ""))
    told = {"user_id": user.id, "mfa": with_mfa, "recovery_code": by_recovery_code}
    asked = body.get("break_glass", False)
    return opened(
        call, user, mfa_at=call.now if with_mfa else None, told=told, is_break_glass=asked
    )


def opened(
    call: Call, user: User, *, mfa_at: datetime | None, told: Body, is_break_glass: bool = False
) -> Reply:
    """A new session of the user, without a provider; `told` is for the audit log.

    `is_break_glass`: they ask for the way that owners have where single sign-on is enforced.
    """
    base_url = call.services.settings.base_url
    broken = enforcement.let_in(
        call.db, user, base_url, asked=is_break_glass, with_mfa=mfa_at is not None
    )
    token = identity.new_session_token()
    session = record(call, user, token, mfa_at)
    session.is_break_glass = broken
    answer = begun(call, session, token)
    if broken:
        enforcement.tell_of_break_glass(call.db, call.services, user, session, call.request_id)
        told = {**told, "break_glass": True}
    call.audit(target=session.id, detail=told)
    return answer


def begun(call: Call, session: UserSession, token: identity.Token) -> Reply:
    """The session is open, and the oldest ones too many of its user have ended."""
    call.db.add(session)
    call.db.flush()
    sessions.revoke_surplus(call.db, session, call.now)
    answer = {**view(call, session, current=True), "token": token.secret}
    return Reply.created(answer, f"/v1/sessions/{session.id}")


def list_(call: SessionCall, limit: int, cursor: str | None = None) -> Body:
    found = sessions.page(
        call.db,
        call.caller.user.id,
        now=call.now,
        held_to=call.caller.held_to,
        limit=limit,
        after=paging.after(call, cursor),
    )
    return paging.page(call, found, lambda session: view(call, session))


def revoke(call: SessionCall, session: UserSession) -> Reply:
    if _has_passed_more(session, call.caller):
        raise mfa_required()
    session.revoke(call.now)
    call.audit(target=session.id)
    return Reply.no_content()


def step_up(call: SessionCall, body: Body) -> Body:
    second_factor.require_code(call, body["code"])
    session = call.caller.session
    session.mfa_at = call.now
    sessions.revoke_surplus(call.db, session, call.now)
    told = {"recovery_code": identity.is_recovery_code(body["code"])}
    call.audit(target=session.id, detail=told)
    return view(call, session)


def view(call: Call, session: UserSession, *, current: bool | None = None) -> Body:
    mfa_until = mfa_expires_at(call, session)
    own = call.caller.session.id if call.caller and call.caller.session else None
    is_current = session.id == own if current is None else current
    return views.session(session, current=is_current, mfa_until=mfa_until, now=call.now)


def mfa_expires_at(call: Call, session: UserSession) -> datetime | None:
    if session.mfa_at is None:
        return None
    return session.mfa_at + timedelta(seconds=call.services.settings.mfa_ttl_s)


def _has_passed_more(session: UserSession, caller: SignedIn) -> bool:
    """Whether it passed the second factor and the caller has not; their own they may always end.

    So whoever knows the password ends no session that can still change it, and the owner, even
    without a code at hand, ends all that the password alone has opened.
    """
    if session.id == caller.session.id or not caller.user.has_second_factor:
        return False
    return session.mfa_at is not None and not caller.mfa


def record(call: Call, user: User, token: identity.Token, mfa_at: datetime | None) -> UserSession:
    """A session that begins now, of whoever sent the request; it is not stored yet."""
    return UserSession(
        id=identifiers.new("ses_"),
        user_id=user.id,
        token_hash=token.sha256,
        prefix=token.prefix,
        expires_at=call.now + timedelta(seconds=call.services.settings.session_ttl_s),
        mfa_at=mfa_at,
        last_used_at=call.now,
        user_agent=user_agent(call),
        ip=call.ip,
    )


def _authenticate(call: Call, body: Body) -> User:
    user = users.by_email(call.db, body["email"])
    if user is None or not call.is_password_right(user):
        raise _refused(call, user, "password")
    return user


def _refused(call: Call, user: User | None, wrong: str) -> Unauthenticated:
    """The answer tells nothing; the log tells an operator who is being guessed, and from where.

    What was typed as the address stays out of it: it may be a password.
    """
    user_id = user.id if user else None
    _log.warning("sign_in.refused", user_id=user_id, wrong=wrong if user else "address", ip=call.ip)
    if user is not None:
        name_account(call.exchange, user.id, wrong)
    return Unauthenticated(
        "the email address, the password or the code is wrong", code="sign_in_refused"
    )


def user_agent(call: Call) -> str | None:
    """What the request says it was sent by; None if nothing."""
    sent = call.exchange.request.headers.get("user-agent", "")
    return "".join(c for c in sent if c.isprintable())[:_USER_AGENT_LENGTH] or None
