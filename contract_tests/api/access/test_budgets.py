"""What a team spends: counted, forecast, compared with its budget, and shown to whom."""

from datetime import datetime
from typing import Any

import pytest
from sqlalchemy import select

from contract_tests.api.access.team_helpers import everyone, in_team, outsider, team
from contract_tests.api.harness import House, Tenant
from contract_tests.api.rows import is_problem
from contract_tests.workflows.known import take_turn
from control.policy.months import month_of
from storage.access.budgets import BudgetNotice
from storage.events.alerts import Alert
from storage.instances.spans import BilledSpan

GB = 10**9


@pytest.fixture
def tenant(house: House) -> Tenant:
    return house.tenant()


def budget(house: House, tenant: Tenant, path: str) -> dict[str, Any]:
    answer = house.get(f"{path}/budget", tenant.key)
    assert answer.status_code == 200, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


def set_budget(house: House, tenant: Tenant, path: str, cents: int | None) -> None:
    body = {"monthly_budget_cents": cents}
    assert house.request("PATCH", path, tenant.key, json=body).status_code == 200


def move(house: House, tenant: Tenant, path: str) -> None:
    body = {"team_id": path.rpartition("/")[2]}
    project = f"{tenant.path}/projects/{tenant.project_id}"
    assert house.request("PATCH", project, tenant.key, json=body).status_code == 200


def look(house: House) -> None:
    with house.database.write() as db:
        take_turn(db, "budgets.watch")
    house.settle()


def spans(house: House, instance_id: str) -> list[BilledSpan]:
    rows = select(BilledSpan).where(BilledSpan.instance_id == instance_id).order_by(BilledSpan.id)
    with house.database.read() as db:
        return list(db.scalars(rows))


def test_a_team_without_anything_spends_nothing(house: House, tenant: Tenant) -> None:
    path = team(house, tenant)
    shown = budget(house, tenant, path)
    month = month_of(datetime.fromisoformat(shown["as_of"]))
    assert shown == {
        "team_id": path.rpartition("/")[2],
        "month": month.name,
        "as_of": shown["as_of"],
        "currency": "USD",
        "month_to_date_cents": 0,
        "forecast_cents": 0,
        "monthly_budget_cents": None,
        "used_percent": None,
        "forecast_percent": None,
        "live_instances": 0,
        "live_storage_bytes": 0,
    }


def test_what_runs_is_counted_by_the_second_and_forecast_to_the_end(
    house: House, tenant: Tenant
) -> None:
    instance_id = house.instance(tenant, size="m2", storage_bytes=60 * GB)
    house.instance(tenant, size="f0")
    set_budget(house, tenant, everyone(tenant), 5_000)
    house.pass_time(40 * 3600)
    (span,) = spans(house, instance_id)
    shown = budget(house, tenant, everyone(tenant))
    as_of = datetime.fromisoformat(shown["as_of"])
    month = month_of(as_of)
    begin = max(span.since, month.begin)
    price = 11_000 + 10 * 12
    whole = month.seconds
    until_now = price * (as_of - begin).total_seconds() / whole
    until_end = price * (month.end - begin).total_seconds() / whole
    assert shown["month_to_date_cents"] == pytest.approx(until_now, abs=1)
    assert shown["forecast_cents"] == pytest.approx(until_end, abs=1)
    assert shown["used_percent"] == shown["month_to_date_cents"] * 100 // 5_000
    assert shown["forecast_percent"] == shown["forecast_cents"] * 100 // 5_000
    assert (shown["live_instances"], shown["live_storage_bytes"]) == (2, 61 * GB)


