"""What a key, or the one who holds it, can do to other keys: no more than its own rights reach."""

from datetime import timedelta

from contract_tests import written
from contract_tests.api.harness import House
from contract_tests.api.rows import is_problem
from storage.access.memberships import Membership


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


def test_a_key_revokes_no_key_that_may_more_not_even_of_the_same_person(house: House) -> None:
    tenant = house.tenant()
    scopes = ["api-keys:write"]
    weak, weak_id = house.key(tenant.org_id, tenant.owner, "owner", scopes=scopes)
    _, equal_id = house.key(tenant.org_id, tenant.owner, "owner", scopes=scopes)
    path = f"{tenant.path}/api-keys"
    refused = house.request("DELETE", f"{path}/{tenant.key_id}", weak)
    is_problem(refused, 403)
    assert "org:close" in refused.json()["detail"]
    assert house.get("/v1/me", tenant.key).status_code == 200
    for within in (equal_id, weak_id):
        assert house.request("DELETE", f"{path}/{within}", weak).status_code == 204


def test_a_key_can_revoke_itself_and_its_own_after_its_owner_was_given_a_lesser_role(
    house: House,
) -> None:
    tenant = house.tenant()
    admin = house.member(tenant.org_id, "admin")
    key, key_id = house.key(tenant.org_id, admin, "admin")
    path = f"{tenant.path}/api-keys"
    made = house.post(path, key, json={"name": "made", "role": "admin"}).json()
    with house.database.write() as db:
        db.get_one(Membership, (tenant.org_id, admin.id)).role = "developer"
    for ended in (made["id"], key_id):
        assert house.request("DELETE", f"{path}/{ended}", key).status_code == 204


def test_a_key_ends_with_the_one_that_it_was_created_with_in_every_generation(
    house: House,
) -> None:
    tenant = house.tenant()
    path = f"{tenant.path}/api-keys"
    leaked, leaked_id = house.key(tenant.org_id, tenant.owner, "owner", name="leaked")
    keys, parents = [leaked], [leaked_id]
    for name in ("child", "grandchild"):
        body = {"name": name, "role": "owner", "scopes": ["api-keys:write", "api-keys:read"]}
        made = house.post(path, keys[-1], json=body).json()
        assert made["created_by_key_id"] == parents[-1]
        keys.append(made["key"])
        parents.append(made["id"])
    # The chain holds also where one in its middle was revoked by a former version, alone.
    house.change_key(tenant.org_id, parents[1], revoked_at=house.now())
    sibling = house.post(path, tenant.key, json={"name": "of another key"}).json()
    by_hand = house.post(path, tenant.owner.session, json={"name": "of a session"}).json()
    assert by_hand["created_by_key_id"] is None

    ended = house.request("DELETE", f"{path}/{leaked_id}", tenant.owner.session)
    assert ended.status_code == 204
    assert [house.get("/v1/me", key).status_code for key in keys] == [401, 401, 401]
    listed = {each["id"] for each in house.get(path, tenant.key).json()["items"]}
    assert listed == {tenant.key_id, sibling["id"], by_hand["id"]}
    with house.database.read() as db:
        entry = written.audited(db, tenant.org_id)[0]
    assert (entry.action, entry.target) == ("api_key.revoke", leaked_id)
    assert entry.detail == {"name": "leaked", "created_with_it_and_revoked": 1}
