"""Cookies: the session of a browser, and what binds forms to it before there is one.

The session's token is the cookie's value: whoever can read the one could use the other, and a
session that is ended anywhere has ended here. The API itself reads no cookie.
"""

import re
import secrets
from typing import Any, Final

from flask import Response, current_app, g, request

# Where all is HTTPS, the names are such that no other host can set them, nor any page without TLS.
SESSION: Final = "menagerie-session"
FORM: Final = "menagerie-form"
SSO: Final = "menagerie-sso"
"""What binds a sign-in at an identity provider to the browser that began it."""
SSO_BY_FORM: Final = "menagerie-sso-by-form"
"""As SSO, of a sign-in whose answer comes by a form of the provider's site."""
SECURE: Final = "SECURE_COOKIES"
_TOKEN: Final = re.compile(r"ms_[0-9A-Za-z]{8,100}")
_FORM_SECRET: Final = re.compile(r"[0-9A-Za-z_-]{43}")
_SSO_SIGN_IN: Final = re.compile(r"([0-9A-Za-z_-]{20,200})(?:[.]([a-z-]{1,40}))?")
_SSO_LASTS_S: Final = 600
_FORM_SECRET_BYTES: Final = 32


def session_token() -> str:
    """Empty where the browser has none, or something that cannot be one."""
    value = request.cookies.get(_name(SESSION), "")
    return value if _TOKEN.fullmatch(value) else ""


def form_secret() -> str:
    value = request.cookies.get(_name(FORM), "")
    return value if _FORM_SECRET.fullmatch(value) else ""


def new_form_secret() -> str:
    """One for this browser, which the answer to this request gives to it."""
    if "form_secret" not in g:
        g.form_secret = secrets.token_urlsafe(_FORM_SECRET_BYTES)
    return str(g.form_secret)


def add(response: Response) -> Response:
    if "form_secret" in g:
        _set(response, FORM, g.form_secret)
    return response


def keep_session(response: Any, token: str) -> None:
    """Until the browser is closed; the session itself ends when it would for any client."""
    _set(response, SESSION, token)
    drop(response, FORM)


def begun_sso(name: str = SSO) -> tuple[str, str]:
    """The token of the sign-in that this browser has begun, and the page to go to after it."""
    found = _SSO_SIGN_IN.fullmatch(request.cookies.get(_name(name), ""))
    return (found[1], found[2] or "") if found else ("", "")


def keep_sso(response: Any, token: str, after: str, *, by_form: bool = False) -> None:
    """Until the provider sends the browser back, which has ten minutes for it.

    `by_form`: by a form of its own site, as SAML has it. With that no cookie comes that is Lax, so
    this one is sent from everywhere. It tells nothing, and does nothing without what the provider
    has signed for this very sign-in.
    """
    value = f"{token}.{after}" if after else token
    if not by_form:
        _set(response, SSO, value, _SSO_LASTS_S)
        return
    # Browsers take one that is SameSite=None only with Secure, which they allow localhost too.
    response.set_cookie(
        _name(SSO_BY_FORM), value, _SSO_LASTS_S, secure=True, httponly=True, samesite="None"
    )


def drop(response: Any, name: str = SESSION) -> None:
    by_form = name == SSO_BY_FORM
    response.delete_cookie(
        _name(name),
        secure=by_form or _is_secure(),
        httponly=True,
        samesite="None" if by_form else "Lax",
    )


def _set(response: Any, name: str, value: str, lasts_s: int | None = None) -> None:
    # Lax: a link in an email leads to a page where somebody is signed in, and a provider back.
    response.set_cookie(
        _name(name),
        value,
        max_age=lasts_s,
        secure=_is_secure(),
        httponly=True,
        samesite="Lax",
    )


def _name(name: str) -> str:
    return f"__Host-{name}" if _is_secure() else name


def _is_secure() -> bool:
    return bool(current_app.config[SECURE])