def test_paused_and_deleted_ones_cost_no_compute(house: House, tenant: Tenant) -> None:
    instance_id = house.instance(tenant, size="m2", storage_bytes=60 * GB)
    path = f"{tenant.path}/instances/{instance_id}"
    assert house.post(f"{path}/actions/pause", tenant.key).is_success
    house.settle()
    house.pass_time(40 * 86_400)
    shown = budget(house, tenant, everyone(tenant))
    # Of the storage beyond what is included, in a month that it is paused in all the time.
    assert shown["forecast_cents"] == 120
    assert 0 < shown["month_to_date_cents"] <= 120
    assert house.request("DELETE", path, tenant.key).is_success
    house.settle()
    shown = budget(house, tenant, everyone(tenant))
    assert (shown["live_instances"], shown["live_storage_bytes"]) == (0, 0)
    assert [span.until is not None for span in spans(house, instance_id)] == [True, True]


def test_what_moves_is_paid_where_it_is(house: House, tenant: Tenant) -> None:
    blue, red = team(house, tenant, "Blue"), team(house, tenant, "Red")
    move(house, tenant, blue)
    instance_id = house.instance(tenant, size="m2")
    move(house, tenant, red)
    first, second = spans(house, instance_id)
    assert [first.team_id, second.team_id] == [one.rpartition("/")[2] for one in (blue, red)]
    assert (first.until, second.until) == (second.since, None)
    house.pass_time(3 * 3600)
    left, there = (budget(house, tenant, path) for path in (blue, red))
    assert (left["live_instances"], there["live_instances"]) == (0, 1)
    assert left["month_to_date_cents"] == left["forecast_cents"]
    assert there["forecast_cents"] > there["month_to_date_cents"] > 0


def test_whoever_has_usage_read_in_the_team_sees_it(house: House, tenant: Tenant) -> None:
    blue, red = team(house, tenant, "Blue"), team(house, tenant, "Red")
    viewer = in_team(house, tenant, blue, "viewer")
    assert house.get(f"{blue}/budget", viewer.session).status_code == 200
    for path, person in ((red, viewer), (blue, outsider(house, tenant))):
        answer = house.get(f"{path}/budget", person.session)
        is_problem(answer, 403, "permission_missing")
    scoped, _ = house.key(tenant.org_id, tenant.owner, "owner", scopes=["teams:read"])
    is_problem(house.get(f"{blue}/budget", scoped), 403, "permission_missing")
    stranger = house.tenant()
    is_problem(house.get(f"{blue}/budget", stranger.key), 404, "not_found")
    theirs = blue.replace(tenant.org_id, stranger.org_id)
    is_problem(house.get(f"{theirs}/budget", stranger.key), 404, "not_found")


def test_an_alert_of_a_team_is_seen_by_the_team_and_goes_with_it(
    house: House, tenant: Tenant
) -> None:
    blue = team(house, tenant, "Blue", monthly_budget_cents=0)
    red = team(house, tenant, "Red")
    viewer, other = (in_team(house, tenant, path, "viewer") for path in (blue, red))
    move(house, tenant, blue)
    house.instance(tenant, size="m2")
    house.pass_time(60)
    look(house)
    (alert,) = house.get(f"{tenant.path}/alerts", viewer.session).json()["items"]
    assert (alert["kind"], alert["severity"]) == ("budget_threshold", "critical")
    assert (alert["instance_id"], alert["team_id"]) == (None, blue.rpartition("/")[2])
    assert house.get(f"{tenant.path}/alerts", other.session).json()["items"] == []
    acknowledged = f"{tenant.path}/alerts/{alert['id']}/actions/acknowledge"
    assert house.post(acknowledged, tenant.key).json()["acknowledged"] is True
    move(house, tenant, everyone(tenant))
    assert house.request("DELETE", blue, tenant.key).status_code == 204
    with house.database.read() as db:
        for kind in (Alert, BudgetNotice):
            assert db.scalars(select(kind).where(kind.org_id == tenant.org_id)).all() == []
    # What it has cost stays in the record, though there is nobody any more to show it to.
    look(house)


def test_each_operation_is_the_same_when_many_ask(house: House, tenant: Tenant) -> None:
    house.instance(tenant, size="m2")
    path = f"{everyone(tenant)}/budget"
    answers = house.together(*[("GET", path, tenant.key, {}) for _ in range(20)])
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.json()["live_instances"] for answer in answers} == {1}
