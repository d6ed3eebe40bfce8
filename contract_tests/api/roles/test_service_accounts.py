"""Service accounts: keys that end with no person, and with whoever stole one."""

from datetime import timedelta
from typing import Any

import pytest

from contract_tests.api.access.team_helpers import everyone, team
from contract_tests.api.harness import House, Tenant
from contract_tests.api.roles.role_helpers import assign, entries, mine, role
from contract_tests.api.rows import is_problem


@pytest.fixture
def tenant(house: House) -> Tenant:
    return house.tenant(plan="team")


Account = dict[str, str]
CLOSING = {"erase_everything": True}


def create(house: House, tenant: Tenant, token: str | None = None, **body: object) -> Account:
    """The id of a new account, its first key, and the key's id."""
    given = {"name": "deploys", **body}
    made = house.post(f"{tenant.path}/service-accounts", token or tenant.key, json=given)
    assert made.status_code == 201, made.text
    told = made.json()
    return {"id": told["id"], "key": told["api_key"]["key"], "key_id": told["api_key"]["id"]}


def path_of(tenant: Tenant, account: Account) -> str:
    return f"{tenant.path}/service-accounts/{account['id']}"


def test_its_key_has_the_rights_of_the_account(house: House, tenant: Tenant) -> None:
    account = create(house, tenant)
    told = mine(house, tenant, account["key"])
    assert told["role"] == "member"
    assert house.get(f"{tenant.path}/instances", account["key"]).status_code == 200
    me = house.get("/v1/me", account["key"]).json()
    assert me["api_key"]["service_account"] is True
    assert me["api_key"]["created_by"] == account["id"]
    (entry,) = entries(house, tenant, "service_account.create")
    assert entry["detail"] == {
        "name": "deploys", "role": "member", "key_id": account["key_id"],
    }  # fmt: skip
    listed = house.get(f"{tenant.path}/api-keys", tenant.key).json()["items"]
    assert {one["id"]: one["service_account"] for one in listed}[account["key_id"]] is True


def test_what_it_does_is_audited_as_its_own(house: House, tenant: Tenant) -> None:
    account = create(house, tenant, role="developer")
    made = house.post(f"{tenant.path}/projects", account["key"], json={"name": "By a program"})
    assert made.status_code == 201
    (entry,) = entries(house, tenant, "project.create")
    assert (entry["actor_kind"], entry["actor_id"]) == (
        "service_account", account["key_id"],
    )  # fmt: skip


def test_it_outlives_the_person_who_created_it(house: House, tenant: Tenant) -> None:
    admin = house.member(tenant.org_id, "admin")
    account = create(house, tenant, admin.session)
    own = {"name": "own", "role": "member"}
    theirs = house.post(f"{tenant.path}/api-keys", admin.session, json=own).json()["key"]
    gone = house.request("DELETE", f"{tenant.path}/members/{admin.id}", tenant.key)
    assert gone.status_code == 204
    is_problem(house.get("/v1/me", theirs), 401)
    assert house.get(f"{tenant.path}/instances", account["key"]).status_code == 200


def test_it_ends_with_the_key_that_created_it(house: House, tenant: Tenant) -> None:
    """Whoever stole a key keeps nothing that they made with it."""
    stolen, key_id = house.key(tenant.org_id, tenant.owner, "owner")
    account = create(house, tenant, stolen)
    key = house.post(f"{path_of(tenant, account)}/keys", account["key"], json={"name": "2"})
    is_problem(key, 403, "permission_missing")
    more = house.post(f"{path_of(tenant, account)}/keys", stolen, json={"name": "2"}).json()["key"]
    assert house.request("DELETE", f"{tenant.path}/api-keys/{key_id}", tenant.key).is_success
    for token in (account["key"], more):
        is_problem(house.get("/v1/me", token), 401)


