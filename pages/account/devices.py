"""Letting in a program that has no browser, by the code that it shows."""

from typing import Any, Final

from flask import redirect, request, url_for
from flask.typing import ResponseReturnValue

from pages.account import forms
from pages.account.api import ApiAnswer

_DECISIONS: Final = frozenset({"approved", "denied"})
_SAYS: Final = {
    "not_found": "No program waits with this code: it is wrong, was used, or is older than ten"
    " minutes."
}


def device() -> ResponseReturnValue:
    """No link fills the code in: whoever sends one wants to be let in by somebody else."""
    return _code_page(forms.require_me())


def find_device() -> ResponseReturnValue:
    me, body = forms.require_me(), _typed()
    answer = forms.call("POST", "/v1/device-logins/actions/find", body=body, key=forms.sent_key())
    if not answer.is_ok:
        return _code_page(me, _refused(answer))
    return forms.show("device_decide.html", me=me, login=answer.body, **body)


def decide_device() -> ResponseReturnValue:
    me, body = forms.require_me(), _typed()
    decision = request.form.get("decision", "")
    body["decision"] = decision if decision in _DECISIONS else "denied"
    answer = forms.call("POST", "/v1/device-logins/actions/decide", body=body, key=forms.sent_key())
    if answer.code == "mfa_required":
        return redirect(url_for("code", next="device"), 303)
    if not answer.is_ok:
        return _code_page(me, _refused(answer))
    return redirect(url_for("device", done=body["decision"]), 303)


def _typed() -> dict[str, Any]:
    return {"user_code": request.form.get("user_code", "").strip()}


def _refused(answer: ApiAnswer) -> forms.PageForm:
    form = forms.refused(answer, ["user_code"], at={"not_found": "user_code"}, says=_SAYS)
    if answer.body.get("errors"):
        form.errors["user_code"] = "Enter the code that the program shows, such as WDJB-MJHT."
    return form


def _code_page(me: dict[str, Any], form: forms.PageForm | None = None) -> ResponseReturnValue:
    return forms.show("device.html", form, me=me, done=request.args.get("done", ""))
