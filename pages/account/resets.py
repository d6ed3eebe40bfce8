"""A lost password: a letter is asked for, and leads to a page where another one is chosen."""

from typing import Final

from flask import redirect, request, url_for
from flask.typing import ResponseReturnValue

from pages.account import destinations, forms
from pages.account.api import ApiAnswer

_SAYS: Final = {
    "account_rate_limited": "Too many passwords were tried with this link.",
    "not_found": "There is no such link. Part of it may be missing: copy the whole of it.",
}
# What ends a link, so that its form is of no use any more.
_OVER: Final = frozenset({"reset_used", "reset_expired", "not_found"})


def reset() -> ResponseReturnValue:
    """What the link of the letter leads to, or where one is asked for; nothing happens yet."""
    if "token" not in request.args:
        done = request.args.get("done", "")
        return forms.show("reset_ask.html", done=done)
    token = destinations.reset_token()
    return _choose(token) if token else _wrong_link()


def ask_reset() -> ResponseReturnValue:
    """The page that follows says the same of every address, as the API does."""
    body = {"email": request.form.get("email", "").strip()}
    answer = forms.call_as("", "POST", "/v1/password-resets", body=body, key=forms.sent_key())
    if not answer.is_ok:
        return forms.show("reset_ask.html", forms.refused(answer, ["email"]))
    return redirect(url_for("reset", done="asked"), 303)


def complete_reset() -> ResponseReturnValue:
    token = destinations.reset_token()
    if not token:
        return _wrong_link()
    body = {"reset_token": token, **forms.typed("password")}
    path = "/v1/password-resets/actions/complete"
    answer = forms.call_as("", "POST", path, body=body, key=forms.sent_key())
    if answer.is_ok:
        return redirect(url_for("sign_in", done="reset"), 303)
    if _is_token_wrong(answer):
        return _wrong_link()
    return _choose(token, forms.refused(answer, ["password"], says=_SAYS))


def _is_token_wrong(answer: ApiAnswer) -> bool:
    """As of a link that was copied in part."""
    pointers = [error.get("pointer") for error in answer.body.get("errors", ())]
    return "/reset_token" in pointers


def _wrong_link() -> ResponseReturnValue:
    return forms.show("reset_wrong.html", forms.PageForm(status=404))


def _choose(token: str, form: forms.PageForm | None = None) -> ResponseReturnValue:
    is_over = form is not None and form.code in _OVER
    return forms.show("reset.html", form, token=token, is_over=is_over)
