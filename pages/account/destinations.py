"""Where one goes after signing in: a page of ours by its name, or the invite; never a URL."""

import re
from typing import Any, Final

from flask import redirect, request, url_for
from werkzeug.wrappers import Response

_INVITE: Final = re.compile(r"mi_[0-9A-Za-z]{8,100}")
_PAGES: Final = {"second-factor": "second_factor"}


def invite_token(name: str = "invite") -> str:
    """The token of an invite that the request names; empty where it is none."""
    given = request.values.get(name, "")
    return given if _INVITE.fullmatch(given) else ""


def named() -> dict[str, Any]:
    """What forms and links carry on of it."""
    if token := invite_token():
        return {"invite": token}
    after = request.values.get("next", "")
    return {"next": after} if after in _PAGES else {}


def onward() -> Response:
    if token := invite_token():
        return redirect(url_for("invite", token=token), 303)
    page = _PAGES.get(request.values.get("next", ""), "overview")
    return redirect(url_for(page), 303)