def test_it_has_several_keys_each_with_its_scopes(house: House, tenant: Tenant) -> None:
    account = create(house, tenant)
    body = {"name": "reads", "scopes": ["instances:read", "org:close"]}
    made = house.post(f"{path_of(tenant, account)}/keys", tenant.key, json=body)
    assert made.status_code == 201
    assert made.json()["role"] == "member"
    assert mine(house, tenant, account["key"])["role"] == "member"
    key = made.json()["key"]
    assert house.get(f"{tenant.path}/instances", key).status_code == 200
    is_problem(house.get(f"{tenant.path}/projects", key), 403, "permission_missing")
    revoked = f"{tenant.path}/api-keys/{made.json()['id']}"
    assert house.request("DELETE", revoked, tenant.key).status_code == 204
    is_problem(house.get("/v1/me", key), 401)
    assert house.get("/v1/me", account["key"]).status_code == 200


def test_a_disabled_one_has_no_keys_and_no_roles_and_gets_no_more(
    house: House, tenant: Tenant
) -> None:
    account = create(house, tenant)
    path = role(house, tenant, "audit:read")
    assert assign(house, path, tenant.key, account["id"]).status_code == 201
    more = house.post(f"{path_of(tenant, account)}/keys", tenant.key, json={"name": "2"})
    asked: Any = ("POST", f"{path_of(tenant, account)}/actions/disable", tenant.key, {})
    answers = house.together(*(asked for _ in range(6)))
    assert sorted(one.status_code for one in answers) == [200] + [409] * 5
    for token in (account["key"], more.json()["key"]):
        is_problem(house.get("/v1/me", token), 401)
    refused = house.post(f"{path_of(tenant, account)}/keys", tenant.key, json={"name": "3"})
    is_problem(refused, 409, "conflict")
    listed = house.get(f"{tenant.path}/service-accounts", tenant.key).json()["items"]
    assert listed[0]["disabled_at"] is not None
    assert house.get(f"{path}/assignments", tenant.key).json()["items"] == []
    (entry,) = entries(house, tenant, "service_account.disable")
    assert entry["detail"] == {"name": "deploys", "api_keys_revoked": 2}


def test_it_is_no_member_among_people_and_takes_no_seat(house: House, tenant: Tenant) -> None:
    account = create(house, tenant)
    page = house.get(f"{tenant.path}/members", tenant.key).json()
    assert account["id"] not in {one["user_id"] for one in page["items"]}
    assert page["seats"]["members"] == 1
    compliance = house.get(f"{tenant.path}/compliance", tenant.key).json()
    assert compliance["mfa"]["members_without_mfa"] == 1
    member = f"{tenant.path}/members/{account['id']}"
    for answer in (
        house.request("PATCH", member, tenant.key, json={"role": "owner"}),
        house.request("DELETE", member, tenant.key),
    ):
        is_problem(answer, 404, "not_found")
    owner = {"name": "root", "role": "owner"}
    is_problem(house.post(f"{tenant.path}/service-accounts", tenant.key, json=owner), 422)


def test_it_can_be_in_teams_as_members_are(house: House, tenant: Tenant) -> None:
    account, blue = create(house, tenant), team(house, tenant)
    path = f"{blue}/members/{account['id']}"
    put = house.request("PUT", path, tenant.key, json={"role": "viewer"})
    assert (put.json()["email"], put.json()["name"]) == (None, "deploys")
    (held,) = (
        one
        for one in mine(house, tenant, account["key"])["in_teams"]
        if one["team_id"] == blue.rpartition("/")[2]
    )
    assert "instances:read" in held["permissions"]
    out = f"{everyone(tenant)}/members/{account['id']}"
    assert house.request("DELETE", out, tenant.key).status_code == 204
    assert len(mine(house, tenant, account["key"])["in_teams"]) == 1


