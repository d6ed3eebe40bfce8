"""Groups that a provider pushes, and the roles that people hold by them."""

from typing import Any

import pytest

from contract_tests.api.harness import House, Person
from contract_tests.api.sso.provider import Provider
from control.sso import group_grants
from storage.access import teams


@pytest.fixture
def provider(house: House) -> Provider:
    return Provider(house)


def give(provider: Provider, group_id: str, by: str | None = None, **body: Any) -> Any:
    path = f"/v1/orgs/{provider.org_id}/sso/scim-groups/{group_id}"
    return provider.house.request("PATCH", path, by or provider.tenant.key, json=body)


def permissions(provider: Provider, user_id: str) -> set[str]:
    session = provider.house.session(user_id)
    path = f"/v1/orgs/{provider.org_id}/me/permissions"
    return set(provider.house.get(path, session).json()["permissions"])


def test_a_group_gives_and_takes_at_once(provider: Provider) -> None:
    ada, eve = provider.user("ada")["id"], provider.user("eve")["id"]
    group = provider.group("Admins", ada)
    before = permissions(provider, eve)
    assert permissions(provider, ada) == before
    given = give(provider, group["id"], org_role="admin")
    assert given.status_code == 200, given.text
    assert (given.json()["org_role"], given.json()["members"]) == ("admin", 1)
    assert "members:write" in permissions(provider, ada)
    path = f"/Groups/{group['id']}"
    provider.patch(path, {"op": "add", "path": "members", "value": [{"value": eve}]})
    assert permissions(provider, eve) == permissions(provider, ada)
    provider.patch(path, {"op": "remove", "path": f'members[value eq "{ada}"]'})
    assert permissions(provider, ada) == before
    asked = f"/v1/orgs/{provider.org_id}/access/explain?user_id={eve}&operation=members.update"
    told = provider.house.get(asked, provider.tenant.key).json()
    assert [(one["source"], one["role"]) for one in told["by"]] == [("scim_group", "Admins")]
    assert "the group Admins" in told["explanation"]
    give(provider, group["id"], org_role=None)
    assert permissions(provider, eve) == before


def test_the_role_of_a_team_holds_in_the_team(provider: Provider) -> None:
    house, ada = provider.house, provider.user("ada")["id"]
    with house.database.write() as db:
        team = teams.create(db, provider.org_id, {"name": "Data", "slug": "data"})
        team_id = team.id
    session = house.session(ada)
    path = f"/v1/orgs/{provider.org_id}/teams/{team_id}"
    assert house.request("PATCH", path, session, json={"name": "D"}).status_code == 403
    group = provider.group("Leads", ada)
    given = give(provider, group["id"], team={"team_id": team_id, "role": "admin"})
    assert given.json()["team"] == {"team_id": team_id, "role": "admin"}
    assert house.request("PATCH", path, session, json={"name": "D"}).status_code == 200
    provider.ask("DELETE", f"/Groups/{group['id']}")
    assert house.request("PATCH", path, session, json={"name": "E"}).status_code == 403


def test_what_was_given_by_hand_stays_beside_what_is_pushed(provider: Provider) -> None:
    house, ada = provider.house, provider.user("ada")["id"]
    member = f"/v1/orgs/{provider.org_id}/members/{ada}"
    assert (
        house.request("PATCH", member, provider.tenant.key, json={"role": "developer"}).status_code
        == 200
    )
    by_hand = permissions(provider, ada)
    group = provider.group("Auditors", ada)
    give(provider, group["id"], org_role="auditor")
    assert permissions(provider, ada) > by_hand
    provider.ask("PUT", f"/Groups/{group['id']}", {"displayName": "Auditors", "members": []})
    assert permissions(provider, ada) == by_hand


def test_nobody_becomes_an_owner_by_a_group(provider: Provider) -> None:
    group = provider.group("Owners")
    refused = give(provider, group["id"], org_role="owner")
    assert refused.status_code == 422


def test_nobody_gives_or_takes_by_a_group_what_they_do_not_have(provider: Provider) -> None:
    house = provider.house
    weak = house.member(provider.org_id, "member")
    made = house.post(
        f"/v1/orgs/{provider.org_id}/roles",
        provider.tenant.owner.session,
        json={"name": "sso", "permissions": ["org:read", "sso:read", "sso:write"]},
    )
    assert made.status_code == 201, made.text
    assigned = house.post(
        f"/v1/orgs/{provider.org_id}/roles/{made.json()['id']}/assignments",
        provider.tenant.owner.session,
        json={"user_id": weak.id},
    )
    assert assigned.status_code == 201, assigned.text
    group = provider.group("g")
    for role in ("admin", "auditor", "developer"):
        refused = give(provider, group["id"], weak.session, org_role=role)
        assert (refused.status_code, refused.json()["code"]) == (403, "role_exceeds_yours"), role
    give(provider, group["id"], org_role="admin")
    for body in ({"org_role": None}, {"org_role": "member"}):
        refused = give(provider, group["id"], weak.session, **body)
        assert (refused.status_code, refused.json()["code"]) == (403, "role_exceeds_yours")
    path = f"/v1/orgs/{provider.org_id}/sso/scim-tokens"
    refused = house.post(path, weak.session, json={"name": "mine"})
    assert (refused.status_code, refused.json()["code"]) == (403, "owner_required")
    other = house.tenant()
    with house.database.read() as db:
        team_id = teams.everyone_of(other.org_id)
        assert db is not None
    strange = give(provider, group["id"], team={"team_id": team_id, "role": "viewer"})
    assert strange.status_code == 404


