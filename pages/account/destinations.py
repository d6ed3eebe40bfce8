"""Where one goes after signing in: a page by its name, or what a letter led to; never a URL."""

import re
from typing import Any, Final

from flask import redirect, request, url_for
from werkzeug.wrappers import Response

_TOKEN: Final = re.compile(r"(mi_|mp_|mv_)[0-9A-Za-z]{8,100}")
_INVITE, _RESET, _EMAIL = "mi_", "mp_", "mv_"
_PAGES: Final = {
    "device": "device",
    "second-factor": "second_factor",
    "password": "password",
    "email": "email",
}
# Of letters whose page wants somebody signed in, by what forms and links call their tokens.
_LETTERS: Final = {"invite": (_INVITE, "invite"), "confirm": (_EMAIL, "email")}


def invite_token(name: str = "invite") -> str:
    """The token of an invite that the request names; empty where it is none."""
    return _token(name, _INVITE)


def reset_token() -> str:
    """As `invite_token`, of a letter by which a password is reset."""
    return _token("token", _RESET)


def email_token() -> str:
    """As `invite_token`, of a letter by which an address is confirmed."""
    return _token("token", _EMAIL)


def named() -> dict[str, Any]:
    """What forms and links carry on of it."""
    for name, (prefix, _) in _LETTERS.items():
        if token := _token(name, prefix):
            return {name: token}
    after = request.values.get("next", "")
    return {"next": after} if after in _PAGES else {}


def onward() -> Response:
    for name, (prefix, page) in _LETTERS.items():
        if token := _token(name, prefix):
            return redirect(url_for(page, token=token), 303)
    return redirect(page_of(request.values.get("next", "")), 303)


def page_of(name: str) -> str:
    """Where a page of this name is; the account, where there is none."""
    return url_for(_PAGES.get(name, "overview"))


def _token(name: str, prefix: str) -> str:
    given = request.values.get(name, "")
    return given if _TOKEN.fullmatch(given) and given.startswith(prefix) else ""