def test_a_key_has_all_that_the_account_was_given(house: House, tenant: Tenant) -> None:
    account = create(house, tenant)
    assert house.get(f"{tenant.path}/audit", account["key"]).status_code == 403
    audits = role(house, tenant, "audit:read", "api-keys:write", name="audits")
    assign(house, audits, tenant.key, account["id"])
    assert house.get(f"{tenant.path}/audit", account["key"]).status_code == 200
    # One that it makes for itself with a role of its own is cut by that.
    body = {"name": "weak", "role": "auditor", "scopes": ["audit:read", "instances:write"]}
    weak = house.post(f"{tenant.path}/api-keys", account["key"], json=body).json()["key"]
    assert house.get(f"{tenant.path}/audit", weak).status_code == 200
    is_problem(house.get(f"{tenant.path}/instances", weak), 403, "permission_missing")
    body = {"name": "same", "role": "member"}
    same = house.post(f"{tenant.path}/api-keys", account["key"], json=body)
    assert same.status_code == 201
    assert house.get(f"{tenant.path}/audit", same.json()["key"]).status_code == 200
    scoped = {"name": "cut", "role": "member", "scopes": ["instances:read"]}
    cut = house.post(f"{tenant.path}/api-keys", account["key"], json=scoped).json()["key"]
    is_problem(house.get(f"{tenant.path}/audit", cut), 403, "permission_missing")


def test_nobody_gets_more_by_it_than_they_have(house: House, tenant: Tenant) -> None:
    manager = house.member(tenant.org_id, "member")
    managing = role(house, tenant, "service-accounts:write", name="manages accounts")
    assign(house, managing, tenant.key, manager.id)
    for stronger in ("admin", "developer", "auditor"):
        body = {"name": stronger, "role": stronger}
        made = house.post(f"{tenant.path}/service-accounts", manager.session, json=body)
        is_problem(made, 403, "role_exceeds_yours")
    account = create(house, tenant, manager.session)
    assert house.post(
        f"{path_of(tenant, account)}/keys", manager.session, json={"name": "2"}
    ).is_success
    # It was given more since: another key of it would be a way to that.
    audits = role(house, tenant, "audit:read", name="audits")
    assign(house, audits, tenant.key, account["id"])
    key = f"{path_of(tenant, account)}/keys"
    is_problem(house.post(key, manager.session, json={"name": "3"}), 403, "role_exceeds_yours")
    cut = {"name": "4", "scopes": ["instances:read"]}
    assert house.post(key, manager.session, json=cut).status_code == 201
    strong = create(house, tenant, name="strong", role="admin")
    for answer in (
        house.post(f"{path_of(tenant, strong)}/keys", manager.session, json={"name": "x"}),
        house.post(f"{path_of(tenant, strong)}/actions/disable", manager.session),
    ):
        is_problem(answer, 403, "role_exceeds_yours")


def test_a_key_outlives_no_key_that_created_it(house: House, tenant: Tenant) -> None:
    until = (house.now() + timedelta(days=1)).isoformat().replace("+00:00", "Z")
    body = {"name": "short", "role": "admin", "expires_at": until}
    short = house.post(f"{tenant.path}/api-keys", tenant.key, json=body).json()["key"]
    made = house.post(f"{tenant.path}/service-accounts", short, json={"name": "long"})
    is_problem(made, 422)
    assert made.json()["errors"][0]["pointer"] == "/expires_at"


def test_names_are_there_once_and_secrets_are_shown_once(house: House, tenant: Tenant) -> None:
    asked: Any = ("POST", f"{tenant.path}/service-accounts", tenant.key, {"json": {"name": "one"}})
    answers = house.together(*(asked for _ in range(8)))
    assert sorted(one.status_code for one in answers) == [201] + [409] * 7
    secret = next(one.json()["api_key"]["key"] for one in answers if one.is_success)
    assert secret not in house.get(f"{tenant.path}/service-accounts", tenant.key).text
    assert secret not in house.get(f"{tenant.path}/api-keys", tenant.key).text


def test_closing_the_organization_ends_its_keys(house: House, tenant: Tenant) -> None:
    account = create(house, tenant)
    closed = house.post(f"{tenant.path}/actions/close", tenant.owner.session, json=CLOSING)
    if closed.status_code == 403:
        session = house.session(tenant.owner.id, mfa=True)
        closed = house.post(f"{tenant.path}/actions/close", session, json=CLOSING)
    assert closed.status_code == 202, closed.text
    is_problem(house.get("/v1/me", account["key"]), 401)
