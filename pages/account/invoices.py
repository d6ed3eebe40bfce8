"""The page of an invoice, for whoever has its signed link, signed in or not."""

import re
from typing import Any, Final

from flask import request
from flask.typing import ResponseReturnValue

from pages.account import forms

_TOKEN: Final = re.compile(r"invoice_[0-9A-Z]{26}\.[0-9]{1,12}\.[0-9A-Za-z_=-]{1,64}")


def invoice() -> ResponseReturnValue:
    token = request.args.get("token", "")
    if not _TOKEN.fullmatch(token):
        return _wrong_link()
    answer = forms.call_as("", "GET", f"/v1/invoices/{token}")
    if answer.code == "not_found":
        return _wrong_link()
    if not answer.is_ok:
        raise forms.ApiRefused(answer)
    root = request.root_path.removesuffix("/account")
    is_note = answer.body["kind"] == "credit_note"
    return forms.show(
        "invoice.html",
        invoice=answer.body,
        named="Credit note" if is_note else "Invoice",
        sides=[_side(answer.body[name]) for name in ("issuer", "customer")],
        pdf=f"{root}/v1/invoices/{token}/pdf",
    )


def amount(cents: int) -> str:
    """As in: 1,234.50."""
    sign, whole = ("-" if cents < 0 else ""), abs(cents)
    return f"{sign}{whole // 100:,}.{whole % 100:02}"


def _side(side: dict[str, Any]) -> list[str]:
    place = f"{side['postcode']} {side['city']}".strip()
    vat = f"VAT ID {side['vat_number']}" if side["vat_number"] else ""
    return [line for line in (side["name"], side["street"], place, side["country"], vat) if line]


def _wrong_link() -> ResponseReturnValue:
    return forms.show("invoice_wrong.html", forms.PageForm(status=404))
