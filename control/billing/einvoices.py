"""Invoices and credit notes as XML of EN 16931, in the syntax of Factur-X (UN/CEFACT CII)."""

from datetime import timedelta
from typing import Any, Final

from control.policy.invoices import PERCENT
from control.policy.months import month_named
from storage.billing.invoices import Invoice

LEVEL: Final = "en16931"
_COMMERCIAL_INVOICE: Final = "380"
_CREDIT_NOTE: Final = "381"
_DISCOUNT: Final = "95"
_TRANSFER: Final = "58"
_UNSPECIFIED: Final = "1"
_ONE: Final = "C62"
"""The unit of a line: each is one, for its amount. Its text has the quantity as it was metered."""
_REASONS: Final = {"AE": "VATEX-EU-AE", "O": "VATEX-EU-O"}


def xml_of(invoice: Invoice) -> bytes:
    """Checked by the schema of the standard. Raises an exception of `facturx` for what it forbids.

    The names of the members are those that the standard gives its business terms.
    """
    import facturx  # noqa: PLC0415 -- large in memory, and the API makes none

    month = month_named(invoice.month)
    last_day = (month.end - timedelta(days=1)).date().isoformat()
    rate = {} if invoice.tax_category == "O" else {"vat_rate": _percent(invoice)}
    told: dict[str, Any] = {
        "BT-1": invoice.number,
        "BT-2": invoice.issued_at.date().isoformat(),
        "BT-3": _CREDIT_NOTE if invoice.is_credit_note else _COMMERCIAL_INVOICE,
        "BT-5": invoice.currency,
        "BG-4": {**_identifiers(invoice), **_party(invoice, invoice.issuer)},
        "BG-7": _party(invoice, invoice.customer),
        "BG-23": [_tax(invoice)],
        "BG-25": [_line(invoice, number, line) for number, line in enumerate(invoice.lines, 1)],
        "BT-72": last_day,
        "BT-73": month.begin.date().isoformat(),
        "BT-74": last_day,
        **(_correction(invoice) if invoice.corrects is not None else _payment(invoice)),
        "BT-106": _amount(invoice.subtotal_cents),
        "BT-109": _amount(invoice.subtotal_cents - invoice.credits_cents),
        "BT-110": _amount(invoice.tax_cents),
        "BT-112": _amount(invoice.total_cents),
        "BT-115": _amount(invoice.total_cents),
    }
    if invoice.credits_cents:
        told["BT-107"] = _amount(invoice.credits_cents)
        allowance = {"amount": _amount(invoice.credits_cents), "reason": "Credits"}
        category = {"vat_category_code": invoice.tax_category, **rate}
        told["BG-20"] = [{**allowance, "reason_code": _DISCOUNT, **category}]
    made: bytes = facturx.generate_cii_xml(told, level=LEVEL, check_schematron=None)
    return made


def _line(invoice: Invoice, number: int, line: dict[str, Any]) -> dict[str, Any]:
    """The standard has no prices below 0: a line of less than nothing is -1 of something."""
    cents = line["amount_cents"]
    rate = {} if invoice.tax_category == "O" else {"BT-152": _percent(invoice)}
    return {
        "BT-126": str(number),
        "BT-129": -1 if cents < 0 else 1,
        "BT-130": _ONE,
        "BT-131": _amount(cents),
        "BT-146": _amount(abs(cents)),
        "BT-151": invoice.tax_category,
        **rate,
        "BT-153": line["description"],
    }


def _tax(invoice: Invoice) -> dict[str, Any]:
    told: dict[str, Any] = {
        "BT-116": _amount(invoice.subtotal_cents - invoice.credits_cents),
        "BT-117": _amount(invoice.tax_cents),
        "BT-118": invoice.tax_category,
    }
    if invoice.tax_category != "O":
        told["BT-119"] = _percent(invoice)
    if invoice.tax_reason is not None:
        told |= {"BT-120": invoice.tax_reason, "BT-121": _REASONS[invoice.tax_category]}
    return told


def _party(invoice: Invoice, side: dict[str, str]) -> dict[str, Any]:
    """Outside of the scope of VAT nobody has a VAT ID, as the standard asks (BR-O-02 to 04)."""
    told = {
        "name": side["name"],
        "country_code": side["country"],
        "addr_l1": side["street"],
        "postcode": side["postcode"],
        "city": side["city"],
        "vat_identifier": "" if invoice.tax_category == "O" else side["vat_id"],
    }
    return {name: value for name, value in told.items() if value}


def _identifiers(invoice: Invoice) -> dict[str, Any]:
    """By something the issuer must be known."""
    return {"identifiers": {None: invoice.issuer["email"]}} if invoice.tax_category == "O" else {}


def _payment(invoice: Invoice) -> dict[str, Any]:
    due, iban = {"BT-9": invoice.due_at.date().isoformat()}, invoice.issuer["iban"]
    if not iban:
        return {**due, "BT-81": _UNSPECIFIED}
    return {**due, "BT-81": _TRANSFER, "BT-83": invoice.number, "BT-84": iban}


def _correction(note: Invoice) -> dict[str, Any]:
    """Which invoice a credit note corrects, and why; nobody pays to the issuer's account."""
    corrected = note.corrects or {}
    return {
        "BG-1": [{"BT-22": note.reason}],
        "BG-3": [{"BT-25": corrected["number"], "BT-26": corrected["issued_on"]}],
        "BT-20": settlement(note),
        "BT-81": _UNSPECIFIED,
    }


def settlement(note: Invoice) -> str:
    """What becomes of the amount of a credit note, as a sentence for people."""
    number = (note.corrects or {})["number"]
    if note.refund_cents:
        return f"The amount is paid back, as {number} was paid."
    return f"The amount is taken off invoice {number}. Nothing is to be paid for this credit note."


def _amount(cents: int) -> str:
    return f"{'-' * (cents < 0)}{abs(cents) // 100}.{abs(cents) % 100:02}"


def _percent(invoice: Invoice) -> str:
    whole = PERCENT // 100
    return f"{invoice.tax_rate // whole}.{invoice.tax_rate % whole:02}"
