"""What a key, or the one who holds it, can do to other keys: no more than its own rights reach."""

from datetime import timedelta

from contract_tests.api.harness import House
from contract_tests.api.rows import is_problem


def test_a_key_with_more_rights_is_out_of_reach(house: House) -> None:
    tenant = house.tenant()
    developer = house.member(tenant.org_id, "developer")
    refused = house.request("DELETE", f"{tenant.path}/api-keys/{tenant.key_id}", developer.session)
    is_problem(refused, 403)
    assert "org:close" in refused.json()["detail"]
    assert house.get("/v1/me", tenant.key).status_code == 200


def test_ones_own_key_can_be_revoked_whatever_it_may(house: House) -> None:
    tenant = house.tenant()
    developer = house.member(tenant.org_id, "developer")
    key, key_id = house.key(tenant.org_id, developer, "owner")
    path = f"{tenant.path}/api-keys/{key_id}"
    assert house.request("DELETE", path, developer.session).status_code == 204
    assert house.get("/v1/me", key).status_code == 401


def test_a_key_that_ends_makes_none_that_outlives_it(house: House) -> None:
    tenant = house.tenant()
    ends = house.now() + timedelta(days=1)
    key, key_id = house.key(tenant.org_id, tenant.owner, "owner")
    house.change_key(tenant.org_id, key_id, expires_at=ends)
    path = f"{tenant.path}/api-keys"
    for expiry in ({}, {"expires_at": (ends + timedelta(seconds=1)).isoformat()}):
        refused = house.post(path, key, json={"name": "longer", **expiry})
        is_problem(refused, 422)
        assert refused.json()["errors"][0]["pointer"] == "/expires_at"
    shorter = {"name": "shorter", "expires_at": (ends - timedelta(hours=1)).isoformat()}
    assert house.post(path, key, json=shorter).status_code == 201
    assert house.post(path, tenant.owner.session, json={"name": "free"}).status_code == 201


def test_a_key_with_more_rights_stays_suspended(house: House) -> None:
    tenant = house.tenant()
    why = {"suspended_at": house.now(), "suspended_reason": "found in public"}
    house.change_key(tenant.org_id, tenant.key_id, **why)
    developer = house.member(tenant.org_id, "developer")
    path = f"{tenant.path}/api-keys/{tenant.key_id}/actions/unsuspend"
    refused = house.post(path, developer.session)
    is_problem(refused, 403)
    assert "org:close" in refused.json()["detail"]
    is_problem(house.get(tenant.path, tenant.key), 403, "key_suspended")
    _, own_id = house.key(tenant.org_id, developer, "developer")
    house.change_key(tenant.org_id, own_id, **why)
    own = f"{tenant.path}/api-keys/{own_id}/actions/unsuspend"
    assert house.post(own, developer.session).status_code == 200


def test_a_key_that_may_not_read_its_organization_learns_only_its_id(house: House) -> None:
    tenant = house.tenant()
    for scopes, seen in (([], []), (["instances:read"], []), (["org:read"], [tenant.org_id])):
        key, _ = house.key(tenant.org_id, tenant.owner, "owner", scopes=scopes)
        me, orgs = house.get("/v1/me", key), house.get("/v1/orgs", key)
        assert (me.status_code, orgs.status_code) == (200, 200)
        assert me.json()["api_key"]["org_id"] == tenant.org_id
        assert [org["id"] for org in me.json()["orgs"]] == seen
        assert [org["id"] for org in orgs.json()] == seen
