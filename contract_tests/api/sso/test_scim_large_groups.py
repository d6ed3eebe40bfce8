"""Groups of thousands: whole in one request, and never more of them at once than is bounded."""

import time
from typing import Any

import pytest

from contract_tests.api.harness import House
from contract_tests.api.sso.provider import BULK, ERROR, GROUP, SEARCH, Provider
from control.sso.scim import directory, groups
from storage.access.users import User
from storage.sso.scim_users import ScimUser, folded

CPU_S = 30
"""For all requests of one test; they take a tenth of that."""


def pushed(provider: Provider, count: int) -> list[str]:
    """The ids of so many users, as if each had been pushed."""
    ids = [f"usr_{provider.domain[:6].upper()}{number:020}" for number in range(count)]
    with provider.house.database.write() as db:
        emails = [f"{number}@{provider.domain}" for number in range(count)]
        named = zip(ids, emails, strict=True)
        people = [{"id": one, "email": email, "name": "n"} for one, email in named]
        db.bulk_insert_mappings(User.__mapper__, people)
        known: dict[str, Any] = {"org_id": provider.org_id, "attributes": {}, "made_account": True}
        users = [
            {**known, "user_id": one, "user_name": one, "user_name_key": folded(one)} for one in ids
        ]
        db.bulk_insert_mappings(ScimUser.__mapper__, users)
    return ids


def whole(name: str, ids: list[str]) -> dict[str, Any]:
    """As Okta sends it, with the names of the members."""
    members = [{"value": one, "display": f"{one}@example.com"} for one in ids]
    return {"schemas": [GROUP], "displayName": name, "members": members}


@pytest.fixture
def provider(house: House) -> Provider:
    return Provider(house)


# Two thousand are more than other bodies may be; ten thousand are the most that a group can have.
@pytest.mark.parametrize("count", [2_000, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_a_large_group_comes_whole_and_changes_in_bounded_time(
    provider: Provider, count: int
) -> None:
    ids = pushed(provider, count)
    began = time.process_time()
    made = provider.ask("POST", "/Groups", whole("Everybody", ids))
    assert made.status_code == 201, made.text[:500]
    path = f"/Groups/{made.json()['id']}"
    assert provider.members(made.json()["id"]) == set(ids)
    for members in (ids[1:], ids[1:], ids):
        put = provider.ask("PUT", path, whole("Everybody", members))
        assert (put.status_code, len(put.json()["members"])) == (200, len(members))
    half = [{"value": one} for one in ids[: count // 2]]
    for op, left in (("remove", set(ids[count // 2 :])), ("add", set(ids))):
        changed = provider.patch(path, {"op": op, "path": "members", "value": half})
        assert changed.status_code == 204, changed.text[:500]
        assert provider.members(made.json()["id"]) == left
    assert time.process_time() - began < CPU_S


def test_what_is_larger_is_refused_and_changes_nothing(provider: Provider) -> None:
    group = provider.group("Data")
    path, most = f"/Groups/{group['id']}", groups.MEMBERS_MAX
    many = whole("Data", [f"usr_{number:026}" for number in range(most + 1)])
    refused = provider.ask("PUT", path, many)
    assert (refused.status_code, refused.json()["schemas"]) == (400, [ERROR])
    assert f"can have {most:,} members" in refused.json()["detail"]
    huge = {"schemas": [GROUP], "displayName": "x" * (2 << 20)}
    operations = [{"method": "PUT", "path": path, "data": {"displayName": "x" * (1 << 20)}}]
    for method, where, body in (
        ("PUT", path, huge),
        ("POST", "/Groups", huge),
        ("PATCH", path, huge),
        ("POST", "/Bulk", {"schemas": [BULK], "Operations": operations}),
        # Nobody sends so much of a user, or of a question.
        ("POST", "/Users", {"userName": "x" * (64 << 10)}),
        ("POST", "/.search", {"schemas": [SEARCH], "filter": "x" * (64 << 10)}),
    ):
        answer = provider.ask(method, where, body)
        assert (answer.status_code, answer.json()["schemas"]) == (413, [ERROR]), (method, where)
    assert provider.ask("GET", path).json() == group


def test_whoever_has_no_token_sends_a_large_body_for_nothing(provider: Provider) -> None:
    path = f"/Groups/{provider.group('Data')['id']}"
    body = whole("Data", [f"usr_{number:026}" for number in range(10_000)])
    refused = provider.ask("PUT", path, body, token="mscim_" + "0" * 49)
    assert (refused.status_code, refused.json()["schemas"]) == (401, [ERROR])


def test_what_is_announced_of_bulk_requests_is_so(provider: Provider) -> None:
    announced = provider.ask("GET", "/ServiceProviderConfig").json()["bulk"]
    operation = {"method": "DELETE", "path": "/Users/usr_x", "bulkId": "x" * 1_000}
    body: dict[str, Any] = {"schemas": [BULK], "Operations": [operation] * 90}
    assert 64 << 10 < len(str(body)) < announced["maxPayloadSize"]
    answer = provider.ask("POST", "/Bulk", body)
    assert answer.status_code == 200, answer.text[:500]
    assert {one["status"] for one in answer.json()["Operations"]} == {"404"}


def test_a_page_has_as_many_groups_as_their_members_leave_room_for(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "MEMBERS_AT_ONCE", 10)
    ids = pushed(provider, 8)
    made = [provider.group(f"Group {number}", *ids)["id"] for number in range(4)]
    found: list[str] = []
    while len(found) < 4:
        page = provider.ask("GET", f"/Groups?startIndex={len(found) + 1}&count=200").json()
        assert (page["totalResults"], page["itemsPerPage"]) == (4, len(page["Resources"]))
        assert len(page["Resources"]) == 1
        assert {each["value"] for each in page["Resources"][0]["members"]} == set(ids)
        found += [one["id"] for one in page["Resources"]]
    assert found == made
    bare = provider.ask("GET", "/Groups?excludedAttributes=members").json()
    assert [one["id"] for one in bare["Resources"]] == made
    searched = provider.ask("GET", '/Groups?filter=displayName co "group"').json()
    assert (searched["totalResults"], len(searched["Resources"])) == (4, 1)
    # To look through the members of all groups would take all of them.
    refused = provider.ask("GET", f'/Groups?filter=members.value sw "{ids[0]}"')
    assert (refused.status_code, refused.json()["scimType"]) == (400, "tooMany")


@pytest.mark.every_database
def test_who_is_in_a_group_is_asked_without_reading_it(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Entra ID asks before it adds somebody, and others do to find the groups of somebody."""
    monkeypatch.setattr(directory, "MEMBERS_AT_ONCE", 1)
    ada, bob = (provider.user(login)["id"] for login in ("ada", "bob"))
    both, one = provider.group("Both", ada, bob)["id"], provider.group("One", ada)["id"]
    stranger = Provider(provider.house)
    theirs = stranger.group("Theirs", stranger.user("eve")["id"])["id"]
    for asked, expected in (
        (f'members eq "{ada}"', [both, one]),
        (f'members.value eq "{bob}"', [both]),
        (f'members[value eq "{ada}"]', [both, one]),
        (f'id eq "{one}" and members eq "{ada}"', [one]),
        (f'id eq "{one}" and members eq "{bob}"', []),
        (f'id eq "{theirs}" or members eq "{bob}"', [both]),
    ):
        path = f"/Groups?excludedAttributes=members&filter={asked}"
        found = provider.ask("GET", path).json()
        assert [each["id"] for each in found.get("Resources", [])] == expected, asked
