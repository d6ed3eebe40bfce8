"""Decisions about orders that wait: once, by whoever may, and not past what has changed since."""

from datetime import timedelta
from typing import Any

import pytest

from contract_tests import written
from contract_tests.api.access.team_helpers import everyone, last_audited, put
from contract_tests.api.harness import House
from contract_tests.api.instances.approval_helpers import (
    REASON,
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
from contract_tests.api.rows import is_problem
from storage.access import memberships
from storage.instances import instances as stored


def test_an_approved_order_is_placed_for_its_requester(house: House) -> None:
    at = site(house)
    path = asked(house, at, name="sales")
    answer = decide(house, path, "approve", at.lead.session)
    assert answer.status_code == 200
    decision = answer.json()
    told = {name: decision[name] for name in ("approval_id", "status", "reason", "decided_by")}
    assert told == {
        "approval_id": id_of(path),
        "status": "approved",
        "reason": "for the launch",
        "decided_by": at.lead.id,
    }
    house.settle()
    where = f"{at.tenant.path}/instances/{decision['instance_id']}"
    instance = house.get(where, at.operator.session).json()
    assert (instance["status"], instance["name"]) == ("running", "sales")
    assert instance["requested_by"] == at.operator.id
    shown = house.get(path, at.operator.session).json()
    assert (shown["status"], shown["instance_id"]) == ("approved", instance["id"])
    assert (shown["decided_by"], shown["decision_reason"]) == (at.lead.id, "for the launch")
    assert kinds(house, at) == [
        "approval.requested.v1",
        "instance.requested.v1",
        "approval.decided.v1",
        "instance.ready.v1",
    ]
    (text,) = letters_to(house, at.operator)
    assert "is approved" in text
    assert "The instance is being created." in text


def test_an_approval_is_audited_with_the_order(house: House) -> None:
    at = site(house)
    path = asked(house, at)
    made = decide(house, path, "approve", at.lead.session, {"reason": "a word of mine"}).json()
    with house.database.read() as db:
        decision, ordered = written.audited(db, at.tenant.org_id)[:2]
    assert (decision.action, decision.target) == ("approval.approve", id_of(path))
    assert decision.actor_id == at.lead.id
    detail = {"instance": made["instance_id"], "team_id": at.team_id}
    assert decision.detail == detail, "a free text is not in it"
    assert (ordered.action, ordered.target) == ("instance.create", made["instance_id"])
    assert (ordered.actor_kind, ordered.actor_id) == ("user", at.operator.id)
    assert ordered.detail == {"engine": "duckdb", "size": "s0", "approval": id_of(path)}
    other = asked(house, at)
    assert decide(house, other, "deny", at.tenant.key).status_code == 200
    told = ("approval.deny", id_of(other), {"team_id": at.team_id})
    assert last_audited(house, at.tenant) == told


def test_an_order_of_a_key_is_placed_for_the_key(house: House) -> None:
    at = site(house)
    key, key_id = house.key(at.tenant.org_id, at.operator, "member")
    answer = order(house, at, key)
    assert (answer.json()["requested_by"], answer.json()["requester_id"]) == (
        key_id,
        at.operator.id,
    )
    made = decide(house, answer.headers["location"], "approve", at.lead.session, {}).json()
    with house.database.read() as db:
        instance = stored.fetch(db, at.tenant.org_id, made["instance_id"])
        ordered = written.audited(db, at.tenant.org_id)[1]
    assert instance.requested_by == key_id
    assert (ordered.actor_kind, ordered.actor_id) == ("api_key", key_id)


def test_nobody_approves_their_own_order_without_the_right(house: House) -> None:
    at = site(house)
    path = asked(house, at)
    key, _ = house.key(at.tenant.org_id, at.operator, "owner")
    for token in (at.operator.session, key):
        for verb in ("approve", "deny"):
            is_problem(decide(house, path, verb, token), 403, "permission_missing")
    assert instances(house, at) == []
    # What a key without the right asked for, its owner may order at once, and so approve.
    key, _ = house.key(at.tenant.org_id, at.lead, "admin", scopes=["instances:write"])
    own = order(house, at, key).headers["location"]
    is_problem(decide(house, own, "approve", key), 403, "permission_missing")
    assert decide(house, own, "approve", at.lead.session).status_code == 200


def test_what_was_decided_stays_so(house: House) -> None:
    at = site(house)
    approved, denied = asked(house, at), asked(house, at)
    assert decide(house, approved, "approve", at.lead.session).status_code == 200
    assert decide(house, denied, "deny", at.lead.session).status_code == 200
    for path, status in ((approved, "approved"), (denied, "denied")):
        for verb in ("approve", "deny"):
            refused = decide(house, path, verb, at.tenant.key)
            is_problem(refused, 409, "conflict")
            assert f"is {status} already" in refused.json()["detail"]
    assert len(instances(house, at)) == 1


def test_a_repeated_decision_is_the_same_one(house: House) -> None:
    at = site(house)
    path = asked(house, at)
    once = {"headers": {"Idempotency-Key": "once"}}
    first, second = (decide(house, path, "approve", at.lead.session, **once) for _ in range(2))
    assert first.json() == second.json()
    assert second.headers["idempotency-replayed"] == "true"
    assert len(instances(house, at)) == 1
    is_problem(
        decide(house, path, "approve", at.lead.session, {"reason": "else"}, **once),
        422,
        "idempotency_key_reused",
    )


def test_of_many_decisions_at_once_one_holds(house: House) -> None:
    at = site(house)
    path = asked(house, at)
    tokens = [at.lead.session, at.tenant.key, at.tenant.owner.session]
    answers = house.together(
        *(
            (
                "POST",
                f"{path}/actions/{'approve' if each % 2 else 'deny'}",
                tokens[each % 3],
                {"json": REASON},
            )
            for each in range(20)
        )
    )
    codes = sorted(each.status_code for each in answers)
    assert codes == [200] + [409] * 19
    (decision,) = [each.json() for each in answers if each.status_code == 200]
    shown = house.get(path, at.lead.session).json()
    assert shown["status"] == decision["status"]
    made = [decision["instance_id"]] if decision["status"] == "approved" else []
    assert instances(house, at) == made
    assert kinds(house, at).count("approval.decided.v1") == 1


def test_of_many_approvals_at_once_one_instance_is_made(house: House) -> None:
    at = site(house)
    path = asked(house, at)
    request = ("POST", f"{path}/actions/approve", at.lead.session, {"json": REASON})
    codes = sorted(each.status_code for each in house.together(*[request] * 20))
    assert codes == [200] + [409] * 19
    assert len(instances(house, at)) == 1
    assert kinds(house, at).count("instance.requested.v1") == 1


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("deny", {}),
        ("deny", {"reason": ""}),
        ("deny", {"reason": " \t "}),
        ("deny", {"reason": "x" * 501}),
        ("deny", {"reason": None}),
        ("deny", {"reason": "so", "status": "approved"}),
        ("approve", {"reason": ""}),
        ("approve", {"size": "xl32"}),
        ("approve", {"reason": "a\0b"}),
        ("approve", {"reason": "a\x1b[2Jb"}),
    ],
)
def test_a_decision_is_what_the_document_says(house: House, verb: str, body: Any) -> None:
    at = site(house)
    path = asked(house, at)
    answer = house.post(f"{path}/actions/{verb}", at.lead.session, json=body)
    is_problem(answer, 422)
    assert house.get(path, at.lead.session).json()["status"] == "pending"


