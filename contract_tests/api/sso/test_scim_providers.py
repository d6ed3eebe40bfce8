"""Requests as Entra ID, Okta and Google send them by their documentation, with their oddities."""

from typing import Any

import pytest

from contract_tests.api.harness import House
from contract_tests.api.sso.provider import GROUP, PATCH, USER, Provider

ENTERPRISE = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"


@pytest.fixture
def provider(house: House) -> Provider:
    return Provider(house)


def test_entra_id_provisions_a_user(provider: Provider) -> None:
    """As learn.microsoft.com/entra/identity/app-provisioning/use-scim-to-provision-users says."""
    email = provider.address("grace")
    found = provider.ask("GET", f'/Users?filter=userName eq "{email}"&aadOptscim062020=')
    assert (found.status_code, found.json()["totalResults"]) == (200, 0)
    body = {
        "schemas": [USER, ENTERPRISE],
        "externalId": "0a21f0f2-8d2a-4f8e-bf98-7363c4aed4ef",
        "userName": email,
        "active": True,
        "addresses": [],
        "displayName": "Grace Hopper",
        "emails": [{"type": "work", "value": email, "primary": True}],
        "meta": {"resourceType": "User"},
        "name": {"formatted": "Grace Hopper", "familyName": "Hopper", "givenName": "Grace"},
        "roles": [],
        ENTERPRISE: {"department": "Navy", "manager": "x"},
    }
    made = provider.ask("POST", "/Users", body)
    assert made.status_code == 201, made.text
    path = f"/Users/{made.json()['id']}"
    changed = provider.patch(
        path,
        {"op": "Replace", "path": 'emails[type eq "work"].value', "value": provider.address("g")},
        {"op": "Add", "path": "name.familyName", "value": "Murray"},
        {"op": "Replace", "path": f"{ENTERPRISE}:department", "value": "Eng"},
        {"op": "Add", "path": "phoneNumbers", "value": [{"type": "work", "value": "1"}]},
    )
    assert changed.status_code == 200, changed.text
    assert changed.json()["emails"][0]["value"] == provider.address("g")
    assert changed.json()["name"]["familyName"] == "Murray"
    for said, active in (("False", False), ("True", True), ("false", False), (True, True)):
        out = provider.patch(path, {"op": "Replace", "path": "active", "value": said})
        assert (out.status_code, out.json()["active"]) == (200, active), said
        assert (provider.role(made.json()["id"]) is not None) == active
    out = provider.patch(path, {"op": "Replace", "value": {"active": "False"}})
    assert out.json()["active"] is False
    assert provider.ask("DELETE", path).status_code == 204


def test_entra_id_replaces_an_address_that_is_not_there_yet(provider: Provider) -> None:
    made = provider.ask("POST", "/Users", {"schemas": [USER], "userName": provider.address("a")})
    path = f"/Users/{made.json()['id']}"
    value = provider.address("b")
    operation = {"op": "Add", "path": 'emails[type eq "work"].value', "value": value}
    changed = provider.patch(path, operation)
    assert changed.json()["emails"] == [{"type": "work", "value": value}]


def test_entra_id_removes_from_a_group_whom_the_value_names(provider: Provider) -> None:
    """Read as the standard has it, the operation would empty the group."""
    ids = [provider.user(f"u{number}")["id"] for number in range(4)]
    body = {"schemas": [GROUP], "externalId": "8aa1a0c0", "displayName": "Data", "members": []}
    group = provider.ask("POST", "/Groups", body).json()
    path = f"/Groups/{group['id']}"
    for one in ids:
        add = {"op": "Add", "path": "members", "value": [{"$ref": None, "value": one}]}
        assert provider.patch(path, add).status_code == 204
    remove = {"op": "Remove", "path": "members", "value": [{"$ref": None, "value": ids[0]}]}
    assert provider.patch(path, remove).status_code == 204
    assert provider.members(group["id"]) == set(ids[1:])
    by_filter = {"op": "Remove", "path": f'members[value eq "{ids[1]}"]'}
    assert provider.patch(path, by_filter).status_code == 204
    assert provider.members(group["id"]) == set(ids[2:])
    nobody = {"op": "Remove", "path": "members", "value": [{"value": ids[0]}]}
    assert provider.patch(path, nobody).status_code == 204
    assert provider.members(group["id"]) == set(ids[2:])
    asked = '/Groups?excludedAttributes=members&filter=displayName eq "DATA"'
    found = provider.ask("GET", asked).json()
    assert [one["id"] for one in found["Resources"]] == [group["id"]]
    assert "members" not in found["Resources"][0]
    renamed = provider.patch(path, {"op": "Replace", "path": "displayName", "value": "Data 2"})
    assert renamed.status_code == 204
    assert provider.members(group["id"]) == set(ids[2:])
    # Without a value and without a filter, all of them are meant.
    assert provider.patch(path, {"op": "Remove", "path": "members"}).status_code == 204
    assert provider.members(group["id"]) == set()


