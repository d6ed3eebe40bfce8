"""What leads to each kind of event about money."""

from collections.abc import Callable

from contract_tests import invoicing
from contract_tests.api.billing import billed
from contract_tests.api.harness import House, Tenant
from control.billing import collecting
from control.billing import invoicing as making
from control.billing.collecting import Notice
from menagerie import credit_grants, credit_notes, invoice_books
from storage.access import organizations
from storage.billing import invoices, payments

Act = Callable[[House, Tenant, str], None]


def credited(house: House, tenant: Tenant, _instance_id: str) -> None:
    org = tenant.org_id
    credit_grants.grant(house.services, org, "5", reason="so", months=None, reference=None)


def programme_decided(verb: str) -> Act:
    def act(house: House, tenant: Tenant, _instance_id: str) -> None:
        body = {"programme": "startup", "statement": "We rent out looms."}
        made = house.post(f"{tenant.path}/programmes/applications", tenant.key, json=body)
        if verb == "approve":
            credit_grants.approve(house.services, made.json()["id"], None, None)
        else:
            credit_grants.decline(house.services, made.json()["id"], "no")

    return act


def invoiced(act: Callable[[House, str], object] | None = None) -> Act:
    """A month's invoice, and what becomes of it."""

    def made(house: House, tenant: Tenant, _instance_id: str) -> None:
        before, offset = house.services.settings, house.database.clock_offset
        month = invoicing.starts_billing(house)
        invoicing.month_ends(house, month)
        issuer, book = invoicing.issuer_from(month), before.prices
        # Of this organization alone: of others the house's month may be done.
        with house.database.write() as db:
            org = organizations.fetch(db, tenant.org_id)
            drafted = making.draft(db, book, org.id, month)
            invoice = making.finalize(db, book, issuer, org, month, drafted)
        assert invoice is not None
        if act is not None:
            act(house, invoice.id)
        house.drop_work()
        object.__setattr__(house.services, "settings", before)
        house.database.clock_offset = offset

    return made


def credited_whole(house: House, invoice_id: str) -> None:
    credit_notes.credit(house.services, invoice_id, [], None, "so")


def refunded(house: House, invoice_id: str) -> None:
    invoice_books.pay(house.services, invoice_id)
    told = credit_notes.credit(house.services, invoice_id, [], "1", "so")
    invoice_books.pay(house.services, told.partition(":")[0])


def not_charged(house: House, invoice_id: str) -> None:
    with house.database.write() as db:
        invoice = invoices.find(db, invoice_id)
        payments.begin(db, invoice.org_id, invoice_id)
        payment = payments.of_invoice(db, invoice_id)
        assert payment is not None
        payment.provider_invoice_id = f"in_{invoice_id}"
        notice = Notice(collecting.DECLINED, f"in_{invoice_id}", invoice_id, 0, invoice.currency)
        collecting.hear(db, house.services.settings.issuer, notice)


ACTS: dict[str, list[Act]] = {
    "credit.granted.v1": [credited],
    "invoice.finalized.v1": [invoiced()],
    "invoice.paid.v1": [invoiced(lambda house, one: invoice_books.pay(house.services, one))],
    "invoice.voided.v1": [
        invoiced(lambda house, one: credit_notes.void(house.services, one, "so"))
    ],
    "invoice.payment_failed.v1": [invoiced(not_charged)],
    "credit_note.finalized.v1": [invoiced(credited_whole)],
    "credit_note.refunded.v1": [invoiced(refunded)],
    "spending_cap.threshold.v1": [billed.cap_reached],
    "programme.decided.v1": [programme_decided("approve"), programme_decided("decline")],
}