def test_a_reason_is_no_way_to_write_ones_own_letter(house: House) -> None:
    at = site(house)
    path = asked(house, at)
    reason = 'no"\n\nClick https://evil.example/ now <b>'
    assert decide(house, path, "deny", at.lead.session, {"reason": reason}).status_code == 200
    (text,) = letters_to(house, at.operator)
    assert "https://" not in text
    assert '"no\'Click https: evil.example/ now (b)"' in text


# What has changed since.


def test_an_order_is_checked_again(house: House) -> None:
    at = site(house)
    path = asked(house, at, name="sales")
    house.change_org(at.tenant.org_id, plan="free")
    refused = decide(house, path, "approve", at.lead.session)
    is_problem(refused, 422)
    assert "/size" in [each["pointer"] for each in refused.json()["errors"]]
    house.change_org(at.tenant.org_id, plan="team")
    assert order(house, at, at.lead.session, name="sales").status_code == 201
    is_problem(decide(house, path, "approve", at.lead.session), 409, "conflict")
    assert house.get(path, at.lead.session).json()["status"] == "pending"
    assert decide(house, path, "deny", at.lead.session).status_code == 200


def test_policy_and_budget_are_not_looked_at_again(house: House) -> None:
    budget = {"monthly_budget_cents": 1_500}
    at = site(house, {"over_budget": True}, **budget)
    assert order(house, at, at.operator.session).status_code == 201
    path = asked(house, at)
    change = {"monthly_budget_cents": 0, "approval_policy": {"every_order": True}}
    assert house.request("PATCH", at.team, at.tenant.key, json=change).status_code == 200
    assert decide(house, path, "approve", at.lead.session).status_code == 200