def test_entra_id_asks_for_somebody_by_their_external_id(provider: Provider) -> None:
    made = provider.user("ada", externalId="E-1")
    for asked, expected in (("E-1", [made["id"]]), ("e-1", [])):
        found = provider.ask("GET", f'/Users?filter=externalId eq "{asked}"').json()
        assert [one["id"] for one in found.get("Resources", [])] == expected


def test_okta_provisions_a_user_and_deactivates_them(provider: Provider) -> None:
    """As developer.okta.com/docs/api/openapi/okta-scim/guides/scim-20 says."""
    email = provider.address("isaac")
    asked = f"/Users?filter=userName%20eq%20%22{email}%22&startIndex=1&count=100"
    assert provider.ask("GET", asked).json()["totalResults"] == 0
    body = {
        "schemas": [USER],
        "userName": email,
        "name": {"givenName": "Isaac", "familyName": "Brock"},
        "emails": [{"primary": True, "value": email, "type": "work"}],
        "displayName": "Isaac Brock",
        "locale": "en-US",
        "externalId": "00ujl29u0le5T6Aj10h7",
        "groups": [],
        "password": "1mz050nq",
        "active": True,
    }
    made = provider.ask("POST", "/Users", body, headers={"Content-Type": "application/scim+json"})
    assert made.status_code == 201, made.text
    assert "password" not in made.json()
    user_id = made.json()["id"]
    again = provider.ask("POST", "/Users", body)
    assert (again.status_code, again.json()["scimType"]) == (409, "uniqueness")
    read = provider.ask("GET", f"/Users/{user_id}").json()
    whole = {**read, "name": {"givenName": "Isaac", "familyName": "Newton"}}
    changed = provider.ask("PUT", f"/Users/{user_id}", whole)
    assert (changed.status_code, changed.json()["name"]["familyName"]) == (200, "Newton")
    out = provider.ask(
        "PATCH",
        f"/Users/{user_id}",
        {"schemas": [PATCH], "Operations": [{"op": "replace", "value": {"active": False}}]},
    )
    assert (out.status_code, out.json()["active"]) == (200, False)
    assert provider.ask("GET", asked).json()["Resources"][0]["active"] is False


def test_okta_replaces_whole_groups(provider: Provider) -> None:
    ids = [provider.user(f"u{number}")["id"] for number in range(3)]
    made = provider.ask("POST", "/Groups", {"schemas": [GROUP], "displayName": "Test SCIMv2"})
    assert made.status_code == 201
    path = f"/Groups/{made.json()['id']}"
    for members in (ids[:2], ids[1:], []):
        whole = {
            "schemas": [GROUP],
            "id": made.json()["id"],
            "displayName": "Test SCIMv2",
            "members": [{"value": one, "display": "somebody"} for one in members],
        }
        put = provider.ask("PUT", path, whole)
        assert put.status_code == 200, put.text
        assert provider.members(made.json()["id"]) == set(members)
    # A new name, without a path and with the id of the group in the value.
    value = {"id": made.json()["id"], "displayName": "Test SCIMv0"}
    renamed = provider.patch(path, {"op": "replace", "value": value})
    assert renamed.status_code == 204, renamed.text
    assert provider.ask("GET", path).json()["displayName"] == "Test SCIMv0"
    replaced = provider.patch(
        path, {"op": "replace", "path": "members", "value": [{"value": ids[0]}]}
    )
    assert replaced.status_code == 204
    assert provider.members(made.json()["id"]) == {ids[0]}
    several = provider.patch(
        path,
        {"op": "remove", "path": f'members[value eq "{ids[0]}"]'},
        {"op": "add", "path": "members", "value": [{"value": ids[1]}, {"value": ids[2]}]},
    )
    assert several.status_code == 204
    assert provider.members(made.json()["id"]) == {ids[1], ids[2]}
    # Members without a path: what is there already is added to, or replaced.
    for op, sent, expected in (("replace", 0, {ids[0]}), ("add", 2, {ids[0], ids[2]})):
        value = {"members": [{"value": ids[sent]}]}
        answer = provider.patch(path, {"op": op, "value": value})
        assert answer.status_code == 204, answer.text
        assert provider.members(made.json()["id"]) == expected


