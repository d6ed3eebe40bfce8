"""Orders that wait for approval: asking, seeing, and the time that there is for a decision."""

import pytest

from contract_tests import written
from contract_tests.api.access.team_helpers import everyone, in_team, last_audited, outsider, put
from contract_tests.api.harness import House
from contract_tests.api.instances.approval_helpers import (
    Site,
    asked,
    decide,
    id_of,
    instances,
    kinds,
    letters_to,
    order,
    site,
)
from contract_tests.api.rows import DOCUMENT, NEVER, is_problem
from contract_tests.workflows.known import take_turn
from control.boundary import secret_members
from control.policy import approvals as policy
from control.policy import quotas
from specserver import Operation


def listed(house: House, at: Site, token: str, query: str = "") -> list[str]:
    answer = house.get(f"{at.tenant.path}/approvals{query}", token)
    assert answer.status_code == 200, answer.text
    return [each["id"] for each in answer.json()["items"]]


# Asking.


def test_an_order_waits_and_nothing_is_made(house: House) -> None:
    at = site(house)
    answer = order(house, at, at.operator.session, name="sales")
    assert answer.status_code == 202
    waiting = answer.json()
    assert waiting["status"] == "pending"
    assert waiting["order"] == {"engine": "duckdb", "size": "s0", "name": "sales"}
    assert (waiting["team_id"], waiting["project_id"]) == (at.team_id, at.project_id)
    assert waiting["requested_by"] == waiting["requester_id"] == at.operator.id
    assert waiting["cost_usd_cents_month"] == 1_000
    assert [each["rule"] for each in waiting["reasons"]] == ["every_order"]
    where = answer.headers["location"]
    assert house.get(where, at.operator.session).json() == waiting
    assert instances(house, at) == []
    assert kinds(house, at) == ["approval.requested.v1"]
    detail = {"engine": "duckdb", "size": "s0", "name": "sales", "approval_required": True}
    assert last_audited(house, at.tenant) == ("instance.create", waiting["id"], detail)


def test_those_who_can_decide_get_a_letter(house: House) -> None:
    at = site(house)
    admin = house.member(at.tenant.org_id, "admin")
    others = [at.operator, house.member(at.tenant.org_id, "developer")]
    path = asked(house, at, name="sales")
    for decider in (at.lead, admin, at.tenant.owner):
        (text,) = letters_to(house, decider)
        assert f"menagerie approvals approve {id_of(path)}" in text
        assert "duckdb, size s0, named sales" in text
        assert "10.00 USD a month" in text
        assert at.operator.email in text
    assert [letters_to(house, other) for other in others] == [[], []]


def test_no_more_people_are_written_to_than_a_few(house: House) -> None:
    at = site(house)
    for _ in range(policy.LETTERS_MAX + 2):
        house.member(at.tenant.org_id, "admin")
    house.settle()
    before = len(house.letters.sent)
    asked(house, at)
    house.settle()
    assert len(house.letters.sent) - before == policy.LETTERS_MAX
    assert len(letters_to(house, at.lead)) == 1, "who leads the team comes first"


def test_no_letter_asks_for_what_was_decided_meanwhile(house: House) -> None:
    at = site(house)
    path = asked(house, at)
    assert decide(house, path, "deny", at.lead.session).status_code == 200
    assert letters_to(house, at.lead) == []
    (text,) = letters_to(house, at.operator)
    assert "is denied" in text
    assert 'The reason given: "for the launch"' in text


def test_whoever_can_decide_needs_no_approval(house: House) -> None:
    at = site(house)
    admin = house.member(at.tenant.org_id, "admin")
    for token in (at.lead.session, admin.session, at.tenant.key):
        assert order(house, at, token).status_code == 201
    # A key leaves what its scopes do.
    key, _ = house.key(at.tenant.org_id, at.lead, "admin", scopes=["instances:write"])
    assert order(house, at, key).status_code == 202
    leading = ["instances:write", "approvals:decide"]
    key, _ = house.key(at.tenant.org_id, at.lead, "admin", scopes=leading)
    assert order(house, at, key).status_code == 201


def test_a_developer_does_not_decide_for_everyone(house: House) -> None:
    tenant = house.tenant()
    body = {"approval_policy": {"every_order": True}}
    assert house.request("PATCH", everyone(tenant), tenant.key, json=body).is_success
    at = Site(tenant, everyone(tenant), tenant.project_id, tenant.owner, tenant.owner)
    developer = house.member(tenant.org_id, "developer")
    answer = order(house, at, developer.session)
    assert answer.status_code == 202
    where = answer.headers["location"]
    is_problem(decide(house, where, "approve", developer.session), 403, "permission_missing")
    assert decide(house, where, "approve", tenant.key).status_code == 200


