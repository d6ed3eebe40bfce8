"""Organizations, projects and API keys through the API."""

from datetime import timedelta
from typing import Any

import pytest

from contract_tests import written
from contract_tests.api.conftest import MakeHouse
from contract_tests.api.harness import House, Tenant
from contract_tests.api.rows import is_problem
from control.policy import quotas
from storage.access import memberships
from storage.instances import instances


@pytest.fixture
def tenant(house: House) -> Tenant:
    return house.tenant()


def audited(house: House, org_id: str) -> list[tuple[str, str | None]]:
    with house.database.read() as db:
        found = written.audited(db, org_id)
    return [(one.action, one.target) for one in found]


def test_whoever_makes_an_organization_owns_it(house: House) -> None:
    person = house.person()
    body = {"name": "Zoë & Sons", "region": "local"}
    made = house.post("/v1/orgs", person.session, json=body)
    assert made.status_code == 201
    org = made.json()
    assert (org["role"], org["plan"], org["status"]) == ("owner", "free", "open")
    assert org["slug"].startswith("zoe-sons")
    assert house.get(made.headers["location"], person.session).json() == org
    assert audited(house, org["id"]) == [("org.create", org["id"])]
    again = house.post("/v1/orgs", person.session, json=body).json()
    assert again["slug"] != org["slug"]
    other = house.person()
    taken = house.post("/v1/orgs", other.session, json={"name": "X", "slug": org["slug"]})
    is_problem(taken, 409)
    nowhere = house.post("/v1/orgs", other.session, json={"name": "X", "region": "moon"})
    is_problem(nowhere, 422)
    assert nowhere.json()["errors"][0]["pointer"] == "/region"


@pytest.mark.every_database  # what locks is the database
def test_a_user_owns_two_free_organizations_and_not_a_third(house: House) -> None:
    person = house.person(mfa=True)
    paid = house.tenant(owner=person)
    for _ in range(3):  # a member owns nothing
        guest = house.tenant(plan="free")
        with house.database.write() as db:
            memberships.create(db, guest.org_id, person.id, "admin")
    asked: list[Any] = [
        ("POST", "/v1/orgs", person.session, {"json": {"name": "Mine"}}) for _ in range(6)
    ]
    answers = house.together(*asked)
    made = [one.json()["id"] for one in answers if one.status_code == 201]
    assert len(made) == 2
    for refused in answers:
        if refused.status_code != 201:
            is_problem(refused, 422)
            assert refused.json()["errors"][0]["keyword"] == "quota"
            assert "2 organizations on the free plan" in refused.json()["detail"]
    path = f"/v1/orgs/{made[0]}/actions/close"
    closed = house.post(path, person.session, json={"erase_everything": True})
    assert closed.status_code == 202
    again = house.post("/v1/orgs", person.session, json={"name": "Again"})
    assert again.status_code == 201
    assert house.get(paid.path, person.session).status_code == 200


def test_a_closed_organization_counts_until_its_instances_are_erased(house: House) -> None:
    person = house.person(mfa=True)
    tenants = [house.tenant(owner=person) for _ in range(10)]
    instance = house.instance(tenants[0])
    is_problem(house.post("/v1/orgs", person.session, json={"name": "More"}), 422)
    path = f"{tenants[0].path}/actions/close"
    closed = house.post(path, person.session, json={"erase_everything": False})
    assert closed.status_code == 202
    house.settle()
    refused = house.post("/v1/orgs", person.session, json={"name": "More"})
    assert "you can own 10 organizations" in refused.json()["detail"]
    with house.database.write() as db:
        instances.fetch(db, tenants[0].org_id, instance).status = "erased"
    assert house.post("/v1/orgs", person.session, json={"name": "More"}).status_code == 201