def test_okta_reads_all_users_in_pages(provider: Provider) -> None:
    ids = [provider.user(f"u{number}")["id"] for number in range(5)]
    found: list[str] = []
    for start in (1, 3, 5, 7):
        page = provider.ask("GET", f"/Users?startIndex={start}&count=2").json()
        assert (page["totalResults"], page["startIndex"]) == (5, start)
        found += [one["id"] for one in page.get("Resources", [])]
    assert found == sorted(ids)
    assert provider.ask("GET", "/Users?count=0").json()["totalResults"] == 5
    assert len(provider.ask("GET", "/Users?startIndex=-3&count=100000").json()["Resources"]) == 5


def test_google_provisions_suspends_and_deletes(provider: Provider) -> None:
    """As support.google.com/a/topic/6400789 says: users alone, as application/json."""
    email, kind = provider.address("lin"), {"Content-Type": "application/json; charset=UTF-8"}
    body: dict[str, Any] = {
        "schemas": [USER],
        "userName": email,
        "externalId": "104117",
        "name": {"givenName": "Lin", "familyName": "Chu"},
        "emails": [{"value": email, "type": "work", "primary": True}],
        "phoneNumbers": [{"value": "+1 555", "type": "work"}],
        "addresses": [{"type": "work", "formatted": "x"}],
    }
    made = provider.ask("POST", "/Users", body, headers=kind)
    assert (made.status_code, made.json()["active"]) == (201, True)
    assert made.headers["Content-Type"] == "application/scim+json"
    assert made.headers["Location"] == made.json()["meta"]["location"]
    path = f"/Users/{made.json()['id']}"
    suspended = provider.ask("PUT", path, {**body, "active": False}, headers=kind)
    assert suspended.json()["active"] is False
    kept = provider.ask("PUT", path, body, headers=kind)
    assert kept.json()["active"] is False
    assert provider.ask("DELETE", path).status_code == 204


def test_several_changes_come_in_one_request(provider: Provider) -> None:
    email = provider.address("bulk")
    body = {
        "schemas": ["urn:ietf:params:scim:api:messages:2.0:BulkRequest"],
        "Operations": [
            {
                "method": "POST",
                "path": "/Users",
                "bulkId": "one",
                "data": {"schemas": [USER], "userName": email},
            },
            {
                "method": "POST",
                "path": "/Groups",
                "bulkId": "two",
                "data": {
                    "schemas": [GROUP],
                    "displayName": "Bulk",
                    "members": [{"value": "bulkId:one"}],
                },
            },
            {
                "method": "POST",
                "path": "/Users",
                "bulkId": "three",
                "data": {"schemas": [USER], "userName": "eve@elsewhere.example"},
            },
            {
                "method": "POST",
                "path": "/Users",
                "bulkId": "four",
                "data": {"schemas": [USER], "userName": email.upper()},
            },
        ],
    }
    answer = provider.ask("POST", "/Bulk", body)
    assert answer.status_code == 200, answer.text
    outcomes = answer.json()["Operations"]
    assert [one["status"] for one in outcomes] == ["201", "201", "403", "409"]
    group_id = outcomes[1]["location"].rpartition("/")[2]
    user_id = outcomes[0]["location"].rpartition("/")[2]
    assert provider.members(group_id) == {user_id}
    assert provider.ask("GET", "/Users").json()["totalResults"] == 1
