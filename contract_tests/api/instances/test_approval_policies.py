"""Which orders need approval: a team's policy, who sets it, and that nothing goes around it."""

from typing import Any

import pytest

from contract_tests.api.access.team_helpers import everyone, last_audited, put, team
from contract_tests.api.harness import House
from contract_tests.api.instances.approval_helpers import (
    Site,
    asked,
    decide,
    instances,
    order,
    placed,
    site,
)
from contract_tests.api.rows import is_problem

NEVER_ASKS = {
    "every_order": False,
    "above_size": None,
    "above_monthly_cost_cents": None,
    "over_budget": False,
}


def change(house: House, at: Site, token: str, **body: Any) -> Any:
    return house.request("PATCH", at.team, token, json=body)


# The policy.


def test_a_team_asks_for_nothing_by_itself(house: House) -> None:
    tenant = house.tenant()
    path = team(house, tenant)
    for each in (path, everyone(tenant)):
        assert house.get(each, tenant.key).json()["approval_policy"] == NEVER_ASKS


def test_a_policy_is_set_whole_and_taken_away(house: House) -> None:
    at = site(house, {"above_size": "s1"})
    shown = house.get(at.team, at.operator.session).json()
    assert shown["approval_policy"] == {**NEVER_ASKS, "above_size": "s1"}
    sent = {"above_monthly_cost_cents": 2_000}
    answer = change(house, at, at.tenant.key, approval_policy=sent)
    assert answer.json()["approval_policy"] == {**NEVER_ASKS, **sent}
    changes = {
        "approval_policy.above_size": {"from": "s1", "to": None},
        "approval_policy.above_monthly_cost_cents": {"from": None, "to": 2_000},
    }
    detail = {"approval_policy": {**NEVER_ASKS, **sent}, "changes": changes}
    assert last_audited(house, at.tenant) == ("team.update", at.team_id, detail)
    for nothing in (None, {}, {"every_order": False}):
        answer = change(house, at, at.tenant.key, approval_policy=nothing)
        assert answer.json()["approval_policy"] == NEVER_ASKS
        assert order(house, at, at.operator.session).status_code == 201
        assert change(house, at, at.tenant.key, approval_policy=sent).status_code == 200


@pytest.mark.parametrize("policy", [None, {"above_size": "m2"}, {"every_order": True}])
def test_whoever_leads_the_team_does_not_change_it(house: House, policy: Any) -> None:
    at = site(house, {"above_size": "s1"})
    refused = change(house, at, at.lead.session, approval_policy=policy)
    is_problem(refused, 403, "permission_missing")
    assert refused.json()["permission"] == "teams:write"
    assert "/approval_policy" in refused.json()["detail"]
    assert change(house, at, at.lead.session, name="Else").status_code == 200
    key, _ = house.key(at.tenant.org_id, at.tenant.owner, "owner", scopes=["team:write"])
    is_problem(change(house, at, key, approval_policy=policy), 403, "permission_missing")


