"""Invites: a letter with a token, which lets in once whoever it was sent to, if there is a seat."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from contract_tests.api import letters
from contract_tests.api.harness import PASSWORD, House, Person, Tenant
from contract_tests.api.rows import NO_INVITE, is_problem
from control.boundary import identity
from storage.access.invites import Invite


@pytest.fixture
def tenant(house: House) -> Tenant:
    return house.tenant(plan="team")


def accept(house: House, token: str, person: Person) -> Any:
    return house.post(f"/v1/invites/{token}/accept", person.session)


def invite(house: House, tenant: Tenant, by: str, email: str, role: str = "member") -> Any:
    return house.post(f"{tenant.path}/invites", by, json={"email": email, "role": role})


def seats(house: House, tenant: Tenant) -> dict[str, Any]:
    found: dict[str, Any] = house.get(f"{tenant.path}/members", tenant.key).json()["seats"]
    return found


def pending(house: House, tenant: Tenant) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = house.get(f"{tenant.path}/invites", tenant.key).json()["items"]
    return found


def is_older(house: House, tenant: Tenant, by: timedelta) -> None:
    """All invites of the organization were made that much earlier."""
    with house.database.write() as db:
        for each in db.scalars(select(Invite).where(Invite.org_id == tenant.org_id)):
            each.created_at -= by
            each.expires_at -= by


def audited(house: House, tenant: Tenant, action: str) -> dict[str, Any]:
    path = f"{tenant.path}/audit?action={action}"
    entry: dict[str, Any] = house.get(path, tenant.key).json()["items"][0]
    return entry


def test_whoever_is_invited_joins_with_the_role_of_the_invite(house: House, tenant: Tenant) -> None:
    person = house.person()
    token = letters.invite(house, tenant, person.email, "developer")
    (shown,) = pending(house, tenant)
    assert (shown["email"], shown["role"]) == (person.email, "developer")
    assert token not in str(shown)
    assert seats(house, tenant) == {"limit": 25, "members": 1, "pending_invites": 1}
    joined = accept(house, token, person)
    assert (joined.status_code, joined.json()["id"]) == (200, tenant.org_id)
    assert joined.json()["role"] == "developer"
    assert house.get(f"{tenant.path}/projects", person.session).is_success
    assert seats(house, tenant) == {"limit": 25, "members": 2, "pending_invites": 0}
    assert pending(house, tenant) == []
    made, used = audited(house, tenant, "invite.create"), audited(house, tenant, "invite.accept")
    assert made["detail"] == {"email": person.email, "role": "developer"}
    assert (used["target"], used["detail"]) == (shown["id"], {"role": "developer"})
    assert used["actor_id"] == person.id


def test_the_letter_says_who_invites_to_what_and_until_when(house: House, tenant: Tenant) -> None:
    letters.invite(house, tenant, "ada@example.com", "auditor")
    letter = house.letters.last
    name = house.get(tenant.path, tenant.key).json()["name"]
    assert letter.to == "ada@example.com"
    assert letter.subject == f'Invitation to the organization "{name}"'
    assert "as auditor" in letter.text
    assert pending(house, tenant)[0]["expires_at"] in letter.text


def test_a_token_works_once_and_for_its_address_alone(house: House, tenant: Tenant) -> None:
    person, other = house.person(), house.person()
    token = letters.invite(house, tenant, person.email.upper())
    is_problem(accept(house, token, other), 403, "wrong_email")
    assert accept(house, token, person).status_code == 200
    is_problem(accept(house, token, person), 409, "invite_used")
    is_problem(accept(house, NO_INVITE, person), 404, "not_found")
    is_problem(house.post(f"/v1/invites/{token}/accept", tenant.key), 403, "session_required")


def test_an_invite_that_is_revoked_or_old_lets_nobody_in(house: House, tenant: Tenant) -> None:
    person = house.person()
    token = letters.invite(house, tenant, person.email)
    path = f"{tenant.path}/invites/{pending(house, tenant)[0]['id']}"
    assert house.request("DELETE", path, tenant.key).status_code == 204
    is_problem(accept(house, token, person), 409, "invite_revoked")
    is_problem(house.request("DELETE", path, tenant.key), 404)
    token = letters.invite(house, tenant, person.email)
    is_older(house, tenant, timedelta(days=7))
    is_problem(accept(house, token, person), 409, "invite_expired")
    assert pending(house, tenant) == []
    assert letters.invite(house, tenant, person.email) != token


def test_nobody_is_invited_twice_or_who_is_a_member(house: House, tenant: Tenant) -> None:
    person = house.person()
    letters.invite(house, tenant, person.email)
    answer = invite(house, tenant, tenant.key, person.email.upper())
    is_problem(answer, 409, "already_invited")
    answer = invite(house, tenant, tenant.key, tenant.owner.email)
    is_problem(answer, 409, "already_member")


def test_pending_invites_take_seats_and_there_are_no_more_than_the_plan_has(house: House) -> None:
    tenant = house.tenant(plan="solo")
    person = house.person()
    token = letters.invite(house, tenant, person.email)
    letters.invite(house, tenant, "second@example.com")
    is_problem(invite(house, tenant, tenant.key, "third@example.com"), 402, "seat_limit")
    house.change_org(tenant.org_id, plan="free")
    house.member(tenant.org_id, "member")
    is_problem(accept(house, token, person), 402, "seat_limit")
    house.change_org(tenant.org_id, plan="solo")
    assert accept(house, token, person).status_code == 200


def test_of_many_who_accept_at_once_as_many_come_in_as_there_are_seats(house: House) -> None:
    tenant = house.tenant(plan="team")
    people = [house.person() for _ in range(6)]
    tokens = [letters.invite(house, tenant, person.email) for person in people]
    house.change_org(tenant.org_id, plan="solo")
    asked: list[tuple[Any, ...]] = [
        ("POST", f"/v1/invites/{token}/accept", person.session, {})
        for token, person in zip(tokens, people, strict=True)
    ]
    answers = [answer.status_code for answer in house.together(*asked)]
    assert sorted(answers) == [200, 200, 402, 402, 402, 402]
    assert seats(house, tenant)["members"] == 3


def test_one_token_that_is_used_at_once_makes_one_member(house: House, tenant: Tenant) -> None:
    person = house.person()
    token = letters.invite(house, tenant, person.email)
    asked: list[tuple[Any, ...]] = [("POST", f"/v1/invites/{token}/accept", person.session, {})] * 5
    answers = [answer.status_code for answer in house.together(*asked)]
    assert sorted(answers) == [200, 409, 409, 409, 409]


@pytest.mark.parametrize(
    ("own", "role", "code"),
    [
        ("admin", "admin", None),
        ("admin", "owner", "role_exceeds_yours"),
        ("developer", "member", "permission_missing"),
        ("auditor", "auditor", "permission_missing"),
    ],
)
def test_nobody_invites_to_more_than_they_have(
    house: House, tenant: Tenant, own: str, role: str, code: str | None
) -> None:
    by = house.member(tenant.org_id, own)
    answer = invite(house, tenant, by.session, "new@example.com", role)
    if code is None:
        assert answer.status_code == 201
    else:
        is_problem(answer, 403, code)


@pytest.mark.parametrize(
    "email",
    [
        *("ada", "a b@example.com", "a@b@c", "ada@example.com\r\nBcc: x@example.com", "@"),
        *("a,b@c.d", "=?utf-8?q?thief=40evil.com=3B?=ceo@corp.com", "a@..", "a@example.com."),
        *("a\u0085b@example.com", "a\u202eb@example.com", "zo\u00eb@example.com", ".a@example.com"),
    ],
)
def test_what_is_no_address_is_refused(house: House, tenant: Tenant, email: str) -> None:
    answer = invite(house, tenant, tenant.key, email)
    is_problem(answer, 422)
    assert answer.json()["errors"][0]["pointer"] == "/email"


def test_somebody_without_an_account_creates_one_from_the_invite(
    house: House, tenant: Tenant
) -> None:
    email = letters.new_email("grace")
    token = letters.invite(house, tenant, email, "developer")
    body = {"invite_token": token, "name": "Grace", "password": PASSWORD}
    made = house.post("/v1/users", json=body)
    assert made.status_code == 201, made.text
    assert (made.json()["email"], made.json()["org"]["id"]) == (email, tenant.org_id)
    session = house.post("/v1/sessions", json={"email": email, "password": PASSWORD})
    signed_in = session.json()["token"]
    assert house.get(f"{tenant.path}/projects", signed_in).is_success
    is_problem(house.post("/v1/users", json=body), 409, "invite_used")
    assert audited(house, tenant, "user.create")["target"] == made.json()["id"]


def test_who_has_an_account_gets_no_second_one(house: House, tenant: Tenant) -> None:
    person = house.person()
    token = letters.invite(house, tenant, person.email)
    body = {"invite_token": token, "name": "Again", "password": PASSWORD}
    is_problem(house.post("/v1/users", json=body), 409, "account_exists")
    is_problem(house.post("/v1/users", json={**body, "invite_token": NO_INVITE}), 404)
    assert accept(house, token, person).status_code == 200


def test_a_closed_organization_takes_nobody_in(house: House, tenant: Tenant) -> None:
    person = house.person()
    token = letters.invite(house, tenant, person.email)
    house.change_org(tenant.org_id, status="closed")
    is_problem(accept(house, token, person), 409, "org_closed")


def test_who_was_removed_can_be_invited_again(house: House, tenant: Tenant) -> None:
    person = house.member(tenant.org_id, "member")
    house.request("DELETE", f"{tenant.path}/members/{person.id}", tenant.key)
    token = letters.invite(house, tenant, person.email, "auditor")
    assert accept(house, token, person).json()["role"] == "auditor"


def test_an_organization_sends_so_many_letters_a_day(
    house: House, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("control.policy.quotas.INVITES_A_DAY_MAX", 2)
    for number in range(2):
        letters.invite(house, tenant, f"{number}@example.com")
    answer = invite(house, tenant, tenant.key, "next@example.com")
    is_problem(answer, 422)
    assert answer.json()["errors"][0]["keyword"] == "quota"
    is_older(house, tenant, timedelta(days=1))
    letters.invite(house, tenant, "next@example.com")


@pytest.mark.parametrize("by_key", [False, True])
def test_an_invite_ends_with_the_membership_of_whoever_sent_it(
    house: House, tenant: Tenant, by_key: bool
) -> None:
    admin, person = house.member(tenant.org_id, "admin"), house.person()
    key, _ = house.key(tenant.org_id, admin, "admin")
    assert invite(house, tenant, key if by_key else admin.session, person.email, "admin").is_success
    token = letters.token_of_last(house)
    house.request("DELETE", f"{tenant.path}/members/{admin.id}", tenant.key)
    assert pending(house, tenant) == []
    assert audited(house, tenant, "member.remove")["detail"]["invites_revoked"] == 1
    is_problem(accept(house, token, person), 409, "invite_revoked")


def test_an_invite_ends_with_the_role_or_the_key_that_it_was_sent_by(
    house: House, tenant: Tenant
) -> None:
    owner, person = house.member(tenant.org_id, "owner"), house.person()
    key, key_id = house.key(tenant.org_id, owner, "admin")
    assert invite(house, tenant, owner.session, person.email, "owner").is_success
    of_role = letters.token_of_last(house)
    assert invite(house, tenant, key, "other@example.com", "admin").is_success
    of_key = letters.token_of_last(house)
    house.request("PATCH", f"{tenant.path}/members/{owner.id}", tenant.key, json={"role": "admin"})
    is_problem(accept(house, of_role, person), 409, "invite_revoked")
    house.request("DELETE", f"{tenant.path}/api-keys/{key_id}", tenant.key)
    body = {"invite_token": of_key, "name": "Other", "password": PASSWORD}
    is_problem(house.post("/v1/users", json=body), 409, "invite_revoked")


def test_one_address_gets_few_letters_however_often_they_are_revoked(
    house: House, tenant: Tenant
) -> None:
    for _ in range(3):
        letters.invite(house, tenant, "victim@example.com")
        path = f"{tenant.path}/invites/{pending(house, tenant)[0]['id']}"
        house.request("DELETE", path, tenant.key)
    answer = invite(house, tenant, tenant.key, "VICTIM@example.com")
    is_problem(answer, 422)
    assert answer.json()["errors"][0]["pointer"] == "/email"


def test_nobodys_password_is_hashed_who_does_not_come_in(
    house: House, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = letters.invite(house, tenant, letters.new_email("late"))
    house.change_org(tenant.org_id, plan="free")
    house.member(tenant.org_id, "member")
    monkeypatch.setattr(identity, "hash_password", lambda _password: pytest.fail("hashed"))
    for each, status in ((token, 402), (NO_INVITE, 404)):
        body = {"invite_token": each, "name": "Late", "password": PASSWORD}
        assert house.post("/v1/users", json=body).status_code == status
