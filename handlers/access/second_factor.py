"""The second factor of a user: codes of an app or written down, each good once."""

from control.boundary import Call, identity
from handlers.calls import SessionCall
from specserver import Forbidden
from storage.access import recovery_codes
from storage.access.users import User
from storage.errors import StateConflict


def seal_secret(call: Call, user: User, secret: str) -> bytes:
    return call.services.sealer.seal(secret.encode(), _context(user))


def use_code(call: Call, user: User, code: str, *, confirmed: bool = True) -> bool:
    """Whether the code is right; a right one is used up. Holds the user until the commit."""
    call.db.refresh(user, with_for_update=True)
    if identity.is_recovery_code(code):
        if not user.has_second_factor:
            return False
        code_hash = identity.recovery_code_sha256(user.id, code)
        return recovery_codes.use(call.db, user.id, code_hash, call.now)
    if user.totp_secret_sealed is None or (user.totp_confirmed_at is None and confirmed):
        return False
    secret = call.services.sealer.open(user.totp_secret_sealed, _context(user)).decode()
    step = identity.verify_totp(secret, code, call.now, user.totp_last_step)
    if step is None:
        return False
    user.totp_last_step = step
    return True


def require_code(call: SessionCall, code: str, *, confirmed: bool = True) -> None:
    """StateConflict where there is no second factor, Forbidden for a wrong or used code."""
    user = call.caller.user
    has_app = user.totp_secret_sealed is not None and (user.totp_confirmed_at or not confirmed)
    if not has_app and not (identity.is_recovery_code(code) and user.has_second_factor):
        raise StateConflict("no authenticator app is enrolled; enroll one with POST /v1/me/totp")
    if not use_code(call, user, code, confirmed=confirmed):
        raise Forbidden(
            "the code is wrong or has already been used; wait for the next one, or send another"
            " recovery code",
            code="code_refused",
        )


def _context(user: User) -> str:
    return f"totp:{user.id}"