@pytest.mark.parametrize(
    ("policy", "pointer"),
    [
        ({"above_size": "zz9"}, "/approval_policy/above_size"),
        ({"above_size": "c1"}, "/approval_policy/above_size"),
        ({"above_size": "xl32"}, "/approval_policy/above_size"),
        ({"above_size": "' OR 1=1"}, "/approval_policy/above_size"),
        ({"over_budget": True}, "/approval_policy/over_budget"),
        ({"above_monthly_cost_cents": -1}, "/approval_policy/above_monthly_cost_cents"),
        ({"above_monthly_cost_cents": 10**13}, "/approval_policy/above_monthly_cost_cents"),
        ({"above_monthly_cost_cents": 0.5}, "/approval_policy/above_monthly_cost_cents"),
        ({"every_order": "yes"}, "/approval_policy/every_order"),
        ({"never": True}, "/approval_policy/never"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(house: House, policy: Any, pointer: str) -> None:
    at = site(house, {"above_size": "s1"})
    refused = change(house, at, at.tenant.key, approval_policy=policy)
    is_problem(refused, 422)
    assert any(each["pointer"].startswith(pointer) for each in refused.json()["errors"])
    body = {"name": "Other", "approval_policy": policy}
    is_problem(house.post(f"{at.tenant.path}/teams", at.tenant.key, json=body), 422)


def test_a_budget_that_a_policy_needs_stays(house: House) -> None:
    at = site(house, {"over_budget": True}, monthly_budget_cents=1_000)
    refused = change(house, at, at.tenant.key, monthly_budget_cents=None)
    is_problem(refused, 422)
    assert refused.json()["errors"][0]["pointer"] == "/approval_policy/over_budget"
    both = {"monthly_budget_cents": None, "approval_policy": None}
    assert change(house, at, at.tenant.key, **both).status_code == 200


# Which orders.


def test_above_a_size(house: House) -> None:
    at = site(house, {"above_size": "s0"})
    codes = [order(house, at, at.operator.session, size=size).status_code for size in ("f0", "s0")]
    assert codes == [201, 201]
    answer = order(house, at, at.operator.session, size="s1")
    assert answer.status_code == 202
    assert answer.json()["reasons"] == [{"rule": "above_size", "message": "size s1 is above s0"}]


def test_above_a_cost(house: House) -> None:
    at = site(house, {"above_monthly_cost_cents": 1_060})
    # The size includes 5 GB; each further one is 12 cents.
    storage = 10 * 10**9
    assert order(house, at, at.operator.session, storage_bytes=storage).status_code == 201
    answer = order(house, at, at.operator.session, storage_bytes=storage + 10**9)
    assert answer.status_code == 202
    (reason,) = answer.json()["reasons"]
    assert reason["rule"] == "above_monthly_cost"
    assert reason["message"] == "it costs 10.72 USD a month, above 10.60 USD"


def test_above_the_budget(house: House) -> None:
    at = site(house, {"over_budget": True}, monthly_budget_cents=2_000)
    for _ in range(2):
        assert order(house, at, at.operator.session).status_code == 201
    answer = order(house, at, at.operator.session)
    assert answer.status_code == 202
    (reason,) = answer.json()["reasons"]
    assert reason["rule"] == "over_budget"
    assert "cost 30.00 USD a month, above its budget of 20.00 USD" in reason["message"]
    # What costs nothing is within every budget, and what is deleted costs nothing any more.
    assert order(house, at, at.operator.session, size="f0").status_code == 201
    path = f"{at.tenant.path}/instances/{instances(house, at)[-1]}"
    assert house.request("DELETE", path, at.tenant.key).status_code == 202
    assert order(house, at, at.operator.session).status_code == 201


def test_orders_at_once_do_not_exceed_the_budget_together(house: House) -> None:
    at = site(house, {"over_budget": True}, monthly_budget_cents=3_000)
    request = ("POST", at.orders, at.operator.session, {"json": {"engine": "duckdb", "size": "s0"}})
    codes = sorted(each.status_code for each in house.together(*[request] * 20))
    assert codes == [201] * 3 + [202] * 17


def test_every_rule_that_holds_is_told(house: House) -> None:
    policy = {
        "every_order": True,
        "above_size": "f0",
        "above_monthly_cost_cents": 0,
        "over_budget": True,
    }
    at = site(house, policy, monthly_budget_cents=0)
    told = order(house, at, at.operator.session).json()["reasons"]
    rules = ["every_order", "above_size", "above_monthly_cost", "over_budget"]
    assert [each["rule"] for each in told] == rules


# Nothing goes around it.


def refused(answer: Any) -> None:
    is_problem(answer, 403, "approval_required")


def test_a_branch_is_an_order(house: House) -> None:
    at = site(house, {"above_size": "f0"})
    source = placed(house, at)
    before = instances(house, at)
    refused(house.post(f"{source}/branches", at.operator.session, json={}))
    assert instances(house, at) == before, "what was refused is not there"
    assert house.post(f"{source}/branches", at.lead.session, json={}).status_code == 201
    # A small one is free of it.
    small = placed(house, at, size="f0")
    assert house.post(f"{small}/branches", at.operator.session, json={}).status_code == 201


def test_a_restore_into_a_new_instance_is_an_order(house: House) -> None:
    at = site(house)
    source = placed(house, at, size="f0")
    backup = house.post(f"{source}/backups", at.operator.session, json={}).json()["id"]
    house.settle()
    path = f"{source}/backups/{backup}/actions/restore"
    refused(house.post(path, at.operator.session, json={}))
    assert len(instances(house, at)) == 1
    name = house.get(source, at.operator.session).json()["name"]
    in_place = {"mode": "in_place", "confirm_name": name}
    assert house.post(path, at.operator.session, json=in_place).status_code == 201
    house.settle()
    assert house.post(path, at.lead.session, json={}).status_code == 201


def test_a_restore_is_an_order_of_the_team_where_it_goes(house: House) -> None:
    at = site(house, {})
    source = placed(house, at, size="f0")
    backup = house.post(f"{source}/backups", at.tenant.key, json={}).json()["id"]
    house.settle()
    body = {"approval_policy": {"every_order": True}}
    assert house.request("PATCH", everyone(at.tenant), at.tenant.key, json=body).is_success
    member = house.member(at.tenant.org_id, "member")
    assert put(house, at.team, at.tenant.key, member, "operator").status_code == 200
    path = f"{source}/backups/{backup}/actions/restore"
    refused(house.post(path, member.session, json={"project_id": at.tenant.project_id}))
    assert house.post(path, member.session, json={}).status_code == 201


def test_an_instance_does_not_grow_past_the_policy(house: House) -> None:
    at = site(house, {"above_size": "s0"})
    path = placed(house, at)
    patch = "PATCH", path, at.operator.session
    refused(house.request(*patch, json={"size": "s1"}))
    more = {"storage_bytes": 6 * 10**9}
    assert house.request(*patch, json=more).status_code == 202
    house.settle()
    assert house.request("PATCH", path, at.lead.session, json={"size": "s1"}).status_code == 202
    house.settle()
    # It is above the policy now: it may get smaller and another name, and not larger.
    assert house.request(*patch, json={"name": "other", "size": "s1"}).status_code == 200
    refused(house.request(*patch, json={"storage_bytes": 11 * 10**9}))
    assert house.request(*patch, json={"size": "s0"}).status_code == 202


def test_where_every_order_needs_approval_nothing_grows_without(house: House) -> None:
    at = site(house)
    path = placed(house, at)
    for larger in ({"size": "s1"}, {"storage_bytes": 6 * 10**9}):
        refused(house.request("PATCH", path, at.operator.session, json=larger))
    assert house.request("PATCH", path, at.operator.session, json={"size": "s0"}).is_success


def test_growth_counts_in_the_budget_before_it_is_applied(house: House) -> None:
    at = site(house, {"over_budget": True}, monthly_budget_cents=2_600)
    first, second = placed(house, at), placed(house, at)
    assert house.request("PATCH", first, at.operator.session, json={"size": "s1"}).is_success
    refused(house.request("PATCH", second, at.operator.session, json={"size": "s1"}))
    assert order(house, at, at.operator.session).status_code == 202
    house.settle()
    refused(house.request("PATCH", second, at.operator.session, json={"size": "s1"}))


def test_what_was_deleted_comes_back_within_the_budget(house: House) -> None:
    at = site(house, {"over_budget": True, "above_size": "f0"}, monthly_budget_cents=1_000)
    path = placed(house, at)
    assert house.request("DELETE", path, at.operator.session).status_code == 202
    house.settle()
    undelete = f"{path}/actions/undelete"
    assert house.post(undelete, at.operator.session).status_code == 202, "it was ordered once"
    house.settle()
    assert house.request("DELETE", path, at.operator.session).status_code == 202
    house.settle()
    placed(house, at)
    refused(house.post(undelete, at.operator.session))
    assert house.post(undelete, at.lead.session).status_code == 202


def test_instances_do_not_come_by_moving_a_project(house: House) -> None:
    at = site(house)
    developer = house.member(at.tenant.org_id, "developer")
    everyones = at.tenant.project_id
    body = {"approval_policy": {"every_order": True}}
    # Somebody who leads a team without a policy, and is a developer in Everyone with one.
    assert change(house, at, at.tenant.key, approval_policy=None).status_code == 200
    assert house.request("PATCH", everyone(at.tenant), at.tenant.key, json=body).is_success
    assert put(house, at.team, at.tenant.key, developer, "admin").status_code == 200
    path = f"{at.tenant.path}/projects/{at.project_id}"
    move = {"team_id": everyone(at.tenant).rpartition("/")[2]}
    back = {"team_id": at.team_id}
    assert house.request("PATCH", path, developer.session, json=move).status_code == 200, "empty"
    assert house.request("PATCH", path, developer.session, json=back).status_code == 200
    assert order(house, at, developer.session).status_code == 201
    refused(house.request("PATCH", path, developer.session, json=move))
    assert house.request("PATCH", path, at.tenant.key, json=move).status_code == 200
    # And the other way round there is nothing to ask for.
    other = f"{at.tenant.path}/projects/{everyones}"
    assert house.request("PATCH", other, developer.session, json=back).status_code == 200


def test_what_waits_is_no_instance_yet(house: House) -> None:
    at = site(house)
    path = asked(house, at)
    body = {"name": "again", "team_id": at.team_id}
    assert house.post(f"{at.tenant.path}/projects", at.tenant.key, json=body).status_code == 201
    project = f"{at.tenant.path}/projects/{at.project_id}"
    assert house.request("DELETE", project, at.tenant.key).status_code == 204
    is_problem(decide(house, path, "approve", at.lead.session), 409)
