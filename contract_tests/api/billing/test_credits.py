"""Credits: what the operator grants, what an organization sees of it, and what is refused."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contract_tests import written
from contract_tests.api.conftest import MakeHouse
from contract_tests.api.harness import House, Tenant
from contract_tests.api.rows import NEVER, is_problem
from control.policy import price_lists
from menagerie import credit_grants
from menagerie.errors import SettingsError
from storage.billing import credit_ledger
from storage.errors import RecordNotFound, StateConflict


@pytest.fixture
def tenant(house: House) -> Tenant:
    return house.tenant()


def grant(
    house: House,
    org_id: str,
    cents: str = "50",
    months: int | None = None,
    reference: str | None = None,
) -> str:
    """The id."""
    told = credit_grants.grant(
        house.services, org_id, cents, reason="for the outage", months=months, reference=reference
    )
    return told.partition(":")[0]


def test_what_is_granted_is_listed_with_the_balance(house: House, tenant: Tenant) -> None:
    assert house.get(f"{tenant.path}/credits", tenant.key).json() == {
        "currency": "USD", "balance_cents": 0, "items": [], "next_cursor": None,
    }  # fmt: skip
    first, second = grant(house, tenant.org_id, "49.9"), grant(house, tenant.org_id, months=1)
    with house.database.write() as db:
        until = house.now().replace(year=2000)
        credit_ledger.use(db, tenant.org_id, "invoice_1", 700, currency="USD", until=until)
    found = house.get(f"{tenant.path}/credits", tenant.key).json()
    assert [one["id"] for one in found["items"]] == [second, first]
    assert (found["balance_cents"], found["items"][0]["remaining_cents"]) == (9_290, 4_300)
    assert found["items"][1]["expires_at"] is None
    assert found["items"][0]["reason"] == "for the outage"
    house.pass_time(64 * 86_400)
    found = house.get(f"{tenant.path}/credits?limit=1", tenant.key).json()
    assert found["items"][0]["status"] == "expired"
    assert found["balance_cents"] == 4_990
    assert found["next_cursor"]
    house.database.clock_offset *= 0


def test_a_grant_is_told_without_its_reason(house: House, tenant: Tenant) -> None:
    made = grant(house, tenant.org_id)
    told = {"kind": "granted", "amount_cents": 5_000, "currency": "USD"}
    with house.database.read() as db:
        event = written.events_of(db, tenant.org_id)[-1]
        assert (event.type, event.data) == ("credit.granted.v1", {"credit_id": made, **told})
        entry = written.audited(db, tenant.org_id)[0]
        assert (entry.action, entry.actor_kind, entry.target) == ("credit.grant", "system", made)
        assert entry.detail == {**told, "months": None}


def test_a_reference_grants_once(house: House, tenant: Tenant) -> None:
    grant(house, tenant.org_id, reference="ticket 17")
    grant(house, house.tenant().org_id, reference="ticket 17")
    with pytest.raises(StateConflict, match="granted for this already"):
        grant(house, tenant.org_id, reference="ticket 17")


@pytest.mark.parametrize(
    "cents",
    ["", "0", "0.00", "-1", "+1", "1e3", "1,5", "0.001", ".5", "1_000", "٣", "1.-1", "99999999999"],
)
def test_what_is_no_amount_is_refused(house: House, tenant: Tenant, cents: str) -> None:
    with pytest.raises(SettingsError, match=r"amount|at least|at most"):
        grant(house, tenant.org_id, cents)


def test_nothing_is_granted_to_nobody_or_without_a_reason(house: House, tenant: Tenant) -> None:
    with pytest.raises(RecordNotFound):
        grant(house, f"org_{NEVER}")
    for reason in ("", " ", "a\x1b[2Jb", "x" * 2001):
        with pytest.raises(SettingsError, match="--reason"):
            credit_grants.grant(
                house.services, tenant.org_id, "5", reason=reason, months=1, reference=None
            )


def test_only_who_sees_the_bills_sees_credits(house: House, tenant: Tenant) -> None:
    grant(house, tenant.org_id)
    path = f"{tenant.path}/credits"
    for role, status in (("admin", 200), ("auditor", 200), ("developer", 403), ("member", 403)):
        assert house.get(path, house.member(tenant.org_id, role).session).status_code == status
    is_problem(house.get(path, house.tenant().key), 404, "not_found")


def test_where_billing_is_off_there_is_none(make_house: MakeHouse) -> None:
    house = make_house()
    tenant = house.tenant()
    settings = replace(house.services.settings, prices=price_lists.free())
    object.__setattr__(house.services, "settings", settings)
    apply = {"programme": "startup", "statement": "We rent out looms."}
    for method, path, body in (
        ("GET", "credits", None),
        ("GET", "programmes/applications", None),
        ("POST", "programmes/applications", apply),
        ("GET", "referrals", None),
        ("POST", "referrals", None),
    ):
        sent: dict[str, Any] = {} if body is None else {"json": body}
        answer = house.request(method, f"{tenant.path}/{path}", tenant.key, **sent)
        is_problem(answer, 409, "billing_off")
    body = {"name": "Referred", "referral_code": "0123456789"}
    is_problem(house.post("/v1/orgs", house.person().session, json=body), 409, "billing_off")


def test_a_command_says_that_there_is_no_installation(tmp_path: Path) -> None:
    told = f"{tmp_path} is not the home of an installation"
    for command in (["credits", "grant", "org_1", "5", "--reason", "so"], ["billing", "run"]):
        called = [sys.executable, "-m", "menagerie", *command, "--home", str(tmp_path)]
        ended = subprocess.run(called, capture_output=True, text=True, check=False)
        assert (ended.returncode, told in ended.stderr) == (2, True), ended.stderr
