"""The account: who is signed in, their organizations, and their sessions."""

import re
from typing import Any, Final

from flask import abort, redirect, request, url_for
from flask.typing import ResponseReturnValue

from pages.account import forms

_MOST: Final = 200
_SESSION_ID: Final = re.compile(r"ses_[0-9A-Z]{26}")


def overview() -> ResponseReturnValue:
    return _page(forms.require_me())


def end_session() -> ResponseReturnValue:
    me, session_id = forms.require_me(), request.form.get("session", "")
    if not _SESSION_ID.fullmatch(session_id):
        abort(404)
    answer = forms.call("DELETE", f"/v1/sessions/{session_id}")
    # One that has ended meanwhile is what was wanted.
    if answer.is_ok or answer.code == "not_found":
        return redirect(url_for("overview", done="ended"), 303)
    return _page(me, forms.refused(answer, ()))


def _page(me: dict[str, Any], form: forms.PageForm | None = None) -> ResponseReturnValue:
    sessions = forms.call("GET", f"/v1/sessions?limit={_MOST}")
    if not sessions.is_ok:
        raise forms.ApiRefused(sessions)
    items = sessions.body["items"]
    # Its own first: it is the one that cannot be ended by mistake.
    items.sort(key=lambda session: not session["current"])
    done = request.args.get("done", "")
    return forms.show("overview.html", form, me=me, sessions=items, done=done)
