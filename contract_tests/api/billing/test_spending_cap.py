"""The spending cap: whatever would exceed it is refused, one by one and all at once."""

from typing import Any

import httpx
import pytest

from contract_tests import written
from contract_tests.api.harness import House, Tenant
from contract_tests.api.rows import is_problem
from control.policy.months import month_of

GB = 10**9


@pytest.fixture
def tenant(house: House) -> Tenant:
    """At the beginning of a month, so that a month's price is what an order comes to."""
    house.pass_time((month_of(house.now()).end - house.now()).total_seconds() + 1)
    return house.tenant(plan="team")


def cap(house: House, tenant: Tenant, cents: int | None, on_reach: str = "refuse") -> Any:
    body = {"monthly_amount_cents": cents, "on_reach": on_reach}
    answer = house.request("PUT", f"{tenant.path}/spending-cap", tenant.key, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def shown(house: House, tenant: Tenant) -> Any:
    return house.get(f"{tenant.path}/spending-cap", tenant.key).json()


def room(house: House, tenant: Tenant, cents: int) -> None:
    """Leave so much beside what is there."""
    cap(house, tenant, shown(house, tenant)["committed_cents"] + cents + 2)


def order(house: House, tenant: Tenant, size: str, **more: Any) -> httpx.Response:
    path = f"{tenant.path}/projects/{tenant.project_id}/instances"
    params = more.pop("params", None)
    body = {"engine": "duckdb", "size": size, **more}
    return house.post(path, tenant.key, json=body, params=params)


def exceeds(answer: httpx.Response) -> None:
    is_problem(answer, 402, "spending_cap_exceeded")
    assert "the spending cap is" in answer.json()["detail"]


def test_it_is_set_shown_audited_and_removed(house: House, tenant: Tenant) -> None:
    fresh = shown(house, tenant)
    assert (fresh["monthly_amount_cents"], fresh["left_cents"]) == (None, None)
    given = cap(house, tenant, 50_000, "pause")
    assert (given["monthly_amount_cents"], given["on_reach"]) == (50_000, "pause")
    assert given["committed_cents"] + given["left_cents"] in (49_999, 50_000)
    with house.database.read() as db:
        entry = written.audited(db, tenant.org_id)[0]
    assert (entry.action, entry.target) == ("spending_cap.replace", tenant.org_id)
    assert entry.detail["monthly_amount_cents"] == 50_000
    assert entry.detail["changes"] == {
        "monthly_amount_cents": {"from": None, "to": 50_000},
        "on_reach": {"from": "refuse", "to": "pause"},
    }
    assert cap(house, tenant, None)["left_cents"] is None
    assert order(house, tenant, "m2").status_code == 201


def test_without_on_reach_what_runs_goes_on(house: House, tenant: Tenant) -> None:
    """Also where it was `pause` before: a PUT replaces all of the cap."""
    cap(house, tenant, 50_000, "pause")
    path, body = f"{tenant.path}/spending-cap", {"monthly_amount_cents": 60_000}
    given = house.request("PUT", path, tenant.key, json=body).json()
    assert (given["monthly_amount_cents"], given["on_reach"]) == (60_000, "refuse")
    with house.database.read() as db:
        entry = written.audited(db, tenant.org_id)[0]
    assert entry.detail["on_reach"] == "refuse"
    assert entry.detail["changes"]["on_reach"] == {"from": "pause", "to": "refuse"}


def test_an_order_that_exceeds_it_is_refused_with_the_sums(house: House, tenant: Tenant) -> None:
    room(house, tenant, 1_600)
    preview = order(house, tenant, "s0", params={"dry_run": True})
    assert preview.json()["spending_cap_left_cents"] in (601, 602)
    exceeds(order(house, tenant, "s2"))
    exceeds(order(house, tenant, "s2", params={"dry_run": True}))
    exceeds(order(house, tenant, "s1", storage_bytes=20 * GB))
    assert order(house, tenant, "s1").status_code == 201
    # It counts though it is not ready yet; and what costs nothing is always allowed.
    exceeds(order(house, tenant, "s0"))
    assert order(house, tenant, "f0").status_code == 201
    is_problem(order(house, tenant, "nope"), 422, "invalid_request")


def test_twenty_orders_at_once_stay_below_it(house: House, tenant: Tenant) -> None:
    room(house, tenant, 5_000)
    path = f"{tenant.path}/projects/{tenant.project_id}/instances"
    body = {"engine": "duckdb", "size": "s0"}
    answers = house.together(*[("POST", path, tenant.key, {"json": body}) for _ in range(20)])
    codes = sorted(answer.status_code for answer in answers)
    assert codes == [201] * 5 + [402] * 15
    assert shown(house, tenant)["left_cents"] < 1_000


def test_growth_branches_and_resuming_are_held_to_it(house: House, tenant: Tenant) -> None:
    instance = f"{tenant.path}/instances/{house.instance(tenant, size='s1')}"
    room(house, tenant, 100)
    for body in ({"size": "m2"}, {"storage_bytes": 50 * GB}):
        exceeds(house.request("PATCH", instance, tenant.key, json=body))
    exceeds(house.post(f"{instance}/branches", tenant.key, json={}))
    assert house.request("PATCH", instance, tenant.key, json={"name": "other"}).is_success
    small = house.request("PATCH", instance, tenant.key, json={"storage_bytes": 12 * GB})
    assert small.is_success, small.text
    house.settle()
    assert house.request("PATCH", instance, tenant.key, json={"size": "s0"}).is_success
    house.settle()
    assert house.post(f"{instance}/actions/pause", tenant.key).is_success
    house.settle()
    cap(house, tenant, 0)
    exceeds(house.post(f"{instance}/actions/resume", tenant.key))
    cap(house, tenant, None)
    assert house.post(f"{instance}/actions/resume", tenant.key).is_success


def test_a_deleted_one_comes_back_only_within_it(house: House, tenant: Tenant) -> None:
    instance = f"{tenant.path}/instances/{house.instance(tenant, size='s1')}"
    assert house.request("DELETE", instance, tenant.key).is_success
    house.settle()
    cap(house, tenant, 0)
    exceeds(house.post(f"{instance}/actions/undelete", tenant.key))
    cap(house, tenant, None)
    assert house.post(f"{instance}/actions/undelete", tenant.key).is_success


def test_the_next_month_is_another_one(house: House, tenant: Tenant) -> None:
    house.instance(tenant, size="s0")
    house.pass_time(86_400)
    room(house, tenant, 900)
    exceeds(order(house, tenant, "s0"))
    house.pass_time((month_of(house.now()).end - house.now()).total_seconds() - 60)
    # A minute before its end, little more can be spent in it.
    assert order(house, tenant, "s0").status_code == 201


def test_only_those_who_hold_billing_set_it(house: House, tenant: Tenant) -> None:
    body = {"monthly_amount_cents": 1, "on_reach": "refuse"}
    path = f"{tenant.path}/spending-cap"
    for role, reads, writes in (
        ("admin", 200, 200),
        ("auditor", 200, 403),
        ("developer", 403, 403),
    ):
        person = house.member(tenant.org_id, role)
        assert house.get(path, person.session).status_code == reads
        assert house.request("PUT", path, person.session, json=body).status_code == writes
    stranger = house.tenant()
    is_problem(house.request("PUT", path, stranger.key, json=body), 404, "not_found")


@pytest.mark.parametrize(
    "body",
    [
        {"monthly_amount_cents": -1, "on_reach": "refuse"},
        {"monthly_amount_cents": 10**12 + 1, "on_reach": "refuse"},
        {"monthly_amount_cents": 1.5, "on_reach": "refuse"},
        {"monthly_amount_cents": 1, "on_reach": "stop"},
        {"on_reach": "refuse"},
        {"monthly_amount_cents": 1, "on_reach": "refuse", "org_id": "org_other"},
    ],
)
def test_what_is_no_cap_is_refused(house: House, tenant: Tenant, body: Any) -> None:
    answer = house.request("PUT", f"{tenant.path}/spending-cap", tenant.key, json=body)
    is_problem(answer, 422, "invalid_request")
