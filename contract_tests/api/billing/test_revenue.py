"""Revenue and previews of prices: both add up to the journal of the same month."""

import csv
import io
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from clients.cli.output import columns
from contract_tests import invoicing as billing
from contract_tests.api.billing import billed
from contract_tests.api.conftest import MakeHouse
from contract_tests.api.harness import House, Tenant
from control.policy.months import Month
from control.policy.price_lists import PACKAGED
from control.policy.sizes import GB
from menagerie import credit_grants, credit_notes, invoice_books, revenue_reports, usage_commands
from menagerie.errors import SettingsError

PRICES = PACKAGED.read_text("utf-8")


@dataclass
class Ended:
    """A month with an invoice that is open, one that is paid and one that is all credited."""

    house: House
    month: Month
    tenants: list[Tenant]


@pytest.fixture
def ended(make_house: MakeHouse) -> Ended:
    house = make_house()
    month = billing.starts_billing(house)
    tenants = [house.tenant(f"Org {number}", plan="team") for number in range(3)]
    credit_grants.grant(
        house.services, tenants[0].org_id, "7.01", reason="so", months=1, reference=None
    )
    billing.month_ends(house, month)
    for number, tenant in enumerate(tenants):
        made = billed.instance(house, tenant, "s1", 12 * GB)
        billed.metered(house, tenant, made, "egress", month.begin, (33 + number) * GB)
        billed.span(house, tenant, made, month.begin, month.end, size="s1")
    billing.billed(house, month)
    invoice_books.pay(house.services, billing.invoice_of(house, tenants[1], month).id)
    third = billing.invoice_of(house, tenants[2], month)
    credit_notes.credit(house.services, third.id, (), None, "no")
    return Ended(house, month, tenants)


def journal(of: Ended) -> Counter[str]:
    """By account, in cents."""
    sums: Counter[str] = Counter()
    text = invoice_books.journal_csv(of.house.services, of.month.name)
    for row in csv.DictReader(io.StringIO(text)):
        sums[row["account"]] += int(row["amount_cents"])
    return sums


def test_revenue_adds_up_to_the_journal(ended: Ended) -> None:
    services, name = ended.house.services, ended.month.name
    (row,) = revenue_reports.by_month(services, name, name)
    accounts = journal(ended)
    assert row["subtotal_cents"] == -accounts["revenue"] > 0
    assert row["credits_cents"] == accounts["credits_granted"] == 701
    assert row["tax_cents"] == -accounts["tax_owed"] > 0
    assert row["paid_cents"] == accounts["cash"] > 0
    assert row["open_cents"] == accounts["receivable"] > 0
    assert (row["invoices"] >= 2, row["void"]) == (True, 1)
    metrics = ("plan", "compute", "storage", "egress", "backups", "seats", "domains")
    sums = [row[f"{each}_cents"] for each in (*metrics, "carried_over")]
    assert sum(sums) == row["subtotal_cents"]
    assert row["compute_cents"] == 2 * 1_500
    assert row["egress_cents"] == 33 + 34
    (read,) = csv.DictReader(io.StringIO(revenue_reports.as_csv([row])))
    assert read == {name: str(value) for name, value in row.items()}
    assert set(revenue_reports.SHOWN) <= row.keys()
    assert revenue_reports.by_month(services, "2020-01", "2020-12") == []
    assert revenue_reports.as_csv([]).startswith("month,currency,invoices,void,compute_cents")


def test_a_preview_adds_up_to_the_journal(ended: Ended, tmp_path: Path) -> None:
    """What is credited was used too; the rest is in the journal."""
    services, month = ended.house.services, ended.month
    dearer = tmp_path / "prices.toml"
    dearer.write_text(
        f"{PRICES}\n[[prices]]\nfrom = 2100-01-01T00:00:00Z\negress_gb = 10\n", encoding="utf-8"
    )
    told = revenue_reports.preview(services, dearer, month.name)
    void = billing.invoice_of(ended.house, ended.tenants[2], month).subtotal_cents
    assert told["old_cents"] - void == -journal(ended)["revenue"]
    assert told["difference_cents"] == 9 * (33 + 34 + 35)
    for name in ("old_cents", "new_cents", "difference_cents"):
        assert told[name] == sum(one[name] for one in told["items"])
    by_org = {one["org_id"]: one for one in told["items"]}
    assert by_org[ended.tenants[0].org_id]["difference_cents"] == 9 * 33
    same = tmp_path / "same.toml"
    same.write_text(PRICES, encoding="utf-8")
    assert revenue_reports.preview(services, same, month.name)["difference_cents"] == 0


WRONG_PRICES = {
    "no TOML": (b"[[", "it is not TOML"),
    "no prices": (b"currency = 'USD'", "prices: must be"),
    "another currency": (PRICES.replace('"USD"', '"EUR"').encode(), "its currency is EUR"),
    "no text": (b"\xff\xfe\x00", "is no text in UTF-8"),
    "too long": (b"#" * ((1 << 20) + 1), "is longer than"),
}


@pytest.mark.parametrize("what", WRONG_PRICES)
def test_what_is_no_price_list_is_refused(house: House, tmp_path: Path, what: str) -> None:
    content, told = WRONG_PRICES[what]
    file = tmp_path / "prices.toml"
    file.write_bytes(content)
    with pytest.raises(SettingsError, match=told):
        revenue_reports.preview(house.services, file, None)


def test_what_is_no_month_or_file_is_refused(house: House, tmp_path: Path) -> None:
    for first, last in (("2026-13", None), ("1'; --", None), ("2026-02", "2026-01")):
        with pytest.raises(SettingsError, match=r"no month|not be later"):
            revenue_reports.by_month(house.services, first, last)
    with pytest.raises(SettingsError, match="120 months"):
        revenue_reports.by_month(house.services, "1990-01", "2026-01")
    with pytest.raises(SettingsError, match="No such file"):
        revenue_reports.preview(house.services, tmp_path / "none.toml", None)
    for month in ("9999-12", "0001-01", "2026-1"):
        with pytest.raises(SettingsError, match="no month"):
            invoice_books.listed(house.services, month)


def test_tables_name_the_organization() -> None:
    """Which tables of the API leave out, as it is the one that was asked for."""
    row = usage_commands._with_organization({"org_id": "all", "old_cents": 1})
    assert columns([row]) == ["organization", "old_cents"]
