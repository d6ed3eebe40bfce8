"""What one signs in with: the password and the email address, changed."""

from typing import Any, Final

from flask import redirect, request, url_for
from flask.typing import ResponseReturnValue

from pages.account import destinations, forms
from pages.account.api import ApiAnswer

PASSWORD_FIELDS: Final = ("current_password", "new_password")
EMAIL_FIELDS: Final = ("email", "password")
_SAYS: Final = {
    "account_rate_limited": "Too many passwords were tried.",
    "not_found": "No such link was sent to this account. It may be incomplete, or for"
    " another account: sign in with that one, and open the link again.",
    "quota": "Five emails were sent today. Use the link in the last one, or try again tomorrow.",
}
_OVER: Final = frozenset({"email_token_used", "email_token_expired", "not_found", "conflict"})


def password() -> ResponseReturnValue:
    me = forms.require_me()
    if request.method == "GET":
        return forms.show("password.html", me=me)
    body = forms.typed(*PASSWORD_FIELDS)
    answer = forms.call("POST", "/v1/me/password", body=body, key=forms.sent_key())
    if answer.is_ok:
        return redirect(url_for("overview", done="password"), 303)
    if answer.code == "mfa_required":
        return redirect(url_for("code", next="password"), 303)
    return forms.show("password.html", _refused(answer, PASSWORD_FIELDS, "current_password"), me=me)


def email() -> ResponseReturnValue:
    """Where another address is asked for, and what the link of its letter leads to."""
    if "token" not in request.args:
        return _email_page(forms.require_me())
    token = destinations.email_token()
    return _confirm_page(forms.require_me(), token) if token else _wrong_link()


def change_email() -> ResponseReturnValue:
    me, typed = forms.require_me(), forms.typed(*EMAIL_FIELDS)
    body = {**typed, "email": typed["email"].strip()}
    answer = forms.call("POST", "/v1/me/email", body=body, key=forms.sent_key())
    if answer.is_ok:
        return redirect(url_for("email", done="asked"), 303)
    if answer.code == "mfa_required":
        return redirect(url_for("code", next="email"), 303)
    return _email_page(me, _refused(answer, EMAIL_FIELDS, "password"))


def confirm_email() -> ResponseReturnValue:
    me, token = forms.require_me(), destinations.email_token()
    if not token:
        return _wrong_link()
    path, body = "/v1/me/email/actions/confirm", {"email_token": token}
    answer = forms.call("POST", path, body=body, key=forms.sent_key())
    if answer.is_ok:
        return redirect(url_for("overview", done="email"), 303)
    if answer.body.get("errors"):
        return _wrong_link()
    return _confirm_page(me, token, forms.refused(answer, (), says=_SAYS))


def _refused(answer: ApiAnswer, fields: tuple[str, ...], proof: str) -> forms.PageForm:
    return forms.refused(answer, fields, at={"password_refused": proof}, says=_SAYS)


def _wrong_link() -> ResponseReturnValue:
    return forms.show("email_wrong.html", forms.PageForm(status=404))


def _email_page(me: dict[str, Any], form: forms.PageForm | None = None) -> ResponseReturnValue:
    return forms.show("email.html", form, me=me, done=request.args.get("done", ""))


def _confirm_page(
    me: dict[str, Any], token: str, form: forms.PageForm | None = None
) -> ResponseReturnValue:
    is_over = form is not None and form.code in _OVER
    return forms.show("email_confirm.html", form, me=me, token=token, is_over=is_over)
