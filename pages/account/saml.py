"""Where an identity provider of SAML has the browser send its response (ACS).

The form is one of the provider's site, so it carries no proof of ours. What stands in its place is
the cookie of the sign-in that this browser has begun: the API takes the response only for that.
Nothing here is a URL to go to; RelayState is the name of the sign-in.
"""

from typing import Final

from flask import abort, request
from werkzeug.wrappers import Response

from pages.account import cookies, forms, sso
from pages.account.api import ApiAnswer

_AGAIN: Final = "Begin again: this sign-in has ended, or began in another browser."
_CLOCK: Final = "The clock of your identity provider differs from ours. Ask whoever looks after it."
_REASONS: Final = {
    "assertion_expired": _CLOCK,
    "assertion_not_yet_valid": _CLOCK,
    "identity_provider_refused": "Your identity provider did not let you in. Try again, or ask"
    " whoever looks after it.",
    "replayed": _AGAIN,
    "sign_in_unknown": _AGAIN,
    "unsolicited": "Begin here, and not at your identity provider: enter your email address.",
}
_REFUSED: Final = (
    "Your identity provider's answer was refused. Ask whoever looks after it, and tell them: {}."
)


def saml_acs(connection_id: str) -> Response:
    if not sso.CONNECTION_ID.fullmatch(connection_id):
        abort(404)
    browser_token, after = cookies.begun_sso(cookies.SSO_BY_FORM)
    body = {
        "connection_id": connection_id,
        "saml_response": request.form.get("SAMLResponse", ""),
        "relay_state": request.form.get("RelayState", ""),
        "browser_token": browser_token,
    }
    answer = forms.call_as("", "POST", "/v1/sso/saml/sessions", body=body)
    if not answer.is_ok:
        return _ended(sso.find_page(_refused(answer)))
    return _ended(sso.open_session(str(answer.body["token"]), after))


def _ended(response: Response) -> Response:
    cookies.drop(response, cookies.SSO_BY_FORM)
    return response


def _refused(answer: ApiAnswer) -> forms.PageForm:
    form = forms.refused(answer, (), says=sso.SAYS)
    reason = str(answer.body.get("reason", ""))
    if answer.code == "saml_refused":
        form.failure = _REASONS.get(reason) or _REFUSED.format(reason)
    elif answer.body.get("errors"):
        form.failure = _REFUSED.format("document_refused")
    return form
