"""Handlers of the tag Device logins: programs that are let in from a browser elsewhere."""

import hashlib
import secrets
from datetime import timedelta
from typing import Any, Final

from control.boundary import Call, identity
from handlers import instants
from handlers.access import sessions as session_handlers
from handlers.calls import SessionCall
from specserver import Conflict, Forbidden, Reply
from storage import identifiers
from storage.access import users
from storage.access.sessions import UserSession
from storage.sso import device_logins
from storage.sso.device_logins import DeviceLogin

Body = dict[str, Any]

TTL_S: Final = 600
INTERVAL_S: Final = 5
_CODE_BYTES: Final = 32
# No vowels, so no words; nothing that is read as something else (RFC 8628, 6.1).
_LETTERS: Final = "BCDFGHJKLMNPQRSTVWXZ"
_LETTERS_EACH: Final = 4


def create(call: Call) -> Reply:
    device_code = secrets.token_urlsafe(_CODE_BYTES)
    user_code = _new_user_code()
    made = DeviceLogin(
        id=identifiers.new("dlog_"),
        device_code_hash=identity.token_sha256(device_code),
        user_code_hash=_user_code_hash(user_code),
        expires_at=call.now + timedelta(seconds=TTL_S),
        user_agent=session_handlers.user_agent(call),
        ip=call.ip,
    )
    device_logins.create(call.db, made)
    page = f"{call.services.settings.base_url.rstrip('/')}/account/device"
    told = {"device_code": device_code, "user_code": user_code, "verification_url": page}
    return Reply(201, {**told, "expires_in_s": TTL_S, "interval_s": INTERVAL_S})


def find(call: SessionCall, body: Body) -> Body:
    login = device_logins.waiting(call.db, _user_code_hash(body["user_code"]), call.now)
    return {
        "ip": login.ip,
        "user_agent": login.user_agent,
        "created_at": instants.timestamp(login.created_at),
        "expires_at": instants.timestamp(login.expires_at),
    }


def decide(call: SessionCall, body: Body) -> Reply:
    login = device_logins.waiting(call.db, _user_code_hash(body["user_code"]), call.now)
    login.decide(call.caller.session, body["decision"])
    told = {"decision": body["decision"], "ip": login.ip}
    call.audit(target=login.id, detail=told)
    return Reply.no_content()


def exchange(call: Call, body: Body) -> Reply:
    hashed = identity.token_sha256(body["device_code"])
    login = device_logins.by_device_code(call.db, hashed)
    approver = _approver(call, login)
    user = users.locked(call.db, approver.user_id)
    token = identity.new_session_token()
    # It has no other way to verify a second factor than that of its provider.
    mfa_at = approver.mfa_at if approver.sso_org_id else None
    session = session_handlers.record(call, user, token, mfa_at)
    _limit(session, approver)
    answer = session_handlers.begun(call, session, token)
    call.audit(target=session.id, detail={"user_id": user.id, "device_login_id": login.id})
    call.db.delete(login)
    return answer


def _limit(session: UserSession, approver: UserSession) -> None:
    """It may do no more than the session that let it in, and ends no later."""
    session.sso_org_id, session.sso_connection_id = approver.sso_org_id, approver.sso_connection_id
    session.is_break_glass = approver.is_break_glass
    session.expires_at = min(session.expires_at, approver.expires_at)


def _approver(call: Call, login: DeviceLogin) -> UserSession:
    """Whose session lets the program in; raises while and where there is none."""
    if login.decision == "denied":
        raise Forbidden("somebody refused to let this program in", code="access_denied")
    if login.expires_at <= call.now:
        raise Conflict("nobody let this program in in time; begin anew", code="expired_token")
    if login.decision is None:
        raise Conflict(
            "nobody has let this program in yet: ask again in some seconds",
            code="authorization_pending",
        )
    approver = device_logins.approver(call.db, login, call.now)
    if approver is None:
        raise Conflict(
            "the session that let this program in has ended; begin anew", code="expired_token"
        )
    return approver


def _new_user_code() -> str:
    """Such as BCDF-GHJK: 34 random bits, for ten minutes."""
    halves = ("".join(secrets.choice(_LETTERS) for _ in range(_LETTERS_EACH)) for _half in range(2))
    return "-".join(halves)


def _user_code_hash(code: str) -> str:
    """However it was typed: in small letters, without the hyphen."""
    letters = "".join(one for one in code.upper() if one.isalpha())
    return hashlib.sha256(f"user code {letters}".encode()).hexdigest()
