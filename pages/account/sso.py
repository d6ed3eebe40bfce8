"""Signing in with an organization's identity provider: found by an address, and led to.

Forms lead to a page with a link, and never to another host themselves: the policy of the pages lets
forms send to this one alone, wherever they are redirected.
"""

import re
from typing import Any, Final
from urllib.parse import urlencode

from flask import abort, redirect, request, url_for
from werkzeug.wrappers import Response

from pages.account import cookies, destinations, forms
from pages.account.api import ApiAnswer

_FROM_HERE: Final = "same-origin"
CONNECTION_ID: Final = re.compile(r"ssoc_[0-9A-Z]{26}")
_ADDRESS: Final = re.compile(r"[0-9A-Za-z_+.'&-]{1,64}@[0-9A-Za-z.-]{1,180}")
SAYS: Final = {
    "not_found": "There is no such way to sign in. Enter your email address to find yours.",
    "seat_limit": "Your organization has no free seat. Ask whoever looks after it.",
}
_NO_PROVIDER: Final = (
    "No organization has connected an identity provider for {}. Sign in with a password or a"
    " passkey, or ask whoever looks after your organization."
)
# Of RFC 6749, what a provider says in place of a code; whatever else it says is not repeated.
_CANCELLED: Final = "access_denied"


def sso() -> Response:
    """Which provider an address signs in with."""
    if request.method == "GET":
        return find_page()
    email = request.form.get("email", "").strip()
    answer = forms.call_as("", "GET", f"/v1/sso/discover?{urlencode({'email': email})}")
    if not answer.is_ok:
        return find_page(_refused_address(answer))
    connection = answer.body["connection"]
    if connection is None:
        text = _NO_PROVIDER.format(answer.body["domain"])
        return find_page(forms.PageForm(values={"email": email}, failure=text))
    return continue_page(str(connection["sign_in_url"]), email)


def continue_page(sign_in_url: str, email: str = "") -> Response:
    """A link to where the sign-in begins, which browsers follow by themselves.

    The provider gets the address as a hint, so that nobody types it twice.
    """
    connection_id = sign_in_url.rpartition("/")[2]
    if not CONNECTION_ID.fullmatch(connection_id):
        return find_page()
    return _leading_on(connection_id, email, by_itself=True)


def _leading_on(connection_id: str, email: str, *, by_itself: bool) -> Response:
    start = url_for("sso_start", connection_id=connection_id, **_hint(email), **_after())
    return forms.show("sso_continue.html", start=start, by_itself=by_itself)


def sso_start(connection_id: str) -> Response:
    """Off to the provider, with what binds the way back to this browser.

    From a page of ours, as a browser says. Whoever comes by a link of elsewhere is asked first: it
    may lead to the provider of a stranger, who would have them signed in as somebody else.
    """
    if not CONNECTION_ID.fullmatch(connection_id):
        abort(404)
    # Browsers that do not say it are older than 2023, and cannot be asked for ever.
    if request.headers.get("Sec-Fetch-Site", _FROM_HERE) != _FROM_HERE:
        return _leading_on(connection_id, request.args.get("login_hint", ""), by_itself=False)
    body = {"connection_id": connection_id, **_hint(request.args.get("login_hint", ""))}
    answer = forms.call_as("", "POST", "/v1/sso/sign-ins", body=body)
    if not answer.is_ok:
        return find_page(forms.refused(answer, (), says=SAYS))
    response = redirect(str(answer.body["redirect_url"]), 303)
    browser_token, after = str(answer.body["browser_token"]), _after().get("next", "")
    cookies.keep_sso(response, browser_token, after, by_form=answer.body["kind"] == "saml")
    return response


def sso_callback() -> Response:
    """Where a provider of OpenID Connect sends the browser back to."""
    browser_token, after = cookies.begun_sso()
    if "error" in request.args:
        return ended(find_page(_provider_refused(request.args["error"])))
    body: dict[str, Any] = {"browser_token": browser_token}
    body |= {name: request.args.get(name, "") for name in ("code", "state")}
    if "iss" in request.args:
        body["iss"] = request.args["iss"]
    answer = forms.call_as("", "POST", "/v1/sso/sessions", body=body)
    if not answer.is_ok:
        return ended(find_page(_refused_return(answer)))
    return open_session(str(answer.body["token"]), after)


def open_session(token: str, after: str) -> Response:
    """The browser's, in place of the one that it had."""
    if (former := cookies.session_token()) and former != token:
        forms.call_as(former, "DELETE", "/v1/sessions/current")
    response = redirect(destinations.page_of(after), 303)
    cookies.keep_session(response, token)
    return ended(response)


def ended(response: Response) -> Response:
    cookies.drop(response, cookies.SSO)
    return response


def _hint(email: str) -> dict[str, Any]:
    """Only what looks like an address: it may have come by somebody's link."""
    return {"login_hint": email} if _ADDRESS.fullmatch(email) else {}


def _after() -> dict[str, Any]:
    """A page to go to; an invite is accepted by signing in this way."""
    named = destinations.named()
    return named if "next" in named else {}


def _refused_address(answer: ApiAnswer) -> forms.PageForm:
    """What is wrong is in the query, which has no pointers."""
    form = forms.refused(answer, ["email"])
    if answer.body.get("errors"):
        form.failure, typed = "", request.form.get("email", "").strip()
        form.errors["email"] = (
            "Enter an email address such as ada@example.com."
            if typed
            else "Enter your email address."
        )
    return form


def _refused_return(answer: ApiAnswer) -> forms.PageForm:
    form = forms.refused(answer, (), says=SAYS)
    if answer.body.get("errors"):
        form.failure = "The answer of the identity provider is incomplete. Sign in again."
    return form


def _provider_refused(error: str) -> forms.PageForm:
    text = (
        "You ended the sign-in at your identity provider."
        if error == _CANCELLED
        else "Your identity provider did not let you in. Try again, or ask whoever looks after it."
    )
    return forms.PageForm(failure=text, code="provider_refused", status=403)


def find_page(form: forms.PageForm | None = None) -> Response:
    return forms.show("sso.html", form, onward=_after())