def test_organizations_that_come_and_go_are_limited(
    make_house: MakeHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each closed one stays, with its slug, and is listed for whoever was its member."""
    house = make_house()  # its time is moved on
    monkeypatch.setattr(quotas, "ORGS_CLOSED_MAX", 3)
    person = house.person("Restless", mfa=True)
    for number in range(3):
        made = house.post("/v1/orgs", person.session, json={"name": f"Org {number}"})
        assert made.status_code == 201
        path = f"/v1/orgs/{made.json()['id']}/actions/close"
        closed = house.post(path, person.session, json={"erase_everything": True})
        assert closed.status_code == 202
    refused = house.post("/v1/orgs", person.session, json={"name": "More"})
    is_problem(refused, 422)
    assert "you closed 3 organizations in the last 30 days" in refused.json()["detail"]
    house.pass_time(30 * 86_400 + 1)
    again = house.session(person.id)
    assert house.post("/v1/orgs", again, json={"name": "More"}).status_code == 201


@pytest.mark.parametrize("erase", [False, True], ids=["keep", "erase"])
def test_closing_ends_keys_and_instances_and_leaves_reading(house: House, erase: bool) -> None:
    tenant = house.tenant()
    first, second = house.instance(tenant), house.instance(tenant)
    house.request("DELETE", f"{tenant.path}/instances/{second}", tenant.key)
    house.settle()
    session = house.session(tenant.owner.id, mfa=True)
    path = f"{tenant.path}/actions/close"
    closed = house.post(path, session, json={"erase_everything": erase})
    assert closed.status_code == 202
    answer = closed.json()
    assert answer["org"]["status"] == "closed"
    assert answer["api_keys_revoked"] == 1
    figures = (answer["instances_deleting"], answer["instances_erasing"])
    assert figures == ((0, 2) if erase else (1, 0))
    assert (answer["purge_after"] is None) is erase
    is_problem(house.get(tenant.path, tenant.key), 401)
    house.settle()
    status = "erased" if erase else "deleted"
    for instance_id in (first, second):
        found = house.get(f"{tenant.path}/instances/{instance_id}", session)
        assert found.json()["status"] == status
    assert house.get(tenant.path, session).json()["closed_at"]
    is_problem(house.post(path, session, json={"erase_everything": erase}), 409)
    is_problem(house.post(f"{tenant.path}/projects", session, json={"name": "X"}), 409)


def test_closing_erases_what_could_not_be_deleted_too(house: House) -> None:
    """It is wanted gone already, and waits for its cell to be there again."""
    tenant = house.tenant()
    instance_id = house.instance(tenant)
    with house.database.write() as db:
        instance = instances.fetch(db, tenant.org_id, instance_id)
        instance.delete(None)
        instance.became_failed("the delete failed and will be tried again")
    session = house.session(tenant.owner.id, mfa=True)
    body = {"erase_everything": True}
    closed = house.post(f"{tenant.path}/actions/close", session, json=body)
    assert closed.json()["instances_erasing"] == 1
    house.settle()
    found = house.get(f"{tenant.path}/instances/{instance_id}", session)
    assert found.json()["status"] == "erased"


def test_permissions_are_the_roles_cut_by_the_scopes(house: House, tenant: Tenant) -> None:
    path = f"{tenant.path}/me/permissions"
    mine = house.get(path, tenant.owner.session).json()
    assert mine["role"] == "owner"
    assert "org:close" in mine["permissions"]
    scopes = ["org:read", "instances:read"]
    secret, _ = house.key(tenant.org_id, tenant.owner, "owner", scopes=scopes)
    assert house.get(path, secret).json()["permissions"] == sorted(scopes)


def test_a_project_is_made_renamed_and_deleted_while_empty(house: House, tenant: Tenant) -> None:
    made = house.post(f"{tenant.path}/projects", tenant.key, json={"name": "Storefront"})
    assert made.status_code == 201
    project, where = made.json(), made.headers["location"]
    assert project["slug"] == "storefront"
    twin = house.post(f"{tenant.path}/projects", tenant.key, json={"name": "Storefront"}).json()
    assert twin["slug"].startswith("storefront-")
    taken = {"name": "X", "slug": "storefront"}
    is_problem(house.post(f"{tenant.path}/projects", tenant.key, json=taken), 409)
    renamed = house.request("PATCH", where, tenant.key, json={"name": "Shop", "slug": "shop"})
    assert renamed.json() == {**project, "name": "Shop", "slug": "shop"}
    is_problem(house.request("PATCH", where, tenant.key, json={"slug": twin["slug"]}), 409)
    assert house.request("DELETE", where, tenant.key).status_code == 204
    is_problem(house.get(where, tenant.key), 404)
    actions = {action for action, target in audited(house, tenant.org_id) if target}
    assert actions == {"project.create", "project.update", "project.delete"}


def test_a_project_goes_once_all_its_instances_are_erased(house: House, tenant: Tenant) -> None:
    first, second = house.instance(tenant), house.instance(tenant)
    path = f"{tenant.path}/projects/{tenant.project_id}"

    def refused() -> str:
        answer = house.request("DELETE", path, tenant.key)
        is_problem(answer, 409)
        return str(answer.json()["detail"])

    assert "2 running or paused (delete or erase them)" in refused()
    house.request("DELETE", f"{tenant.path}/instances/{first}", tenant.key)
    assert "1 running or paused" in refused()
    assert "1 being deleted or erased (wait)" in refused()
    house.settle()
    house.post(f"{tenant.path}/instances/{second}/actions/erase", tenant.key)
    house.settle()
    assert refused().endswith(
        "1 deleted with their data retained (erase them, or wait until purge_after)"
    )
    house.post(f"{tenant.path}/instances/{first}/actions/erase", tenant.key)
    house.settle()
    assert house.request("DELETE", path, tenant.key).status_code == 204
    is_problem(house.get(path, tenant.key), 404)
    for instance in (first, second):
        found = house.get(f"{tenant.path}/instances/{instance}", tenant.key).json()
        assert (found["status"], found["project_id"]) == ("erased", None)
    listed = house.get(f"{tenant.path}/instances?status=erased", tenant.key).json()["items"]
    assert {one["id"] for one in listed} == {first, second}


def test_a_plan_limits_projects_and_keys(house: House) -> None:
    free = house.tenant(plan="free")
    for _ in range(2):
        made = house.post(f"{free.path}/projects", free.key, json={"name": "More"})
        assert made.status_code == 201
    refused = house.post(f"{free.path}/projects", free.key, json={"name": "More"})
    is_problem(refused, 422)
    assert refused.json()["errors"][0]["keyword"] == "quota"
    for _ in range(9):
        house.key(free.org_id, free.owner, "member")
    refused = house.post(f"{free.path}/api-keys", free.key, json={"name": "more"})
    is_problem(refused, 422)
    assert refused.json()["errors"][0]["keyword"] == "quota"


def test_a_key_is_shown_once_and_works_until_revoked(house: House, tenant: Tenant) -> None:
    made = house.post(f"{tenant.path}/api-keys", tenant.key, json={"name": "ci"})
    assert made.status_code == 201
    key = made.json()
    secret = key.pop("key")
    assert key["role"] == "member"
    assert secret.startswith(key["prefix"])
    assert house.get(f"{tenant.path}/instances", secret).status_code == 200
    listed = house.get(f"{tenant.path}/api-keys", tenant.key)
    assert key["id"] in [one["id"] for one in listed.json()["items"]]
    assert secret not in listed.text
    path = f"{tenant.path}/api-keys/{key['id']}"
    assert house.request("DELETE", path, tenant.key).status_code == 204
    is_problem(house.get(f"{tenant.path}/instances", secret), 401)
    is_problem(house.request("DELETE", path, tenant.key), 404)
    listed = house.get(f"{tenant.path}/api-keys", tenant.key)
    assert key["id"] not in [one["id"] for one in listed.json()["items"]]


def test_nobody_makes_a_key_stronger_than_themselves(house: House, tenant: Tenant) -> None:
    developer = house.member(tenant.org_id, "developer")
    path = f"{tenant.path}/api-keys"
    for body in (
        {"name": "k", "role": "owner"},
        {"name": "k", "role": "admin", "scopes": ["members:write"]},
    ):
        is_problem(house.post(path, developer.session, json=body), 403)
    within = {"name": "k", "role": "owner", "scopes": ["instances:read"]}
    assert house.post(path, developer.session, json=within).status_code == 201
    narrow, _ = house.key(tenant.org_id, tenant.owner, "owner", scopes=["api-keys:write"])
    is_problem(house.post(path, narrow, json={"name": "k"}), 403)
    assert house.post(path, narrow, json={"name": "k", "scopes": []}).status_code == 201


def test_an_expiry_lies_in_the_future_and_holds(house: House, tenant: Tenant) -> None:
    path = f"{tenant.path}/api-keys"
    for past in ("2020-01-01T00:00:00Z", "0000-01-01T00:00:00Z", "2016-12-31T23:59:60Z"):
        refused = house.post(path, tenant.key, json={"name": "k", "expires_at": past})
        is_problem(refused, 422)
        assert refused.json()["errors"][0]["pointer"] == "/expires_at"
    soon = (house.now() + timedelta(days=1)).isoformat()
    made = house.post(path, tenant.key, json={"name": "k", "expires_at": soon}).json()
    assert made["expires_at"].endswith("Z")
    expired = house.now() - timedelta(seconds=1)
    house.change_key(tenant.org_id, made["id"], expires_at=expired)
    is_problem(house.get(tenant.path, made["key"]), 401)


def test_a_suspended_key_works_again_once_a_person_lifts_it(house: House, tenant: Tenant) -> None:
    secret, key_id = house.key(tenant.org_id, tenant.owner, "member")
    path = f"{tenant.path}/api-keys/{key_id}/actions/unsuspend"
    is_problem(house.post(path, tenant.owner.session), 409)
    house.change_key(
        tenant.org_id, key_id, suspended_at=house.now(), suspended_reason="found in public"
    )
    is_problem(house.get(tenant.path, secret), 403, "key_suspended")
    is_problem(house.post(path, tenant.key), 403)
    lifted = house.post(path, tenant.owner.session)
    assert lifted.json()["suspended_at"] is None
    assert house.get(tenant.path, secret).status_code == 200
