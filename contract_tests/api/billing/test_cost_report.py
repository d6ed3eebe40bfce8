"""The cost report: by team and cost centre, as JSON and as a file, with its forecast."""

import csv
import io
from datetime import timedelta
from decimal import Decimal

import pytest

from contract_tests.api.access.team_helpers import everyone, in_team, team
from contract_tests.api.billing import billed
from contract_tests.api.harness import House, Tenant
from contract_tests.api.rows import is_problem
from control.events import spreadsheet_cells
from control.policy.months import HOUR, Month, month_of

GB = 10**9


@pytest.fixture
def tenant(house: House) -> Tenant:
    return house.tenant()


@pytest.fixture
def month(house: House) -> Month:
    return billed.last_month(house)


def test_a_month_that_is_over_is_as_it_was(house: House, tenant: Tenant, month: Month) -> None:
    blue = team(house, tenant, "Blue", cost_centre="4711")
    instance = billed.instance(house, tenant, "m2", 60 * GB)
    team_id = blue.rpartition("/")[2]
    billed.span(house, tenant, instance, month.begin, month.end, size="m2", team_id=team_id)
    shown = house.get(f"{tenant.path}/cost-report", tenant.key, params={"month": month.name})
    cents = 1_000_000
    assert shown.json() == {
        "month": month.name,
        "currency": "USD",
        "as_of": month.end.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "is_over": True,
        "micro_cents": 11_120 * cents,
        "forecast_micro_cents": 11_120 * cents,
        "items": [
            {
                "team_id": team_id,
                "name": "Blue",
                "cost_centre": "4711",
                "micro_cents": 11_120 * cents,
                "forecast_micro_cents": 11_120 * cents,
                "metrics": [
                    {
                        "metric": "compute",
                        "unit": "second",
                        "quantity": month.seconds,
                        "micro_cents": 11_000 * cents,
                        "forecast_micro_cents": 11_000 * cents,
                    },
                    {
                        "metric": "storage",
                        "unit": "gb_second",
                        "quantity": 10 * month.seconds,
                        "micro_cents": 120 * cents,
                        "forecast_micro_cents": 120 * cents,
                    },
                ],
            }
        ],
        "next_cursor": None,
    }


def test_this_month_is_forecast_as_the_budget_of_its_team_is(house: House, tenant: Tenant) -> None:
    house.instance(tenant, size="m2")
    house.pass_time(3600)
    report = house.get(f"{tenant.path}/cost-report", tenant.key).json()
    own, of_team = report["items"]
    assert (own["team_id"], own["name"]) == (None, None)
    assert [each["metric"] for each in own["metrics"]] == ["plan"]
    assert report["micro_cents"] == own["micro_cents"] + of_team["micro_cents"]
    budget = house.get(f"{everyone(tenant)}/budget", tenant.key).json()
    for name in ("month_to_date_cents", "forecast_cents"):
        key = "micro_cents" if name.startswith("month") else "forecast_micro_cents"
        assert abs(budget[name] - of_team[key] // 1_000_000) <= 1
    assert report["is_over"] is False


def test_the_file_has_the_same_figures_and_no_formulas(
    house: House, tenant: Tenant, month: Month
) -> None:
    name = '=HYPERLINK("http://evil.example"),"x"'
    evil = team(house, tenant, name, cost_centre="@SUM(A1)")
    plain = team(house, tenant, "Plain")
    for path in (evil, plain):
        instance = billed.instance(house, tenant, "s1", 11 * GB)
        until = month.begin + timedelta(days=9, seconds=1)
        of = {"size": "s1", "team_id": path.rpartition("/")[2]}
        billed.span(house, tenant, instance, month.begin, until, **of)
    asked = {"month": month.name, "format": "csv"}
    answer = house.get(f"{tenant.path}/cost-report", tenant.key, params=asked)
    assert answer.headers["content-type"].startswith("text/csv")
    named = f'attachment; filename="cost-report-{month.name}.csv"'
    assert answer.headers["content-disposition"] == named
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert all(cell[:1] not in ("=", "+", "-", "@", "\t") for row in rows for cell in row.values())
    assert {spreadsheet_cells.unescaped(row["team"]) for row in rows} == {name, "Plain"}
    report = house.get(
        f"{tenant.path}/cost-report", tenant.key, params={"month": month.name}
    ).json()
    told = [
        (one["team_id"], each["metric"], Decimal(each["micro_cents"]) / 10**8)
        for one in report["items"]
        for each in one["metrics"]
    ]
    assert [(row["team_id"], row["metric"], Decimal(row["cost"])) for row in rows] == told
    assert sum(Decimal(row["cost"]) for row in rows) == Decimal(report["micro_cents"]) / 10**8


def test_pages_lead_to_all_teams_and_each_tells_the_whole(
    house: House, tenant: Tenant, month: Month
) -> None:
    for number in range(3):
        path = team(house, tenant, f"T{number}")
        instance = billed.instance(house, tenant, "s0", GB)
        of = {"size": "s0", "team_id": path.rpartition("/")[2]}
        billed.span(house, tenant, instance, month.begin, month.end, **of)
    found, cursor, sums = list[str](), dict[str, str](), set[int]()
    while True:
        asked = {"month": month.name, "limit": 2, **cursor}
        page = house.get(f"{tenant.path}/cost-report", tenant.key, params=asked).json()
        found += [one["team_id"] for one in page["items"]]
        sums.add(page["micro_cents"])
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert (len(found), found) == (3, sorted(found))
    assert sums == {3_000 * 1_000_000}


def test_a_team_sees_its_own_costs_in_both_forms(
    house: House, tenant: Tenant, month: Month
) -> None:
    blue, red = team(house, tenant, "Blue"), team(house, tenant, "Red")
    for path in (blue, red):
        instance = billed.instance(house, tenant, "s0", GB)
        of = {"size": "s0", "team_id": path.rpartition("/")[2]}
        billed.span(house, tenant, instance, month.begin, month.end, **of)
    viewer, asked = in_team(house, tenant, blue, "viewer"), {"month": month.name}
    path = f"{tenant.path}/cost-report"
    shown = house.get(path, viewer.session, params=asked).json()
    assert [one["team_id"] for one in shown["items"]] == [blue.rpartition("/")[2]]
    file = house.get(path, viewer.session, params={**asked, "format": "csv"}).text
    assert "Blue" in file
    assert "Red" not in file
    stranger = house.tenant()
    is_problem(house.get(path, stranger.key, params={"format": "csv"}), 404, "not_found")


def test_a_month_to_come_is_refused(house: House, tenant: Tenant) -> None:
    coming = month_of(month_of(house.now()).end + HOUR).name
    for month in (coming, "9999-12", "0000-01", "0001-01"):
        answer = house.get(f"{tenant.path}/cost-report", tenant.key, params={"month": month})
        is_problem(answer, 422, "invalid_request")
