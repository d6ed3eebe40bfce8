"""Signing in and out, and giving the second factor."""

from typing import Final

from flask import redirect, request, url_for
from flask.typing import ResponseReturnValue
from werkzeug.wrappers import Response

from pages.account import cookies, destinations, forms, sso
from pages.account.api import ApiAnswer

FIELDS: Final = ("email", "password")
_BREAK_GLASS_SAYS: Final = {
    "sign_in_refused": "The email address, the password or the code is wrong.",
    "sso_required": "This way is for owners of an organization who have a second factor.",
}
_RECOVERY_REFUSED: Final = "This code is wrong or has already been used. Enter another one."


def sign_in() -> ResponseReturnValue:
    if request.method == "POST":
        return _open_session()
    if cookies.session_token():
        try:
            forms.require_me()
        except forms.SignedOut:
            pass
        else:
            return destinations.onward()
    return _form()


def sign_out() -> ResponseReturnValue:
    """Also without a session, as somebody who signs out wants to be sure of it."""
    end_session()
    named = destinations.named()
    response = redirect(url_for("sign_in", **(named or {"done": "signed-out"})), 303)
    cookies.drop(response)
    return response


def code() -> ResponseReturnValue:
    me = forms.require_me()
    has_app, has_passkey = me["user"]["totp_enabled"], bool(me["user"]["passkeys"])
    if not has_app and not has_passkey:
        return destinations.onward()
    if not (has_app or _is_recovery()):
        return redirect(url_for("passkey_code", **destinations.named()), 303)
    if request.method == "GET":
        return _code_form(me)
    path = "/v1/sessions/current/actions/step-up"
    answer = forms.call("POST", path, body={"code": typed_code()}, key=forms.sent_key())
    if answer.is_ok:
        return destinations.onward()
    says = {"code_refused": _RECOVERY_REFUSED} if _is_recovery() else {}
    form = forms.refused(answer, ["code"], at={"code_refused": "code"}, says=says)
    return _code_form(me, form)


def _is_recovery() -> bool:
    return request.values.get("with") == "recovery"


def typed_code() -> str:
    """Without the spaces that apps show codes with."""
    return "".join(request.form.get("code", "").split())


def open_session(email: str, password: str, purpose: str = "") -> tuple[ApiAnswer, str]:
    """What the API said, and the token of the new session; the browser's former one ends."""
    body = {"email": email, "password": password}
    answer = forms.call_as("", "POST", "/v1/sessions", body=body, key=forms.sent_key(purpose))
    if not answer.is_ok:
        return answer, ""
    token = str(answer.body["token"])
    if token != cookies.session_token():
        end_session()
    return answer, token


def _open_session() -> ResponseReturnValue:
    typed = forms.typed(*FIELDS)
    answer, token = open_session(typed["email"].strip(), typed["password"])
    if answer.code == "sso_required":
        return sso.continue_page(str(answer.body.get("sign_in_url", "")), typed["email"].strip())
    if not token:
        return _form(forms.refused(answer, FIELDS))
    response = after(token)
    cookies.keep_session(response, token)
    return response


def break_glass() -> ResponseReturnValue:
    """For owners, with the second factor at once, where single sign-on is enforced."""
    if request.method == "GET":
        return forms.show("break_glass.html")
    typed = forms.typed(*FIELDS)
    typed["email"] = typed["email"].strip()
    body = {**typed, "totp_code": typed_code(), "break_glass": True}
    answer = forms.call_as("", "POST", "/v1/sessions", body=body, key=forms.sent_key())
    if not answer.is_ok:
        return forms.show("break_glass.html", _not_broken(answer))
    token = str(answer.body["token"])
    if token != cookies.session_token():
        end_session()
    response = destinations.onward()
    cookies.keep_session(response, token)
    return response


def _not_broken(answer: ApiAnswer) -> forms.PageForm:
    form = forms.refused(answer, FIELDS, says=_BREAK_GLASS_SAYS)
    if any(one.get("pointer") == "/totp_code" for one in answer.body.get("errors", ())):
        form.failure = ""
        form.errors["code"] = "Enter the six digits that your app shows, or a recovery code."
    return form


def after(token: str) -> Response:
    """Whoever has a second factor is asked for it."""
    me = forms.call_as(token, "GET", "/v1/me")
    if me.is_ok and (me.body["user"]["totp_enabled"] or me.body["user"]["passkeys"]):
        return redirect(url_for("code", **destinations.named()), 303)
    return destinations.onward()


def end_session() -> None:
    """A browser has one session: whoever was signed in here before is so no more."""
    if token := cookies.session_token():
        forms.call_as(token, "DELETE", "/v1/sessions/current")


def _form(form: forms.PageForm | None = None) -> ResponseReturnValue:
    done = request.args.get("done", "")
    return forms.show("sign_in.html", form, onward=destinations.named(), done=done)


def _code_form(me: dict[str, object], form: forms.PageForm | None = None) -> ResponseReturnValue:
    named = destinations.named()
    return forms.show("code.html", form, me=me, onward=named, is_recovery=_is_recovery())
