"""That a form was sent by a page of ours, in the browser that it was given to.

A form carries a proof made of a cookie: the session's or, before there is one, that of the forms.
Another site has neither the page nor the cookie, so it can sign nobody in or out either.
"""

import hashlib
import hmac
import ipaddress
from typing import Final
from urllib.parse import urlsplit

from flask import abort, current_app, request

from pages.account import cookies

FIELD: Final = "proof"
# What an identity provider sends is signed by it, and belongs to a sign-in that began in this
# browser, which its cookie tells: see `saml`.
_FROM_ELSEWHERE: Final = "saml_acs"
_CHANGING: Final = "POST"


def proof() -> str:
    """For a form on the page that answers this request."""
    return _proof_of(_secret() or cookies.new_form_secret())


def check() -> None:
    """Before each request: 403 for a form of elsewhere, and for whoever is not here by TLS."""
    if request.endpoint != "static":
        _check_host()
    if request.method != _CHANGING or request.endpoint == _FROM_ELSEWHERE:
        return
    if not _is_from_here():
        abort(403)
    secret = _secret()
    given = request.form.get(FIELD, "").encode(errors="replace")
    if not secret or not hmac.compare_digest(given, _proof_of(secret).encode()):
        abort(403)


def _check_host() -> None:
    """Without TLS only on this machine: passwords go nowhere else, and no other name leads here."""
    if current_app.config[cookies.SECURE]:
        return
    try:
        host = urlsplit(f"//{request.host}").hostname or ""
    except ValueError:
        host = ""
    if host != "localhost" and not host.endswith(".localhost") and not _is_loopback(host):
        abort(421)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_from_here() -> bool:
    """By what browsers say. An old one says `null`, as our pages tell nobody where one was."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site == "same-origin"
    origin = request.headers.get("Origin", "null")
    return origin == "null" or urlsplit(origin).netloc == request.host


def _secret() -> str:
    return cookies.session_token() or cookies.form_secret()


def _proof_of(secret: str) -> str:
    return hmac.new(secret.encode(), b"account form", hashlib.sha256).hexdigest()
