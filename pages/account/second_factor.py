"""The second factor: an authenticator app set up by a QR code, its recovery codes, and removed."""

import re
from typing import Any, Final

import segno
from flask import redirect, request, url_for
from flask.typing import ResponseReturnValue
from markupsafe import Markup

from pages.account import forms
from pages.account.api import ApiAnswer
from pages.account.sign_in import typed_code

_MOST: Final = 200
_ENROLMENT: Final = re.compile(r"otpauth://totp/[!-~]{1,600}")
_SECRET: Final = re.compile(r"[?&]secret=([A-Z2-7]{16,64})(&|$)")


def second_factor() -> ResponseReturnValue:
    return page(forms.require_me())


def enrol() -> ResponseReturnValue:
    me, password = forms.require_me(), request.form.get("password", "")
    body = {"password": password} if password else {}
    answer = forms.call("POST", "/v1/me/totp", body=body, key=forms.sent_key())
    if answer.code == "mfa_required":
        return redirect(url_for("code", next="second-factor"), 303)
    if not answer.is_ok:
        return page(me, _refused(answer, "password"))
    return _scan(me, answer.body["otpauth_uri"])


def confirm() -> ResponseReturnValue:
    me, body = forms.require_me(), {"code": typed_code()}
    answer = forms.call("POST", "/v1/me/totp/actions/confirm", body=body, key=forms.sent_key())
    if answer.is_ok:
        return codes_page(me, answer, "app")
    form, uri = _refused(answer, "code"), request.form.get("uri", "")
    # It is shown by the API once, and was on the page that this comes from.
    if answer.code != "conflict" and _ENROLMENT.fullmatch(uri) and _SECRET.search(uri):
        return _scan(me, uri, form)
    return page(me, form)


def remove() -> ResponseReturnValue:
    me = forms.require_me()
    answer = forms.call("DELETE", "/v1/me/totp")
    if answer.code == "mfa_required":
        return redirect(url_for("code", next="second-factor"), 303)
    if not answer.is_ok:
        return page(me, _refused(answer))
    return redirect(url_for("second_factor", done="removed"), 303)


def renew_recovery_codes() -> ResponseReturnValue:
    me = forms.require_me()
    answer = forms.call("POST", "/v1/me/recovery-codes", key=forms.sent_key())
    if answer.code == "mfa_required":
        return redirect(url_for("code", next="second-factor"), 303)
    if not answer.is_ok:
        return page(me, _refused(answer))
    return codes_page(me, answer, "renewed")


def _refused(answer: ApiAnswer, *fields: str) -> forms.PageForm:
    at = {"code_refused": "code", "password_refused": "password", "password_required": "password"}
    return forms.refused(answer, fields, at=at)


def page(me: dict[str, Any], form: forms.PageForm | None = None) -> ResponseReturnValue:
    passkeys = forms.call("GET", f"/v1/me/passkeys?limit={_MOST}")
    if not passkeys.is_ok:
        raise forms.ApiRefused(passkeys)
    items, done = passkeys.body["items"], request.args.get("done", "")
    return forms.show("second_factor.html", form, me=me, passkeys=items, done=done)


def codes_page(me: dict[str, Any], answer: ApiAnswer, why: str) -> ResponseReturnValue:
    """What the API shows once, in the answer to the form: no page of its own could show it."""
    codes = answer.body["recovery_codes"]
    return forms.show("recovery_codes.html", me=me, codes=codes, why=why)


def _scan(me: dict[str, Any], uri: str, form: forms.PageForm | None = None) -> ResponseReturnValue:
    found = _SECRET.search(uri)
    secret = found.group(1) if found else ""
    groups = " ".join(secret[at : at + 4] for at in range(0, len(secret), 4))
    return forms.show("enrol.html", form, me=me, uri=uri, secret=groups, picture=_picture(uri))


def _picture(uri: str) -> Markup:
    """The QR code as SVG within the page: black on white, as scanners want it. No style in it."""
    code = segno.make(uri, micro=False, error="m")
    svg = code.svg_inline(
        omitsize=True, border=4, dark="#000", light="#fff", svgclass=None, lineclass=None
    )
    # Of numbers and our two colours.
    return Markup(svg)  # noqa: S704
