"""Usage: by time and by whom, adding up to the same however it is cut, and shown to whom."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from contract_tests.api.access.team_helpers import in_team, outsider, team
from contract_tests.api.billing import billed
from contract_tests.api.harness import House, Tenant
from contract_tests.api.rows import is_problem
from control.policy.months import Month
from control.policy.prices import MICRO_CENTS

GB = 10**9


@pytest.fixture
def tenant(house: House) -> Tenant:
    return house.tenant()


@pytest.fixture
def month(house: House) -> Month:
    return billed.last_month(house)


def usage(house: House, tenant: Tenant, month: Month, **params: Any) -> list[dict[str, Any]]:
    asked = {"from": month.begin.isoformat(), "to": month.end.isoformat(), **params}
    found: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        answer = house.get(f"{tenant.path}/usage", tenant.key, params={**asked, **cursor})
        assert answer.status_code == 200, answer.text
        found += answer.json()["items"]
        if answer.json()["next_cursor"] is None:
            return found
        cursor = {"cursor": answer.json()["next_cursor"]}


def test_a_whole_month_costs_its_price_and_a_move_splits_it(
    house: House, tenant: Tenant, month: Month
) -> None:
    blue, red = (team(house, tenant, name, cost_centre=name) for name in ("Blue", "Red"))
    ids = [path.rpartition("/")[2] for path in (blue, red)]
    half = month.begin + timedelta(days=10, seconds=7)
    instance = billed.instance(house, tenant, "s0", 8 * GB)
    billed.span(house, tenant, instance, month.begin, half, team_id=ids[0], size="s0")
    billed.span(house, tenant, instance, half, month.end, team_id=ids[1], size="s0")
    found = usage(house, tenant, month, granularity="month")
    assert [(one["group"], one["name"]) for one in found] == sorted(
        zip(ids, ("Blue", "Red"), strict=True)
    )
    seconds = [(half - month.begin).total_seconds(), (month.end - half).total_seconds()]
    by_team = {one["group"]: one for one in found}
    for team_id, of in zip(ids, seconds, strict=True):
        compute, storage = by_team[team_id]["metrics"]
        share = int(of)
        assert compute == {
            "metric": "compute",
            "unit": "second",
            "quantity": share,
            "micro_cents": 1_000 * MICRO_CENTS * share // month.seconds,
        }
        assert (storage["quantity"], storage["unit"]) == (3 * share, "gb_second")
    whole = sum(one["micro_cents"] for one in found)
    assert (1_036 * MICRO_CENTS) - whole in range(4)
    by_centre = usage(house, tenant, month, granularity="month", group_by="cost_centre")
    assert {one["group"]: one["micro_cents"] for one in by_centre} == {
        name: by_team[team_id]["micro_cents"]
        for name, team_id in zip(("Blue", "Red"), ids, strict=True)
    }


@pytest.mark.parametrize("group_by", ["team", "cost_centre", "instance", "metric"])
def test_parts_and_groups_add_up_to_the_same(
    house: House, tenant: Tenant, month: Month, group_by: str
) -> None:
    begin = month.begin + timedelta(days=3, hours=5, seconds=11)
    for size, days in (("s0", 2), ("s1", 3), ("m2", 1)):
        instance = billed.instance(house, tenant, size, 77 * GB)
        end = begin + timedelta(days=days, seconds=days)
        billed.span(house, tenant, instance, begin, end, size=size)
        billed.metered(house, tenant, instance, "egress", begin, 3 * GB + 1)
    week = {"from": (month.begin + timedelta(days=2)).isoformat()}
    week["to"] = (month.begin + timedelta(days=9)).isoformat()
    sums = {
        granularity: sum(
            one["micro_cents"]
            for one in usage(
                house, tenant, month, group_by=group_by, granularity=granularity, **week
            )
        )
        for granularity in ("hour", "day", "month")
    }
    whole = usage(house, tenant, month, group_by="metric", granularity="month")
    assert set(sums.values()) == {sum(one["micro_cents"] for one in whole)}


def test_pages_lead_to_all_of_it_once(house: House, tenant: Tenant, month: Month) -> None:
    for _ in range(3):
        instance = billed.instance(house, tenant, "s0", GB)
        billed.span(
            house, tenant, instance, month.begin, month.begin + timedelta(days=4), size="s0"
        )
    at_once = usage(house, tenant, month, group_by="instance", limit=200)
    in_pages = usage(house, tenant, month, group_by="instance", limit=5)
    assert len(at_once) == 12
    assert in_pages == at_once
    assert all(one["name"] == one["group"] for one in at_once)
    places = [(one["begin"], one["group"]) for one in at_once]
    assert places == sorted(set(places))


def test_this_month_is_told_until_now_with_the_fee_of_the_plan(
    house: House, tenant: Tenant
) -> None:
    house.instance(tenant, size="m2")
    house.pass_time(3 * 3600)
    answer = house.get(f"{tenant.path}/usage", tenant.key, params={"group_by": "metric"})
    groups = {one["group"] for one in answer.json()["items"]}
    assert groups == {"compute", "plan"}
    assert answer.json()["currency"] == "USD"
    own = house.get(f"{tenant.path}/usage", tenant.key).json()["items"]
    assert {
        metric["metric"] for one in own if one["group"] is None for metric in one["metrics"]
    } == {"plan"}


def test_who_may_read_it_in_a_team_is_told_of_that_team(
    house: House, tenant: Tenant, month: Month
) -> None:
    blue, red = team(house, tenant, "Blue"), team(house, tenant, "Red")
    for path in (blue, red):
        instance = billed.instance(house, tenant, "s0", GB)
        of = {"team_id": path.rpartition("/")[2], "size": "s0"}
        billed.span(house, tenant, instance, month.begin, month.end, **of)
    viewer = in_team(house, tenant, blue, "viewer")
    asked = {"from": month.begin.isoformat(), "to": month.end.isoformat(), "granularity": "month"}
    seen = house.get(f"{tenant.path}/usage", viewer.session, params=asked).json()["items"]
    assert [one["group"] for one in seen] == [blue.rpartition("/")[2]]
    nobody = outsider(house, tenant)
    is_problem(house.get(f"{tenant.path}/usage", nobody.session), 403, "permission_missing")
    stranger = house.tenant()
    is_problem(house.get(f"{tenant.path}/usage", stranger.key), 404, "not_found")
    theirs = house.get(f"{stranger.path}/usage", stranger.key, params=asked).json()["items"]
    assert theirs == []


@pytest.mark.parametrize(
    ("params", "parameter"),
    [
        ({"from": "2026-01-01T00:30:00Z"}, "from"),
        ({"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:01Z"}, "to"),
        ({"from": "2026-01-01T00:00:00Z", "granularity": "hour"}, "from"),
        ({"from": "2020-01-01T00:00:00Z", "granularity": "month"}, "from"),
        ({"from": "0000-01-01T00:00:00Z"}, "from"),
    ],
)
def test_a_span_is_of_full_hours_and_bounded(
    house: House, tenant: Tenant, params: dict[str, str], parameter: str
) -> None:
    answer = house.get(f"{tenant.path}/usage", tenant.key, params=params)
    is_problem(answer, 422, "invalid_request")
    assert [each["parameter"] for each in answer.json()["errors"]] == [parameter]


def test_a_span_that_ends_before_it_begins_has_nothing(house: House, tenant: Tenant) -> None:
    later = (datetime.now(UTC) + timedelta(days=400)).strftime("%Y-%m-%dT%H:00:00Z")
    for span in (
        {"from": later},
        {"from": "9999-12-31T23:00:00Z"},
        {"from": "9999-12-31T23:00:00Z", "to": "9999-12-31T23:00:00Z"},
        {"from": "0001-01-01T00:00:00Z", "to": "0001-01-02T00:00:00Z"},
        {"to": "0001-01-01T00:00:00Z"},
    ):
        answer = house.get(f"{tenant.path}/usage", tenant.key, params=span)
        assert (answer.status_code, answer.json()["items"]) == (200, [])


def test_where_money_is_off_nothing_is_told(house: House, tenant: Tenant) -> None:
    with billed.money_off(house):
        for path in ("usage", "cost-report", "spending-cap"):
            is_problem(house.get(f"{tenant.path}/{path}", tenant.key), 409, "billing_off")
        body = {"monthly_amount_cents": 1, "on_reach": "refuse"}
        cap = house.request("PUT", f"{tenant.path}/spending-cap", tenant.key, json=body)
        is_problem(cap, 409, "billing_off")
        sizes = house.get("/v1/sizes", tenant.key).json()["items"]
        assert {one["price_usd_cents_month"] for one in sizes} == {0}
