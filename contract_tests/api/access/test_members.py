"""Members: seen by all, changed by those whose role holds no less, and never without an owner."""

from typing import Any

import pytest

from contract_tests.api.harness import House, Person, Tenant
from contract_tests.api.rows import is_problem
from storage.access import memberships


@pytest.fixture
def tenant(house: House) -> Tenant:
    return house.tenant(plan="team")


def path_of(tenant: Tenant, person: Person) -> str:
    return f"{tenant.path}/members/{person.id}"


def change(house: House, tenant: Tenant, by: str, person: Person, role: str) -> Any:
    return house.request("PATCH", path_of(tenant, person), by, json={"role": role})


def roles(house: House, tenant: Tenant) -> dict[str, str]:
    page = house.get(f"{tenant.path}/members", tenant.key).json()
    return {one["user_id"]: one["role"] for one in page["items"]}


def entries(house: House, tenant: Tenant, action: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = house.get(
        f"{tenant.path}/audit?action={action}", tenant.key
    ).json()["items"]
    return found


def test_members_are_listed_with_their_roles_and_the_seats(house: House, tenant: Tenant) -> None:
    auditor = house.member(tenant.org_id, "auditor")
    page = house.get(f"{tenant.path}/members", auditor.session).json()
    assert page["seats"] == {"limit": 25, "members": 2, "pending_invites": 0}
    assert roles(house, tenant) == {tenant.owner.id: "owner", auditor.id: "auditor"}
    shown = next(one for one in page["items"] if one["user_id"] == auditor.id)
    assert (shown["email"], shown["mfa_enabled"]) == (auditor.email, False)


def test_they_are_pages(house: House, tenant: Tenant) -> None:
    for _ in range(2):
        house.member(tenant.org_id, "member")
    path = f"{tenant.path}/members?limit=2"
    first = house.get(path, tenant.key).json()
    second = house.get(f"{path}&cursor={first['next_cursor']}", tenant.key).json()
    assert [len(page["items"]) for page in (first, second)] == [2, 1]


def test_a_new_role_holds_from_the_next_request_on_and_is_audited(
    house: House, tenant: Tenant
) -> None:
    person = house.member(tenant.org_id, "auditor")
    body = {"name": "Project"}
    is_problem(house.post(f"{tenant.path}/projects", person.session, json=body), 403)
    told = change(house, tenant, tenant.key, person, "developer").json()
    assert (told["user_id"], told["role"]) == (person.id, "developer")
    assert house.post(f"{tenant.path}/projects", person.session, json=body).status_code == 201
    (entry,) = entries(house, tenant, "member.update")
    assert (entry["target"], entry["detail"]) == (
        person.id,
        {"role": "developer", "changes": {"role": {"from": "auditor", "to": "developer"}}},
    )


@pytest.mark.parametrize(
    ("own", "theirs", "wanted", "is_allowed"),
    [
        ("admin", "member", "admin", True),
        ("admin", "member", "owner", False),
        ("admin", "owner", "member", False),
        ("owner", "owner", "member", True),
        ("owner", "member", "owner", True),
    ],
)
def test_nobody_gives_or_takes_more_than_they_have(
    house: House, tenant: Tenant, own: str, theirs: str, wanted: str, is_allowed: bool
) -> None:
    by = house.member(tenant.org_id, own)
    person = house.member(tenant.org_id, theirs)
    answer = change(house, tenant, by.session, person, wanted)
    if is_allowed:
        assert answer.json()["role"] == wanted
    else:
        is_problem(answer, 403, "role_exceeds_yours")
        assert roles(house, tenant)[person.id] == theirs


@pytest.mark.parametrize("role", ["developer", "member", "auditor"])
def test_whoever_lacks_the_permission_changes_nobody(
    house: House, tenant: Tenant, role: str
) -> None:
    by, person = house.member(tenant.org_id, role), house.member(tenant.org_id, "auditor")
    is_problem(change(house, tenant, by.session, person, "member"), 403, "permission_missing")
    removed = house.request("DELETE", path_of(tenant, person), by.session)
    is_problem(removed, 403, "permission_missing")


def test_an_admin_does_not_remove_an_owner(house: House, tenant: Tenant) -> None:
    by, owner = (house.member(tenant.org_id, role) for role in ("admin", "owner"))
    answer = house.request("DELETE", path_of(tenant, owner), by.session)
    is_problem(answer, 403, "role_exceeds_yours")


def test_who_is_removed_is_out_with_all_their_keys(house: House, tenant: Tenant) -> None:
    person = house.member(tenant.org_id, "developer")
    key, key_id = house.key(tenant.org_id, person, "member")
    assert house.request("DELETE", path_of(tenant, person), tenant.key).status_code == 204
    is_problem(house.get(f"{tenant.path}/instances", key), 401)
    is_problem(house.get(f"{tenant.path}/instances", person.session), 404)
    (entry,) = entries(house, tenant, "member.remove")
    told: dict[str, Any] = {"user_id": person.id, "role": "developer", "left": False}
    told |= {"api_keys_revoked": 1, "invites_revoked": 0}
    assert (entry["target"], entry["detail"]) == (person.id, told)
    with house.database.write() as db:
        memberships.create(db, tenant.org_id, person.id, "developer")
    is_problem(house.get(f"{tenant.path}/instances", key), 401)
    assert key_id not in house.get(f"{tenant.path}/api-keys", tenant.key).text


def test_everybody_can_leave_by_a_session_and_by_no_key(house: House, tenant: Tenant) -> None:
    person = house.member(tenant.org_id, "auditor")
    key, _ = house.key(tenant.org_id, person, "auditor")
    is_problem(house.request("DELETE", path_of(tenant, person), key), 403, "permission_missing")
    assert house.request("DELETE", path_of(tenant, person), person.session).status_code == 204
    assert entries(house, tenant, "member.remove")[0]["detail"]["left"] is True


def test_the_last_owner_stays(house: House, tenant: Tenant) -> None:
    owner = house.session(tenant.owner.id, mfa=True)
    is_problem(change(house, tenant, owner, tenant.owner, "admin"), 409, "last_owner")
    answer = house.request("DELETE", path_of(tenant, tenant.owner), owner)
    is_problem(answer, 409, "last_owner")
    assert change(house, tenant, owner, tenant.owner, "owner").status_code == 200


def test_of_many_owners_who_all_go_at_once_one_stays(house: House, tenant: Tenant) -> None:
    owners = [house.member(tenant.org_id, "owner", mfa=True) for _ in range(49)]
    everybody = [*owners, Person(tenant.owner.id, "", house.session(tenant.owner.id, mfa=True))]
    asked: list[tuple[Any, ...]] = [
        ("DELETE", path_of(tenant, one), one.session, {})
        if number % 2
        else ("PATCH", path_of(tenant, one), one.session, {"json": {"role": "member"}})
        for number, one in enumerate(everybody)
    ]
    answers = house.together(*asked)
    assert sorted(answer.status_code for answer in answers).count(409) == 1
    with house.database.read() as db:
        assert memberships.count(db, tenant.org_id, "owner") == 1


def test_who_is_no_member_is_404(house: House, tenant: Tenant) -> None:
    stranger = house.person()
    is_problem(change(house, tenant, tenant.key, stranger, "member"), 404, "not_found")
    other = house.tenant("Other")
    is_problem(change(house, tenant, tenant.key, other.owner, "member"), 404, "not_found")
