"""An invite: an account made from it, or accepted by whoever is signed in."""

from typing import Any, Final

from flask import redirect, url_for
from flask.typing import ResponseReturnValue

from pages.account import cookies, destinations, forms, sign_in
from pages.account.api import ApiAnswer

FIELDS: Final = ("name", "password")
# What ends an invite, so that no form is of use any more.
_OVER: Final = frozenset(
    {"invite_used", "invite_revoked", "invite_expired", "not_found", "org_closed", "already_member"}
)


def invite() -> ResponseReturnValue:
    """What the link of the email leads to; nothing happens until a form is sent."""
    token = destinations.invite_token("token")
    if not token:
        return _wrong_link()
    return _page(token, _me())


def create_account() -> ResponseReturnValue:
    token = destinations.invite_token("token")
    body = {"invite_token": token, **forms.typed(*FIELDS)}
    answer = forms.call_as("", "POST", "/v1/users", body=body, key=forms.sent_key())
    if _is_token_wrong(answer):
        return _wrong_link()
    if not answer.is_ok:
        return _page(token, None, forms.refused(answer, FIELDS))
    _, session = sign_in.open_session(answer.body["email"], body["password"], "-session")
    if not session:
        return redirect(url_for("sign_in", done="account"), 303)
    response = redirect(url_for("overview", done="account"), 303)
    cookies.keep_session(response, session)
    return response


def accept_invite() -> ResponseReturnValue:
    me, token = forms.require_me(), destinations.invite_token("token")
    if not token:
        return _wrong_link()
    answer = forms.call("POST", f"/v1/invites/{token}/accept", key=forms.sent_key())
    if not answer.is_ok:
        return _page(token, me, forms.refused(answer, ()))
    return redirect(url_for("overview", done="joined"), 303)


def _is_token_wrong(answer: ApiAnswer) -> bool:
    """As of a link that was copied in part."""
    pointers = [error.get("pointer") for error in answer.body.get("errors", ())]
    return "/invite_token" in pointers


def _wrong_link() -> ResponseReturnValue:
    return forms.show("invite_wrong.html", forms.PageForm(status=404))


def _me() -> dict[str, Any] | None:
    try:
        return forms.require_me()
    except forms.SignedOut:
        return None


def _page(
    token: str, me: dict[str, Any] | None, form: forms.PageForm | None = None
) -> ResponseReturnValue:
    is_over = form is not None and form.code in _OVER
    return forms.show("invite.html", form, me=me, token=token, is_over=is_over)