def test_an_order_that_is_wrong_does_not_wait(house: House) -> None:
    at = site(house)
    refused = order(house, at, at.operator.session, size="zz9")
    is_problem(refused, 422)
    assert refused.json()["errors"][0]["pointer"] == "/size"
    assert order(house, at, at.lead.session, name="taken").status_code == 201
    is_problem(order(house, at, at.operator.session, name="taken"), 409)
    assert listed(house, at, at.lead.session) == []


def test_a_dry_run_says_why_and_by_whom(house: House) -> None:
    at = site(house, {"above_size": "s0"})
    body = {"engine": "duckdb", "size": "s1"}
    shown = house.post(f"{at.orders}?dry_run=true", at.operator.session, json=body).json()
    assert shown["approval_required"] is True
    (reason,) = shown["approval"]["reasons"]
    assert reason == {"rule": "above_size", "message": "size s1 is above s0"}
    deciders = [each["user_id"] for each in shown["approval"]["deciders"]]
    assert deciders == [at.lead.id, at.tenant.owner.id]
    for token, size in ((at.lead.session, "s1"), (at.operator.session, "s0")):
        sent = {"engine": "duckdb", "size": size}
        told = house.post(f"{at.orders}?dry_run=true", token, json=sent).json()
        assert (told["approval_required"], told["approval"]) == (False, None)
    assert listed(house, at, at.lead.session) == []


def test_a_repeated_order_is_the_same_one(house: House) -> None:
    at = site(house)
    sent = [
        house.post(
            at.orders,
            at.operator.session,
            json={"engine": "duckdb", "size": "s0"},
            headers={"Idempotency-Key": "once"},
        )
        for _ in range(2)
    ]
    assert [each.status_code for each in sent] == [202, 202]
    assert sent[0].json() == sent[1].json()
    assert sent[0].headers["location"] == sent[1].headers["location"]
    assert len(listed(house, at, at.operator.session)) == 1


