"""Comparing what was counted, what was metered and what was billed: nothing is changed by it."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from sqlalchemy.orm import Session

from control.billing import invoicing
from control.policy.invoices import Tax
from control.policy.issuers import Issuer
from control.policy.months import HOUR, Month, hour_of
from control.policy.prices import PriceBook, nearest_cents
from control.policy.rating import BACKUPS, DOMAINS, SEATS, UNITS
from storage.access.organizations import Organization
from storage.billing import credit_ledger, hourly, invoice_runs, invoices, recounts
from storage.billing.invoices import Invoice
from storage.billing.recounts import Metered

READ_ONCE: Final = (BACKUPS, DOMAINS, SEATS)
"""Meters of which an hour has one reading."""


AT_ONCE: Final = 1_000
"""Instances that are asked for in one query."""


class BillingDifference(NamedTuple):
    """`what` was compared, and in what: hours, the unit of the metric, micro-cents or cents.

    - `counted`: what cells or backups say (`expected`), and what was metered (`found`);
    - `read twice`: readings of hours that have one already, of which there are none;
    - `hours`: that were metered, and of which there are readings;
    - `billed`, `cost`: what was metered and what it costs, and what the invoice says;
    - `invoice`: what its numbers must be by each other, and what they are.
    """

    org_id: str
    month: str
    metric: str
    what: str
    unit: str
    expected: int
    found: int


@dataclass(frozen=True)
class Checking:
    """One month, by the prices and the issuer in force; without an issuer nothing is billed."""

    book: PriceBook
    issuer: Issuer | None
    month: Month

    def of_org(self, db: Session, org: Organization, now: datetime) -> Iterator[BillingDifference]:
        """Of what the database has; one organization's lines are held at a time."""
        until = min(now, self.month.end)
        found = recounts.repeated(db, org.id, READ_ONCE, self.month.begin, until)
        for metric, count in found.items():
            yield self._differs(org.id, metric, "read twice", "hour", 0, count)
        if org.status == "open":
            since = max(self.month.begin, hour_of(org.created_at))
            metered, read = recounts.hours_with_seats(db, org.id, since, until)
            if metered > read:
                yield self._differs(org.id, SEATS, "hours", "hour", metered, read)
        if self._is_billed(db, org.id):
            yield from self._of_bill(db, org.id)

    def of_hour(
        self, metric: str, counted: Mapping[str, Metered], metered: Mapping[str, Metered]
    ) -> Iterator[BillingDifference]:
        """By subject, in an hour: one for each organization for which these differ."""
        sums: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
        for subject in counted.keys() | metered.keys():
            sides = counted.get(subject), metered.get(subject)
            quantities = [0 if side is None else side.quantity for side in sides]
            if quantities[0] != quantities[1]:
                org_id = next(side.org_id for side in sides if side is not None)
                for number, quantity in enumerate(quantities):
                    sums[org_id][number] += quantity
        for org_id, (expected, found) in sums.items():
            yield self._differs(org_id, metric, "counted", UNITS[metric], expected, found)

    def _is_billed(self, db: Session, org_id: str) -> bool:
        if self.issuer is None or self.month.name < self.issuer.first_month:
            return False
        run = invoice_runs.find(db, self.month.name)
        return run is not None and (run.is_done or run.after >= org_id)

    def _of_bill(self, db: Session, org_id: str) -> Iterator[BillingDifference]:
        drafted = invoicing.draft(db, self.book, org_id, self.month)
        invoice = invoices.newest(db, org_id, self.month.name)
        billed = [] if invoice is None else invoice.lines
        expected = _by_metric(line.as_json() for line in drafted.lines)
        found = _by_metric(billed)
        for metric in sorted(expected.keys() | found.keys()):
            sides = expected[metric], found[metric]
            for what, unit, *values in (
                ("billed", UNITS.get(metric, "cent"), sides[0][0], sides[1][0]),
                ("cost", "micro_cent", sides[0][1], sides[1][1]),
            ):
                if values[0] != values[1]:
                    yield self._differs(org_id, metric, what, unit, *values)
        if invoice is not None:
            for name, must, does in _sums(db, invoice):
                if must != does:
                    yield self._differs(org_id, name, "invoice", "cent", must, does)

    def _differs(
        self, org_id: str, metric: str, what: str, unit: str, expected: int, found: int
    ) -> BillingDifference:
        return BillingDifference(org_id, self.month.name, metric, what, unit, expected, found)


def recounted_backups(db: Session, hour: datetime) -> tuple[dict[str, Metered], dict[str, Metered]]:
    """Counted anew from the backups themselves, and as metered.

    Of instances that have been live since then: of others what was there is not known any more.
    """
    counted = {
        one.subject_id: Metered(one.org_id, one.quantity)
        for one in hourly.backups(db, BACKUPS, hour)
    }
    metered = recounts.of_hour(db, BACKUPS, hour)
    ids, kept = sorted(counted.keys() | metered.keys()), set[str]()
    for first in range(0, len(ids), AT_ONCE):
        kept |= recounts.lasting(db, ids[first : first + AT_ONCE], hour - HOUR)
    return _only(counted, kept), _only(metered, kept)


def _only(of: Mapping[str, Metered], ids: set[str]) -> dict[str, Metered]:
    return {subject: one for subject, one in of.items() if subject in ids}


def _by_metric(lines: Iterable[Mapping[str, object]]) -> defaultdict[str, tuple[int, int]]:
    """Quantity and micro-cents of each."""
    sums: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for line in lines:
        metric = str(line["metric"])
        before = sums[metric]
        more = int(str(line["quantity"])), int(str(line["micro_cents"]))
        sums[metric] = before[0] + more[0], before[1] + more[1]
    return sums


def _sums(db: Session, invoice: Invoice) -> Iterator[tuple[str, int, int]]:
    """Each number of an invoice: as it must be by the others, and as it is."""
    for line in invoice.lines:
        yield f"line {line['metric']}", nearest_cents(line["micro_cents"]), line["amount_cents"]
    subtotal = sum(line["amount_cents"] for line in invoice.lines)
    yield "subtotal", subtotal, invoice.subtotal_cents
    given_back = sum(note.credits_cents for note in invoices.notes_of(db, invoice))
    yield "credits", credit_ledger.used_by(db, invoice.id), invoice.credits_cents - given_back
    net = subtotal - invoice.credits_cents
    tax = Tax(invoice.tax_category, invoice.tax_rate, invoice.tax_reason).cents(net)
    yield "tax", tax, invoice.tax_cents
    yield "total", net + tax, invoice.total_cents
