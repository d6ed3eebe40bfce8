"""What the pages say of what the API refused, in place of words that are for programs."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

TEXTS: Final = {
    "account_exists": "There is an account with the email address of this invitation. Sign in to"
    " accept it.",
    "already_member": "You are a member of this organization already.",
    "code_refused": "This code is wrong or has already been used. Wait for the next one.",
    "conflict": "Something has changed meanwhile. Open the page again.",
    "email_token_expired": "This link is no longer valid. Ask for another email.",
    "email_token_used": "This link has already been used. If it was you, your address is"
    " confirmed.",
    "invite_expired": "This invitation has expired. Ask whoever sent it for a new one.",
    "invite_revoked": "This invitation is no longer valid. Ask whoever sent it for a new one.",
    "invite_used": "This invitation has already been used. If it was you, sign in.",
    "mfa_required": "Enter a code from your authenticator app first.",
    "not_found": "There is no such invitation. The link may be incomplete.",
    "org_closed": "The organization of this invitation is closed.",
    "overloaded": "The service is busy. Try again in a moment.",
    "password_refused": "This is not your password.",
    "password_required": "Enter your password: you signed in more than a few minutes ago.",
    "reset_expired": "This link is no longer valid. Ask for another email.",
    "reset_used": "This link has already been used. If it was you, sign in with your new password.",
    "seat_limit": "The organization has no free seat. Ask whoever sent the invitation.",
    "sign_in_refused": "The email address or the password is wrong.",
    "sso_required": "People with an address of this domain sign in with single sign-on, by the"
    " identity provider of their organization.",
    "sso_session": "You signed in with single sign-on. Your organization's identity provider looks"
    " after this.",
    "too_many_at_once": "The service is busy. Try again in a moment.",
    "wrong_email": "This invitation was sent to another email address than that of your account.",
}
EMPTY: Final = {
    "code": "Enter the code.",
    "current_password": "Enter your current password.",
    "email": "Enter your email address.",
    "name": "Enter your name.",
    "new_password": "Enter a new password.",
    "password": "Enter a password.",
}
LIMITED: Final = {
    "account_rate_limited": "Too many attempts to sign in to this account.",
    "code_rate_limited": "Too many codes were tried for this account.",
    "rate_limited": "Too many attempts from your address.",
}
_MINUTE_S: Final = 60
_BROWSERS: Final = (
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
    ("curl/", "curl"),
    ("menagerie", "Menagerie command line"),
)
_SYSTEMS: Final = (
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("Linux", "Linux"),
)


def of_problem(
    body: dict[str, Any], retry_after: str = "", says: Mapping[str, str] = MappingProxyType({})
) -> str:
    """A sentence or two for whoever sees the page; `says` is what a code means on that one."""
    code = str(body.get("code", ""))
    if code in LIMITED:
        return f"{says.get(code) or LIMITED[code]} Try again in {_wait(retry_after)}."
    return (
        says.get(code)
        or TEXTS.get(code)
        or sentence(str(body.get("detail") or "The request failed"))
    )


def sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def lowered(text: str) -> str:
    """A sentence whose subject has been said."""
    return f"{text[:1].lower()}{text[1:].rstrip('.')}."


def device(user_agent: str | None) -> str:
    """What a session began with, as its owner would call it."""
    text = user_agent or ""
    browser = next((name for mark, name in _BROWSERS if mark in text), "")
    system = next((name for mark, name in _SYSTEMS if mark in text), "")
    if browser and system:
        return f"{browser} on {system}"
    return browser or system or re.split(r"[/ ]", text)[0][:40] or "Unknown program"


def moment(timestamp: str | None) -> str:
    """A time of the API (RFC 3339, UTC), to the minute."""
    if timestamp is None:
        return "never"
    return f"{timestamp[:10]} {timestamp[11:16]} UTC"


def _wait(retry_after: str) -> str:
    seconds = int(retry_after) if retry_after.isdecimal() else _MINUTE_S
    if seconds < _MINUTE_S:
        return f"{max(seconds, 1)} seconds" if seconds != 1 else "1 second"
    minutes = -(-seconds // _MINUTE_S)
    return "1 minute" if minutes == 1 else f"{minutes} minutes"
