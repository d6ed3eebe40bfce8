"""Who is at a session: somebody who signed in just now, or who knows the password."""

from datetime import timedelta

from handlers.calls import SessionCall
from specserver import Forbidden


def require(call: SessionCall, password: str | None) -> None:
    """A session that signed in just now has shown the password; a stolen one is older."""
    if password is not None:
        require_password(call)
        return
    ttl_s = call.services.settings.mfa_ttl_s
    if call.caller.session.created_at + timedelta(seconds=ttl_s) <= call.now:
        detail = f"you signed in more than {ttl_s // 60} minutes ago; send your password too"
        raise Forbidden(detail, code="password_required")


def require_password(call: SessionCall) -> None:
    if not call.is_password_right(call.caller.user):
        raise Forbidden("the password is wrong", code="password_refused")
