"""What the operator's commands that correct invoices do, and how they tell it."""

from collections.abc import Mapping, Sequence

from control.billing import crediting
from control.billing.crediting import Ask
from control.policy import credit_notes
from control.policy.credit_notes import Left, NotCredited
from control.policy.issuers import Issuer
from control.policy.prices import amount as shown
from control.services import Services
from control.workflows.billing import documents, payments
from control.workflows.billing import invoices as work
from menagerie.credit_grants import cents_of, text_of
from menagerie.errors import SettingsError
from storage.billing.invoices import Invoice


def credit(
    services: Services, number_or_id: str, lines: Sequence[str], amount: str | None, reason: str
) -> str:
    """All that is left of it without `lines` and `amount`. Raises SettingsError, and as storage."""
    reason, ask, issuer = text_of("reason", reason), _asked(lines, amount), _issuer(services)
    with services.database.write() as db:
        try:
            note, invoice = crediting.credit(db, issuer, number_or_id, ask, reason)
        except NotCredited as refused:
            raise SettingsError(str(refused)) from None
        documents.begin(db, note)
        payments.pursue(db, services.settings, invoice)
        return _told(note, invoice)


def void(services: Services, number_or_id: str, reason: str) -> str:
    """With a credit note, and a new invoice of the month: one transaction."""
    reason, issuer, book = text_of("reason", reason), _issuer(services), services.settings.prices
    with services.database.read() as db:
        drafted = crediting.drafted_again(db, book, number_or_id)
    with services.database.write() as db:
        note, invoice = crediting.void(db, issuer, number_or_id, reason)
        again = crediting.reissue(db, book, issuer, invoice.id, drafted)
        documents.begin(db, note)
        payments.pursue(db, services.settings, invoice)
        if again is not None:
            work.follow(db, services, again)
        then = "nothing is to be charged" if again is None else f"invoiced again: {_sum(again)}"
        return f"{_told(note, invoice)}; {then}"


def reissue(services: Services, number_or_id: str) -> str:
    issuer, book = _issuer(services), services.settings.prices
    with services.database.read() as db:
        drafted = crediting.drafted_again(db, book, number_or_id)
    with services.database.write() as db:
        made = crediting.reissue(db, book, issuer, number_or_id, drafted)
        if made is None:
            return "nothing is to be charged"
        work.follow(db, services, made)
        return _sum(made)


def _asked(lines: Sequence[str], amount: str | None) -> Ask:
    if lines and amount is not None:
        raise SettingsError("--line and --amount cannot be combined")
    if amount is not None:
        cents = cents_of(amount)
        return lambda _lines, left: credit_notes.spread(left, cents)
    if not lines:
        return crediting.everything
    asked = dict(_line(each) for each in lines)
    if len(asked) != len(lines):
        raise SettingsError("--line names a line twice")

    def ask(found: credit_notes.Lines, left: Mapping[int, Left]) -> Mapping[int, int]:
        return credit_notes.chosen(found, left, asked)

    return ask


def _line(text: str) -> tuple[int, int | None]:
    number, has_amount, amount = text.partition("=")
    if not (number.isascii() and number.isdecimal()):
        raise SettingsError(f"--line {text!r} must be a line's number, such as 2 or 2=12.50")
    return int(number), cents_of(amount) if has_amount else None


def _issuer(services: Services) -> Issuer:
    issuer = services.settings.issuer
    if issuer is None:
        raise SettingsError("no invoices are corrected: set invoice_issuer")
    return issuer


def _told(note: Invoice, invoice: Invoice) -> str:
    then = f"{invoice.number} is {invoice.status}"
    if note.refund_cents:
        then += f"; {shown(note.refund_cents, note.currency)} are to be paid back"
    elif invoice.due_cents:
        then += f", with {shown(invoice.due_cents, invoice.currency)} to be paid"
    return f"{_sum(note)}; {then}"


def _sum(of: Invoice) -> str:
    return f"{of.number}: {shown(of.total_cents, of.currency)}"
