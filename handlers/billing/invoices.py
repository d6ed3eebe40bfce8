"""Invoices: those of an organization, and the one that a signed link is for."""

from typing import Any

from control.billing import invoice_links
from control.boundary import Call
from handlers import paging
from handlers.billing import credit_views as views
from handlers.billing import switch
from handlers.calls import OrgCall
from specserver import NotFound, Reply
from storage.access import enterprises
from storage.billing import invoices, payers, payments

Body = dict[str, Any]


def list_(call: OrgCall, limit: int, cursor: str | None = None) -> Body:
    switch.prices(call)
    after = paging.after(call, cursor)
    found = invoices.page(call.db, call.org.id, limit=limit, after=after)
    ids = [one.id for one in found.items]
    finished, payable = invoices.documents(call.db, ids), payments.urls(call.db, ids)
    settings = call.services.settings

    def view(record: invoices.Invoice) -> Body:
        token = invoice_links.token_of(settings.cursor_key, record.id, call.now)
        links = views.links(settings.base_url, token, with_pdf=record.id in finished)
        url = payable.get(record.id) if record.due_cents else None
        return {**views.invoice(record, call.now), **links, "payment_url": url}

    parent = _payer(call)
    return {"billed_by": parent, **paging.page(call, found, view)}


def get(call: Call, invoice_token: str) -> Body:
    found = invoices.of_link(call.db, _invoice_id(call, invoice_token))
    return views.invoice(found, call.now)


def pdf(call: Call, invoice_token: str) -> Reply:
    found = invoices.document_of_link(call.db, _invoice_id(call, invoice_token))
    named = {"Content-Disposition": f'attachment; filename="{found.invoice_id}.pdf"'}
    return Reply(200, found.pdf, named, "application/pdf")


def _payer(call: OrgCall) -> str | None:
    """The name of the parent that pays for the organization now."""
    if not payers.is_paid_for(call.db, call.org.id):
        return None
    of = enterprises.find(call.db, call.org.id)
    return None if of is None else enterprises.parent_name(call.db, of)


def _invoice_id(call: Call, token: str) -> str:
    found = invoice_links.invoice_of(call.services.settings.cursor_key, token, call.now)
    if found is None:
        raise NotFound("the link is wrong, or its 30 days are over; ask for a new one")
    return found
