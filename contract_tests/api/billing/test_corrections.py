"""Corrections of meters: added and never written over, in the month that is open."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DatabaseError

from contract_tests import invoicing as billing
from contract_tests import written
from contract_tests.api.billing import billed
from contract_tests.api.conftest import MakeHouse
from contract_tests.api.harness import House, Tenant
from contract_tests.api.rows import NEVER
from control.policy.months import HOUR, hour_of, month_of
from control.policy.price_lists import PACKAGED, read
from control.policy.sizes import GB
from menagerie import meter_corrections
from menagerie.errors import SettingsError
from storage.errors import RecordNotFound

REASON = "a load test of ours"


def correct(house: House, subject: str, meter: str, hour: Any, quantity: object) -> str:
    at = hour if isinstance(hour, str) else f"{hour:%Y-%m-%dT%H:00Z}"
    return meter_corrections.correct(
        house.services, subject, meter, at, str(quantity), reason=REASON
    )


def egress(house: House, tenant: Tenant, month: str) -> tuple[int, int]:
    """Bytes and micro-cents, as the organization sees them."""
    session = house.session(tenant.owner.id)
    found = house.get(f"{tenant.path}/cost-report?month={month}", session).json()
    of = [one for team in found["items"] for one in team["metrics"] if one["metric"] == "egress"]
    return sum(one["quantity"] for one in of), sum(one["micro_cents"] for one in of)


def test_a_correction_counts_in_its_hour_and_is_audited(house: House) -> None:
    tenant = house.tenant(plan="team")
    made = billed.instance(house, tenant, "s1", 10 * GB)
    hour = hour_of(house.now()) - HOUR
    billed.metered(house, tenant, made, "egress", hour, 7 * GB)
    told = correct(house, made, "egress", hour, 3 * GB)
    assert "was 7,000,000,000, and is 3,000,000,000 (byte); it counts in" in told
    assert egress(house, tenant, month_of(hour).name) == (3 * GB, 3_000_000)
    with house.database.read() as db:
        entry = written.audited(db, tenant.org_id)[0]
    assert (entry.action, entry.actor_kind, entry.target) == ("usage.correct", "system", made)
    assert entry.detail["quantity"] == -4 * GB
    assert REASON not in str(entry.detail)
    assert "nothing was changed" in correct(house, made, "egress", hour, 3 * GB)
    assert egress(house, tenant, month_of(hour).name) == (3 * GB, 3_000_000)


DEARER = """
[[prices]]
from = {at}
egress_gb = 50
"""


def test_what_is_billed_is_corrected_by_a_line_of_the_next_month(make_house: MakeHouse) -> None:
    """At the prices of the hour that it corrects."""
    house = make_house()
    month = billing.starts_billing(house)
    tenant = house.tenant(plan="team")
    made = billed.instance(house, tenant, "s1", 10 * GB)
    hour, day = month.begin + 5 * HOUR, timedelta(days=1)
    book = read(PACKAGED.read_text("utf-8") + DEARER.format(at=f"{month.end:%Y-%m-%dT%H:%M:%SZ}"))
    object.__setattr__(house.services.settings, "prices", book)
    billing.month_ends(house, month)
    billed.metered(house, tenant, made, "egress", hour, 700 * GB)
    billing.billed(house, month)
    before = billing.invoice_of(house, tenant, month)
    assert [line["metric"] for line in before.lines] == ["plan", "egress"]
    told = correct(house, made, "egress", hour, 100 * GB)
    assert f"{month.name} is closed, so -6.00 USD (-600.000000 cents) count in" in told
    assert egress(house, tenant, month.name) == (700 * GB, 700 * 10**6)
    following = month_of(month.end)
    assert egress(house, tenant, following.name) == (-600 * GB, -600 * 10**6)
    billed.metered(house, tenant, made, "egress", following.begin + 2 * day, 10 * GB)
    billing.billed(house, following)
    assert billing.invoice_of(house, tenant, month).lines == before.lines
    (_, used, corrected) = billing.invoice_of(house, tenant, following).lines
    assert (used["quantity"], used["amount_cents"]) == (10 * GB, 500)
    assert corrected["description"] == f"Correction of {month.name}, egress: -600.00 GB"
    assert (corrected["metric"], corrected["amount_cents"]) == ("egress", -600)
    shown = house.get(f"{tenant.path}/invoices", house.session(tenant.owner.id)).json()["items"]
    assert [len(one["lines"]) for one in shown] == [3, 2]


def test_a_bill_of_less_than_nothing_becomes_a_credit(make_house: MakeHouse) -> None:
    house = make_house()
    month = billing.starts_billing(house)
    tenant = house.tenant(plan="team")
    made, hour = billed.instance(house, tenant, "s1", 10 * GB), month.begin
    billing.month_ends(house, month)
    billed.metered(house, tenant, made, "egress", hour, 90_000 * GB)
    billing.billed(house, month)
    correct(house, made, "egress", hour, 0)
    following = month_of(month.end)
    billing.billed(house, following)
    found = billing.invoice_of(house, tenant, following)
    assert [line["amount_cents"] for line in found.lines] == [10_000, -90_000, 80_000]
    assert (found.subtotal_cents, found.tax_cents, found.total_cents) == (0, 0, 0)
    assert found.status == "paid"
    session = house.session(tenant.owner.id)
    credited = house.get(f"{tenant.path}/credits", session).json()
    assert credited["balance_cents"] == 80_000
    assert "nothing was changed" in correct(house, made, "egress", hour, 0)
    billing.billed(house, month_of(following.end))
    third = billing.invoice_of(house, tenant, month_of(following.end))
    assert (third.credits_cents, third.status) == (10_000, "paid")
    (shown, *_) = house.get(f"{tenant.path}/invoices", house.session(tenant.owner.id)).json()[
        "items"
    ]
    assert shown["pdf_url"] is not None


def test_no_statement_changes_a_late_correction(make_house: MakeHouse) -> None:
    house = make_house()
    tenant, hour = house.tenant(plan="team"), hour_of(house.now())
    made = billed.instance(house, tenant, "s1", 10 * GB)
    house.pass_time(40 * 86_400)
    correct(house, made, "egress", hour, 5 * GB)
    for statement in ("UPDATE late_corrections SET quantity = 0", "DELETE FROM late_corrections"):
        with pytest.raises(DatabaseError), house.database.engine.begin() as connection:
            connection.execute(text(statement))
    assert egress(house, tenant, month_of(house.now()).name) == (5 * GB, 5 * 10**6)


WRONG = {
    "no meter": ({"meter": "compute"}, "backups, egress, domains, seats"),
    "an injection": ({"meter": "egress'; DROP TABLE meter_entries; --"}, "is no meter"),
    "not an hour": ({"hour": "2026-11-03T14:30Z"}, "write it in UTC"),
    "no zone": ({"hour": "2026-11-03T14:00"}, "write it in UTC"),
    "no day": ({"hour": "2026-02-30T14:00Z"}, "of the calendar"),
    "to come": ({"hour": "2999-01-01T00:00Z"}, "is not over"),
    "too old": ({"hour": "1970-01-01T00:00Z"}, "is too old"),
    "other digits": ({"quantity": "١٢"}, "whole number"),
    "less than nothing": ({"quantity": "-1"}, "whole number"),
    "a fraction": ({"quantity": "1.5"}, "whole number"),
    "too much": ({"quantity": str(10**15 + 1)}, "whole number"),
    "far too much": ({"quantity": "9" * 9_000}, "whole number"),
    "no reason": ({"reason": " "}, "--reason"),
    "control characters": ({"reason": "a\x1b[2Jb"}, "--reason"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_no_correction_is_refused(house: House, what: str) -> None:
    given, told = WRONG[what]
    hour = f"{hour_of(house.now()) - HOUR:%Y-%m-%dT%H:00Z}"
    chosen = {"meter": "egress", "hour": hour, "quantity": "1", "reason": REASON, **given}
    with pytest.raises(SettingsError, match=told):
        meter_corrections.correct(house.services, f"inst_{NEVER}", **chosen)


def test_nobody_and_what_is_not_metered_yet_are_refused(house: House) -> None:
    hour = hour_of(house.now()) - HOUR
    for subject, meter in ((f"inst_{NEVER}", "egress"), ("' OR 1=1 --", "egress")):
        with pytest.raises(RecordNotFound):
            correct(house, subject, meter, hour, 1)
    with pytest.raises(SettingsError, match="not metered yet"):
        correct(house, house.tenant().org_id, "seats", house.now().replace(year=2024) - HOUR, 1)
    with billed.money_off(house), pytest.raises(SettingsError, match="money is off"):
        correct(house, f"inst_{NEVER}", "egress", hour, 1)
