"""The account pages as one Flask app: its routes, its headers, and what it says of failures."""

from typing import Any, Final

from flask import Flask, Response, redirect, request, url_for
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import HTTPException

from pages import headers
from pages.account import (
    cookies,
    credentials,
    forgery,
    forms,
    invites,
    invoices,
    overview,
    passkeys,
    resets,
    second_factor,
    sign_in,
    wording,
)

# Where somebody is sent back to after signing in again, by the page that they were on.
_BACK_TO: Final = {
    "second_factor": "second-factor",
    "enrol": "second-factor",
    "confirm": "second-factor",
    "remove": "second-factor",
    "renew_recovery_codes": "second-factor",
    "add_passkey": "second-factor",
    "create_passkey": "second-factor",
    "rename_passkey": "second-factor",
    "remove_passkey": "second-factor",
    "password": "password",
    "email": "email",
    "change_email": "email",
}
# What a letter's token is called on the way.
_LETTERS: Final = {"accept_invite": "invite", "email": "confirm", "confirm_email": "confirm"}
_TITLES: Final = {
    403: "This form is out of date",
    404: "Page not found",
    405: "Page not found",
    413: "This is too long",
    421: "These pages need HTTPS",
    429: "Too many requests",
    500: "Something went wrong",
    503: "The service is busy",
}
_TEXTS: Final = {
    403: "Nothing was changed. Your browser has to accept cookies of this site; then open the page"
    " again, and send the form from there.",
    404: "There is no such page. The link may be incomplete.",
    405: "There is no such page. The link may be incomplete.",
    413: "Nothing was changed. Go back and enter less.",
    421: "They ask for passwords, so without HTTPS they open on the machine of the service only."
    " Whoever runs it can put it behind HTTPS and set base_url to its address.",
    500: "The service could not do this. Try again in a moment.",
}


def make_app(*, is_secure: bool) -> Flask:
    """`is_secure`: browsers reach the pages by HTTPS only."""
    app = Flask("pages", static_folder="static", template_folder="templates")
    # Werkzeug would send whoever writes a path in another way to the host that they named.
    app.url_map.merge_slashes = False
    app.url_map.strict_slashes = False
    app.config[cookies.SECURE] = is_secure
    app.jinja_env.filters |= {"moment": wording.moment, "device": wording.device}
    app.jinja_env.filters["amount"] = invoices.amount
    app.before_request(forgery.check)
    app.after_request(cookies.add)
    app.after_request(headers.add_to_account)
    app.register_error_handler(HTTPException, _failed)
    app.register_error_handler(forms.SignedOut, _signed_out)
    app.register_error_handler(forms.ApiRefused, _refused)
    _route(app)
    return app


def _route(app: Flask) -> None:
    app.add_url_rule("/", view_func=overview.overview)
    app.add_url_rule("/sign-in", view_func=sign_in.sign_in, methods=["GET", "POST"])
    app.add_url_rule("/code", view_func=sign_in.code, methods=["GET", "POST"])
    app.add_url_rule("/passkey", view_func=passkeys.passkey_sign_in, methods=["GET", "POST"])
    app.add_url_rule("/code/passkey", view_func=passkeys.passkey_code, methods=["GET", "POST"])
    app.add_url_rule("/invite", view_func=invites.invite)
    app.add_url_rule("/reset", view_func=resets.reset)
    app.add_url_rule("/invoice", view_func=invoices.invoice)
    app.add_url_rule("/password", view_func=credentials.password, methods=["GET", "POST"])
    app.add_url_rule("/email", view_func=credentials.email)
    app.add_url_rule("/second-factor", view_func=second_factor.second_factor)
    for path, view in (
        ("/sign-out", sign_in.sign_out),
        ("/invite/create-account", invites.create_account),
        ("/invite/accept", invites.accept_invite),
        ("/reset/ask", resets.ask_reset),
        ("/reset/complete", resets.complete_reset),
        ("/email/change", credentials.change_email),
        ("/email/confirm", credentials.confirm_email),
        ("/second-factor/enrol", second_factor.enrol),
        ("/second-factor/confirm", second_factor.confirm),
        ("/second-factor/remove", second_factor.remove),
        ("/passkeys/add", passkeys.add_passkey),
        ("/passkeys/create", passkeys.create_passkey),
        ("/passkeys/rename", passkeys.rename_passkey),
        ("/passkeys/remove", passkeys.remove_passkey),
        ("/second-factor/recovery-codes", second_factor.renew_recovery_codes),
        ("/sessions/end", overview.end_session),
    ):
        app.add_url_rule(path, view_func=view, methods=["POST"])


def _signed_out(_error: forms.SignedOut) -> ResponseReturnValue:
    after = _BACK_TO.get(request.endpoint or "", "")
    token = request.values.get("token", "")
    letter = _LETTERS.get(request.endpoint or "", "") if token else ""
    named: dict[str, Any] = {letter: token} if letter else {"next": after} if after else {}
    response = redirect(url_for("sign_in", **named), 303)
    cookies.drop(response)
    return response


def _refused(refused: forms.ApiRefused) -> ResponseReturnValue:
    answer = refused.answer
    text = wording.of_problem(answer.body, answer.retry_after)
    response, status = _notice(answer.status, text)
    if answer.retry_after:
        response.headers["Retry-After"] = answer.retry_after
    return response, status


def _failed(error: HTTPException) -> ResponseReturnValue:
    status = error.code or 500
    response, status = _notice(status, _TEXTS.get(status) or error.description or _TEXTS[500])
    for name, value in error.get_headers():
        if name == "Allow":
            response.headers[name] = value
    return response, status


def _notice(status: int, text: str) -> tuple[Response, int]:
    title = _TITLES.get(status, "This did not work")
    return forms.show("notice.html", title=title, text=text), status
