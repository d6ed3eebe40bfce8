"""Invoices as PDF/A-3 for people, with the XML of the same invoice for programs attached."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from control.billing import einvoices
from control.policy.invoices import PERCENT
from control.policy.months import month_named
from storage.billing.invoices import Invoice

_TEMPLATE: Final = Path(__file__).with_name("invoice.typ")


def pdf_of(invoice: Invoice) -> bytes:
    """The same for the same invoice, but for ids and times that the file itself has."""
    import facturx  # noqa: PLC0415 -- large in memory, and the API makes none

    page = typeset(invoice)
    about = {
        "author": invoice.issuer["name"],
        "title": _title(invoice),
        "subject": f"{invoice.number} of {invoice.issued_at:%Y-%m-%d}",
        "keywords": f"{_name(invoice).lower()}, Factur-X",
    }
    made: bytes = facturx.generate_from_binary(
        page,
        einvoices.xml_of(invoice),
        flavor="factur-x",
        level=einvoices.LEVEL,
        check_xsd=False,  # was checked when it was made
        pdf_metadata=about,
        lang="en",
        afrelationship="alternative",
    )
    return made


def typeset(invoice: Invoice, form: str = "pdf") -> bytes:
    """The page alone; `form` can be `png`, of the first page."""
    import typst  # noqa: PLC0415 -- as above

    inputs = {"told": json.dumps(told(invoice))}
    if form == "pdf":
        try:
            return _compiled(inputs, format=form, pdf_standards=["a-3b"])
        except typst.TypstError:
            # PDF/A allows no character that no font has. Its place is empty then, and the XML,
            # which counts, has it.
            return _compiled(inputs, format=form)
    return _compiled(inputs, format=form, ppi=96)


def _compiled(inputs: dict[str, str], **options: Any) -> bytes:
    import typst  # noqa: PLC0415 -- as above

    made: Any = typst.compile(_TEMPLATE.read_bytes(), sys_inputs=inputs, **options)
    return bytes(made[0] if isinstance(made, list) else made)


def told(invoice: Invoice) -> dict[str, Any]:
    """What the page says, as texts."""
    issuer, customer = invoice.issuer, invoice.customer
    return {
        "title": _title(invoice),
        "subtitle": f"For the database service in {month_named(invoice.month).begin:%B %Y}, in UTC",
        "number": invoice.number,
        "currency": invoice.currency,
        "issuer": issuer,
        "issuer_line": " · ".join(_address(issuer)),
        "customer": _address(customer),
        "facts": _facts(invoice),
        "lines": [[line["description"], amount(line["amount_cents"])] for line in invoice.lines],
        "sums": _sums(invoice),
        "total": ["Total", f"{amount(invoice.total_cents)} {invoice.currency}"],
        "notes": _notes(invoice),
    }


def amount(cents: int) -> str:
    """As in: 1,234.50."""
    sign, whole = ("-" if cents < 0 else ""), abs(cents)
    return f"{sign}{whole // 100:,}.{whole % 100:02}"


def _title(invoice: Invoice) -> str:
    return f"{_name(invoice)} {invoice.number}"


def _name(invoice: Invoice) -> str:
    return "Credit note" if invoice.is_credit_note else "Invoice"


def _address(side: dict[str, str]) -> list[str]:
    place = f"{side['postcode']} {side['city']}".strip()
    return [line for line in (side["name"], side["street"], place, side["country"]) if line]


def _facts(invoice: Invoice) -> list[list[str]]:
    month = month_named(invoice.month)
    last = month.end - timedelta(days=1)
    facts = [
        ["Number", invoice.number],
        ["Date", f"{invoice.issued_at:%Y-%m-%d}"],
        ["Period", f"{month.begin:%Y-%m-%d} to {last:%Y-%m-%d}"],
        ["Due", "" if invoice.is_credit_note else f"{invoice.due_at:%Y-%m-%d}"],
        ["Corrects invoice", _corrected(invoice)],
        ["VAT ID", invoice.issuer["vat_id"]],
        ["Customer's VAT ID", invoice.customer["vat_id"]],
        ["Customer", invoice.org_id],
    ]
    return [[name, value] for name, value in facts if value]


def _corrected(invoice: Invoice) -> str:
    of = invoice.corrects
    return "" if of is None else f"{of['number']} of {of['issued_on']}"


def _sums(invoice: Invoice) -> list[list[str]]:
    sums = [["Subtotal", amount(invoice.subtotal_cents)]]
    if invoice.credits_cents:
        sums.append(["Credits", amount(-invoice.credits_cents)])
    if invoice.tax_category == "S":
        rate = f"{invoice.tax_rate * 100 / PERCENT:g}"
        sums.append([f"VAT {rate} %", amount(invoice.tax_cents)])
    return sums


def _notes(invoice: Invoice) -> list[str]:
    notes = [invoice.tax_reason] if invoice.tax_reason else []
    if invoice.is_credit_note:
        notes += [f"Reason: {invoice.reason}", einvoices.settlement(invoice)]
    elif invoice.total_cents == 0:
        notes.append("Nothing is to be paid.")
    elif invoice.issuer["iban"]:
        due = f"{invoice.due_at:%Y-%m-%d}"
        notes.append(f"Please pay by {due} to {invoice.issuer['iban']}, naming {invoice.number}.")
    what = "credit note" if invoice.is_credit_note else "invoice"
    notes.append(f"This file is an electronic {what} (EN 16931, Factur-X): the XML is attached.")
    return notes