def test_groups_are_listed_with_what_they_give(provider: Provider) -> None:
    ada = provider.user("ada")["id"]
    group = provider.group("Data", ada, externalId="e-1")
    with provider.house.database.write() as db:
        now = provider.house.database.now(db)
        group_grants.claimed(db, provider.org_id, ada, "ssoc_x", ["Claimed"], now)
    path = f"/v1/orgs/{provider.org_id}/sso/scim-groups"
    listed = provider.house.get(path, provider.tenant.key).json()["items"]
    found = [(one["display_name"], one["pushed"], one["members"]) for one in listed]
    assert found == [("Claimed", False, 1), ("Data", True, 1)]
    assert (listed[1]["id"], listed[1]["external_id"]) == (group["id"], "e-1")
    # SCIM knows what it has pushed, and takes over what a sign-in has named before.
    assert provider.ask("GET", "/Groups").json()["totalResults"] == 1
    assert provider.ask("GET", f"/Groups/{listed[0]['id']}").status_code == 404
    assert provider.group("CLAIMED")["id"] == listed[0]["id"]
    assert provider.ask("DELETE", f"/Groups/{listed[0]['id']}").status_code == 204
    left = provider.house.get(path, provider.tenant.key).json()["items"]
    assert [(one["pushed"], one["members"]) for one in left] == [(False, 1), (True, 1)]


def test_pushes_of_one_group_at_once_lose_nobody(house: House) -> None:
    provider = Provider(house)
    ids = [provider.user(f"u{number}")["id"] for number in range(20)]
    group = provider.group("All")
    body = {"schemas": ["urn:ietf:params:scim:api:messages:2.0:PatchOp"]}
    path = f"/scim/v2/Groups/{group['id']}"
    pushes: list[tuple[Any, ...]] = [
        (
            *("PATCH", path, provider.token),
            {
                "json": {
                    **body,
                    "Operations": [{"op": "add", "path": "members", "value": [{"value": one}]}],
                }
            },
        )
        for one in ids
    ]
    assert [one.status_code for one in house.together(*pushes)] == [204] * 20
    assert provider.members(group["id"]) == set(ids)


@pytest.mark.parametrize("house", ["postgresql"], indirect=True)
def test_of_whole_groups_pushed_at_once_one_is_there_in_the_end(house: House) -> None:
    provider = Provider(house)
    ids = [provider.user(f"u{number}")["id"] for number in range(8)]
    group = provider.group("All")
    path, schemas = f"/scim/v2/Groups/{group['id']}", group["schemas"]
    for _ in range(3):
        pushes: list[tuple[Any, ...]] = []
        for one in ids:
            whole = {"schemas": schemas, "displayName": "All", "members": [{"value": one}]}
            pushes.append(("PUT", path, provider.token, {"json": whole}))
        assert [one.status_code for one in house.together(*pushes)] == [200] * len(ids)
        assert len(provider.members(group["id"])) == 1


def test_whoever_has_read_a_group_too_early_changes_nothing(provider: Provider) -> None:
    """A provider that read from a replica that lags has an old ETag."""
    ada, eve = provider.user("ada")["id"], provider.user("eve")["id"]
    group = provider.group("Data", ada)
    path, old = f"/Groups/{group['id']}", group["meta"]["version"]
    add = {"op": "add", "path": "members", "value": [{"value": eve}]}
    assert provider.patch(path, add, headers={"If-Match": old}).status_code == 204
    whole = {"displayName": "Data", "members": [{"value": ada}]}
    for refused in (
        provider.ask("PUT", path, whole, headers={"If-Match": old}),
        provider.patch(path, {"op": "remove", "path": "members"}, headers={"If-Match": old}),
        provider.ask("DELETE", path, headers={"If-Match": old}),
    ):
        assert refused.status_code == 412
    assert provider.members(group["id"]) == {ada, eve}
    now = provider.ask("GET", path)
    same = provider.ask("GET", path, headers={"If-None-Match": now.headers["ETag"]})
    assert (same.status_code, same.content) == (304, b"")
    # Whoever leaves the organization leaves the group, which is another one then.
    provider.ask("DELETE", f"/Users/{eve}")
    assert provider.ask("GET", path).headers["ETag"] != now.headers["ETag"]
    assert provider.members(group["id"]) == {ada}


def test_a_change_that_changes_nothing_leaves_no_trace(provider: Provider) -> None:
    ada = provider.user("ada")["id"]
    group = provider.group("Data", ada)
    path = f"/Groups/{group['id']}"
    provider.patch(path, {"op": "add", "path": "members", "value": [{"value": ada}]})
    provider.patch(path, {"op": "remove", "path": 'members[value eq "usr_unknown"]'})
    assert provider.ask("GET", path).json()["meta"] == group["meta"]


def test_a_deactivated_member_is_in_the_group_until_it_takes_them_out(provider: Provider) -> None:
    ada = provider.user("ada")["id"]
    group = provider.group("Admins", ada)
    give(provider, group["id"], org_role="admin")
    for active in (False, True):
        provider.patch(f"/Users/{ada}", {"op": "replace", "value": {"active": active}})
        assert provider.members(group["id"]) == {ada}
    assert "members:write" in permissions(provider, ada)


def test_a_member_must_be_a_user_that_was_pushed(provider: Provider) -> None:
    by_hand: Person = provider.house.member(provider.org_id, "member")
    other = Provider(provider.house)
    inner = provider.group("inner")
    group = provider.group("g")
    for unknown in (by_hand.id, other.user("eve")["id"], inner["id"], "nobody"):
        add = {"op": "add", "path": "members", "value": [{"value": unknown}]}
        refused = provider.patch(f"/Groups/{group['id']}", add)
        assert (refused.status_code, refused.json()["scimType"]) == (400, "invalidValue")
    assert provider.members(group["id"]) == set()