@pytest.mark.parametrize("name", ["APPROVALS_OF_ONE_MAX", "APPROVALS_MAX"])
def test_as_many_wait_as_may(house: House, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    at = site(house)
    monkeypatch.setattr(quotas, name, 3)
    body = {"engine": "duckdb", "size": "f0"}
    request = ("POST", at.orders, at.operator.session, {"json": body})
    codes = sorted(each.status_code for each in house.together(*[request] * 8))
    assert codes == [202] * 3 + [422] * 5
    # Keys of the same person are no way around it.
    key, _ = house.key(at.tenant.org_id, at.operator, "member")
    refused = order(house, at, key, size="f0")
    is_problem(refused, 422)
    assert refused.json()["errors"][0]["keyword"] == "quota"
    other = in_team(house, at.tenant, at.team, "operator")
    allowed = 202 if name == "APPROVALS_OF_ONE_MAX" else 422
    assert order(house, at, other.session, size="f0").status_code == allowed
    # What is decided no longer waits.
    (path, *_) = listed(house, at, at.operator.session, "?mine=true")
    where = f"{at.tenant.path}/approvals/{path}"
    assert decide(house, where, "deny", at.lead.session).status_code == 200
    if name == "APPROVALS_OF_ONE_MAX":
        assert order(house, at, key, size="f0").status_code == 202


def test_nothing_of_an_order_is_secret() -> None:
    """It is stored as it was sent: a secret in it would have to be sealed."""
    (creating,) = [
        one
        for path, method, described in DOCUMENT.operations()
        if (one := Operation(path, method, described)).id == "instances.create"
    ]
    assert not secret_members.names_of(creating.document)


# Seeing.


def test_who_sees_which_orders(house: House) -> None:
    at = site(house)
    tenant = at.tenant
    mine = id_of(asked(house, at))
    other_operator = in_team(house, tenant, at.team, "operator")
    theirs = order(house, at, other_operator.session).json()["id"]
    both = [theirs, mine]
    assert listed(house, at, at.lead.session) == both
    assert listed(house, at, tenant.owner.session) == both
    assert listed(house, at, house.member(tenant.org_id, "auditor").session) == both
    assert listed(house, at, at.operator.session) == [mine]
    assert listed(house, at, other_operator.session) == [theirs]
    assert listed(house, at, house.member(tenant.org_id, "developer").session) == []
    assert listed(house, at, tenant.key, "?mine=true") == []
    assert listed(house, at, tenant.key, f"?team_id={at.team_id}") == both
    assert listed(house, at, tenant.key, f"?team_id=team_{NEVER}") == []
    path = f"{tenant.path}/approvals/{mine}"
    for token in (at.lead.session, at.operator.session, tenant.key):
        assert house.get(path, token).status_code == 200
    stranger = house.tenant()
    for token in (other_operator.session, house.member(tenant.org_id, "developer").session):
        is_problem(house.get(path, token), 404, "not_found")
    is_problem(house.get(path, stranger.key), 404, "not_found")
    is_problem(house.get(f"{stranger.path}/approvals/{mine}", stranger.key), 404, "not_found")


def test_a_lead_of_another_team_neither_sees_nor_decides(house: House) -> None:
    at = site(house)
    path = asked(house, at)
    elsewhere = house.post(f"{at.tenant.path}/teams", at.tenant.key, json={"name": "Green"})
    lead = in_team(house, at.tenant, elsewhere.headers["location"], "admin")
    assert listed(house, at, lead.session) == []
    for verb in ("approve", "deny"):
        is_problem(decide(house, path, verb, lead.session), 404, "not_found")
    # Of their own order they read, and are told what they lack.
    assert put(house, at.team, at.tenant.key, lead, "operator").status_code == 200
    own = order(house, at, lead.session).headers["location"]
    assert house.get(own, lead.session).status_code == 200
    is_problem(decide(house, own, "approve", lead.session), 403, "permission_missing")


def test_lists_are_by_status_and_in_pages(house: House) -> None:
    at = site(house)
    approved, denied, expired = (asked(house, at) for _ in range(3))
    assert decide(house, approved, "approve", at.lead.session).status_code == 200
    assert decide(house, denied, "deny", at.lead.session).status_code == 200
    house.settle()
    house.pass_time(house.services.settings.approval_ttl_s)
    lead = house.session(at.lead.id)
    pending = order(house, at, house.session(at.operator.id)).json()["id"]
    ids = [pending, id_of(expired), id_of(denied), id_of(approved)]
    for status, shown in (
        ("", ids[:1]),
        ("?status=pending", ids[:1]),
        ("?status=expired", ids[1:2]),
        ("?status=denied", ids[2:3]),
        ("?status=approved", ids[3:]),
        ("?status=all", ids),
    ):
        assert listed(house, at, lead, status) == shown
    first = house.get(f"{at.tenant.path}/approvals?status=all&limit=3", lead).json()
    rest = f"?status=all&limit=3&cursor={first['next_cursor']}"
    assert [each["id"] for each in first["items"]] + listed(house, at, lead, rest) == ids
    is_problem(house.get(f"{at.tenant.path}/approvals?status=gone", lead), 422)


# Time.


def test_an_order_expires_by_the_clock_and_is_told_once(house: House) -> None:
    at = site(house)
    path = asked(house, at)
    house.settle()
    ttl_s = house.services.settings.approval_ttl_s
    house.pass_time(ttl_s - 60)
    operator = house.session(at.operator.id)
    assert house.get(path, operator).json()["status"] == "pending"
    house.pass_time(61)
    assert house.get(path, operator).json()["status"] == "expired"
    lead = house.session(at.lead.id)
    for verb in ("approve", "deny"):
        refused = decide(house, path, verb, lead)
        is_problem(refused, 409, "conflict")
        assert "has expired" in refused.json()["detail"]
    for _ in range(2):
        with house.database.write() as db:
            take_turn(db, "approvals.expire")
        house.settle()
    shown = house.get(path, operator).json()
    assert (shown["status"], shown["decided_by"], shown["decided_at"]) == ("expired", None, None)
    assert kinds(house, at) == ["approval.requested.v1", "approval.decided.v1"]
    with house.database.read() as db:
        entry = written.audited(db, at.tenant.org_id)[0]
        event = written.events_of(db, at.tenant.org_id)[-1]
    assert (entry.action, entry.actor_kind, entry.target) == (
        "approval.expire",
        "system",
        id_of(path),
    )
    assert (event.data["status"], event.data["instance_id"]) == ("expired", None)
    (text,) = letters_to(house, at.operator)
    assert "Nobody decided in time" in text


def test_expired_orders_take_no_place(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    at = site(house)
    monkeypatch.setattr(quotas, "APPROVALS_OF_ONE_MAX", 1)
    asked(house, at)
    is_problem(order(house, at, at.operator.session), 422)
    house.pass_time(house.services.settings.approval_ttl_s + 1)
    assert order(house, at, house.session(at.operator.id)).status_code == 202


def test_an_outsider_of_the_team_cannot_ask(house: House) -> None:
    at = site(house)
    stranger = outsider(house, at.tenant)
    # In no team they have no permission at all; seen from another team there is no such project.
    is_problem(order(house, at, stranger.session), 403, "permission_missing")
    developer = house.member(at.tenant.org_id, "developer")
    is_problem(order(house, at, developer.session), 404, "not_found")