def gone(house: House, at: Site) -> None:
    path = f"{at.tenant.path}/members/{at.operator.id}"
    assert house.request("DELETE", path, at.tenant.key).is_success


def taken_out(house: House, at: Site) -> None:
    path = f"{at.team}/members/{at.operator.id}"
    assert house.request("DELETE", path, at.tenant.key).is_success


def weakened(house: House, at: Site) -> None:
    assert put(house, at.team, at.tenant.key, at.operator, "viewer").status_code == 200


def moved(house: House, at: Site) -> None:
    path = f"{at.tenant.path}/projects/{at.project_id}"
    body = {"team_id": everyone(at.tenant).rpartition("/")[2]}
    assert house.request("PATCH", path, at.tenant.key, json=body).is_success


def deleted(house: House, at: Site) -> None:
    path = f"{at.tenant.path}/projects/{at.project_id}"
    assert house.request("DELETE", path, at.tenant.key).is_success


@pytest.mark.parametrize(
    ("since", "told"),
    [
        (gone, "no longer a member"),
        (taken_out, "no longer has the permission instances:write"),
        (weakened, "no longer has the permission instances:write"),
        (moved, "belongs to another team"),
        (deleted, "was deleted"),
    ],
)
def test_what_was_lost_since_is_not_kept_by_an_order(house: House, since: Any, told: str) -> None:
    at = site(house)
    path = asked(house, at)
    since(house, at)
    refused = decide(house, path, "approve", at.tenant.key)
    is_problem(refused, 409, "conflict")
    assert told in refused.json()["detail"]
    assert decide(house, path, "deny", at.tenant.key).status_code == 200


def test_an_order_ends_with_its_key(house: House) -> None:
    at = site(house)
    key, key_id = house.key(at.tenant.org_id, at.operator, "member")
    path = order(house, at, key).headers["location"]
    revoked = house.request("DELETE", f"{at.tenant.path}/api-keys/{key_id}", at.tenant.key)
    assert revoked.is_success
    refused = decide(house, path, "approve", at.lead.session)
    is_problem(refused, 409, "conflict")
    assert "was revoked" in refused.json()["detail"]


def test_an_order_of_a_suspended_key_waits_on(house: House) -> None:
    at = site(house)
    key, key_id = house.key(at.tenant.org_id, at.operator, "member")
    path = order(house, at, key).headers["location"]
    house.change_key(at.tenant.org_id, key_id, suspended_at=house.now())
    refused = decide(house, path, "approve", at.lead.session)
    is_problem(refused, 409, "conflict")
    assert "is suspended" in refused.json()["detail"]
    past = house.now() - timedelta(seconds=1)
    # One that has expired meanwhile was in order; what is of a service account is told as such.
    values = {"suspended_at": None, "expires_at": past, "service_account_id": "sa_1"}
    house.change_key(at.tenant.org_id, key_id, **values)
    assert decide(house, path, "approve", at.lead.session).status_code == 200
    with house.database.read() as db:
        assert written.audited(db, at.tenant.org_id)[1].actor_kind == "service_account"


def test_who_has_another_role_now_may_still_have_the_right(house: House) -> None:
    at = site(house)
    path = asked(house, at)
    with house.database.write() as db:
        memberships.fetch(db, at.tenant.org_id, at.operator.id).role = "admin"
    taken_out(house, at)
    assert decide(house, path, "approve", at.lead.session).status_code == 200


def test_a_closed_organization_decides_nothing(house: House) -> None:
    at = site(house)
    path = asked(house, at)
    house.change_org(at.tenant.org_id, status="closed")
    for verb in ("approve", "deny"):
        is_problem(decide(house, path, verb, at.tenant.key), 409, "org_closed")
