"""Passkeys: signing in and stepping up with one, and those that somebody has.

A browser gives one to a script alone. These pages have a small one, which puts what it says into
the form; all other pages work, and are shown, without any.
"""

import json
import re
from typing import Any, Final

from flask import abort, g, redirect, request, url_for
from flask.typing import ResponseReturnValue

from pages.account import cookies, destinations, forms, second_factor, sign_in, sso, wording
from pages.account.api import ApiAnswer

_PASSKEY_ID: Final = re.compile(r"pk_[0-9A-Z]{26}")
_SAYS: Final = {
    "conflict": "You have no passkey, or this one was added already.",
    "not_found": "This passkey has been removed.",
    "quota": "You have as many passkeys as one can have. Remove one that you no longer use.",
    "passkey_refused": "This passkey cannot be used here, or it took too long. Try again.",
    "sign_in_refused": "This passkey is not known here, or it took too long. Try again.",
    "passkeys_unavailable": "Browsers make no passkeys for the address of this service.",
}


def passkey_sign_in() -> ResponseReturnValue:
    if request.method == "GET":
        return _sign_in_page()
    body: dict[str, Any] = {"credential": _credential()}
    body |= {"break_glass": True} if _is_break_glass() else {}
    path = "/v1/sessions/actions/sign-in-with-passkey"
    answer = forms.call_as("", "POST", path, body=body, key=forms.sent_key())
    if answer.code == "sso_required":
        return sso.continue_page(str(answer.body.get("sign_in_url", "")))
    if not answer.is_ok:
        return _sign_in_page(_refused(answer))
    token = str(answer.body["token"])
    if token != cookies.session_token():
        sign_in.end_session()
    response = destinations.onward()
    cookies.keep_session(response, token)
    return response


def _is_break_glass() -> bool:
    return request.values.get("with") == "break-glass"


def passkey_code() -> ResponseReturnValue:
    """The second factor of who is signed in."""
    me = forms.require_me()
    if not me["user"]["passkeys"]:
        return destinations.onward()
    if request.method == "GET":
        return _code_page(me)
    body = {"credential": _credential()}
    path = "/v1/sessions/current/actions/step-up-with-passkey"
    answer = forms.call("POST", path, body=body, key=forms.sent_key())
    return destinations.onward() if answer.is_ok else _code_page(me, _refused(answer))


def add_passkey() -> ResponseReturnValue:
    """The options, or the password before; a POST, as the password is in it."""
    me, password = forms.require_me(), request.form.get("password", "")
    body = {"password": password} if password else {}
    path = "/v1/me/passkeys/actions/options"
    answer = forms.call("POST", path, body=body, key=forms.sent_key())
    if answer.is_ok:
        return _add_page(me, answer.body["public_key"])
    if answer.code == "mfa_required":
        return redirect(url_for("code", next="second-factor"), 303)
    if answer.code in {"password_required", "password_refused"}:
        at = {answer.code: "password"}
        return forms.show(
            "passkey_password.html", forms.refused(answer, ["password"], at=at), me=me
        )
    return second_factor.page(me, _refused(answer))


def create_passkey() -> ResponseReturnValue:
    me, name = forms.require_me(), request.form.get("name", "").strip()
    body = {"name": name, "credential": _credential()}
    answer = forms.call("POST", "/v1/me/passkeys", body=body, key=forms.sent_key())
    if answer.code == "mfa_required":
        return redirect(url_for("code", next="second-factor"), 303)
    if not answer.is_ok:
        # Its options were used, or are too old: new ones come with another try.
        return second_factor.page(me, _refused(answer))
    if answer.body["recovery_codes"]:
        return second_factor.codes_page(me, answer, "passkey")
    return redirect(url_for("second_factor", done="passkey"), 303)


def rename_passkey() -> ResponseReturnValue:
    me, body = forms.require_me(), {"name": request.form.get("name", "").strip()}
    answer = forms.call("PATCH", f"/v1/me/passkeys/{_named()}", body=body)
    if not answer.is_ok:
        return second_factor.page(me, _refused(answer))
    return redirect(url_for("second_factor", done="renamed"), 303)


def remove_passkey() -> ResponseReturnValue:
    me = forms.require_me()
    answer = forms.call("DELETE", f"/v1/me/passkeys/{_named()}")
    if answer.code == "mfa_required":
        return redirect(url_for("code", next="second-factor"), 303)
    # One that has gone meanwhile is what was wanted.
    if answer.is_ok or answer.code == "not_found":
        return redirect(url_for("second_factor", done="passkey-removed"), 303)
    return second_factor.page(me, _refused(answer))


def _named() -> str:
    given = request.form.get("passkey", "")
    if not _PASSKEY_ID.fullmatch(given):
        abort(404)
    return given


def _credential() -> Any:
    """What the script put into the form; the API says what is wrong with it."""
    try:
        return json.loads(request.form.get("credential", ""))
    except (ValueError, RecursionError):
        return None


def _refused(answer: ApiAnswer) -> forms.PageForm:
    """As a whole: what is wrong is in no field that anybody typed in, but for a name."""
    form = forms.refused(answer, (), says=_SAYS)
    named = [one for one in answer.body.get("errors", ()) if one.get("pointer") == "/name"]
    if named:
        said = f"The name {wording.lowered(str(named[0].get('message', '')))}"
        form.failure = said if request.form.get("name", "").strip() else "Enter a name."
    elif answer.status == 422 and answer.code != "quota":  # noqa: PLR2004 -- its form is wrong
        form.failure = "No passkey was given. Try again."
    return form


def _sign_in_page(form: forms.PageForm | None = None) -> ResponseReturnValue:
    options, form = _options("", "/v1/sessions/actions/passkey-options", form)
    onward = destinations.named() | ({"with": "break-glass"} if _is_break_glass() else {})
    return _scripted("passkey.html", form, options=options, onward=onward)


def _code_page(me: dict[str, Any], form: forms.PageForm | None = None) -> ResponseReturnValue:
    path = "/v1/sessions/current/actions/passkey-options"
    options, form = _options(cookies.session_token(), path, form)
    return _scripted("passkey_code.html", form, me=me, options=options, onward=destinations.named())


def _add_page(me: dict[str, Any], options: dict[str, Any]) -> ResponseReturnValue:
    device = wording.device(request.headers.get("User-Agent"))
    return _scripted("passkey_add.html", None, me=me, options=json.dumps(options), device=device)


def _options(
    token: str, path: str, form: forms.PageForm | None
) -> tuple[str, forms.PageForm | None]:
    """As JSON; empty where there are none, and the form says why."""
    answer = forms.call_as(token, "POST", path)
    if answer.is_ok:
        return json.dumps(answer.body["public_key"]), form
    return "", form or _refused(answer)


def _scripted(template: str, form: forms.PageForm | None, **said: Any) -> ResponseReturnValue:
    g.has_script = bool(said["options"])
    return forms.show(template, form, **said)
