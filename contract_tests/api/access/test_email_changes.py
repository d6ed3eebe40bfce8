"""An account gets an address once somebody who is signed in to it has read what was sent there."""

from datetime import timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from contract_tests.api import letters
from contract_tests.api.conftest import MakeHouse
from contract_tests.api.harness import PASSWORD, House, Person
from contract_tests.api.rows import is_problem
from contract_tests.api.second_factor import code, enrolled
from control.mail import Letter
from storage.access.account_tokens import AccountToken
from storage.access.users import User
from storage.events.audit import AuditEntry

CHANGE = "/v1/me/email"
CONFIRM = "/v1/me/email/actions/confirm"


@pytest.fixture
def person(house: House) -> Person:
    return house.person("Ada")


@pytest.fixture
def email(person: Person) -> str:
    return f"new.{person.email}"


def ask(house: House, person: Person, email: str, password: str = PASSWORD) -> httpx.Response:
    return house.post(CHANGE, person.session, json={"email": email, "password": password})


def confirm(house: House, person: Person, token: str) -> httpx.Response:
    return house.post(CONFIRM, person.session, json={"email_token": token})


def user(house: House, person: Person) -> Any:
    return house.get("/v1/me", person.session).json()["user"]


def sign_in(house: House, email: str) -> int:
    return house.post("/v1/sessions", json={"email": email, "password": PASSWORD}).status_code


def sent_to(house: House, email: str) -> list[Letter]:
    house.settle()
    return [one for one in house.letters.sent.values() if one.to == email]


def test_an_address_is_changed_by_who_reads_the_new_one(
    house: House, person: Person, email: str
) -> None:
    assert user(house, person)["email_verified_at"] is None
    token = letters.email_change(house, person, email.upper())
    assert house.letters.last.to == email.upper()
    assert f"/account/email?token={token}" in house.letters.last.text
    assert user(house, person)["email"] == person.email, "nothing changes until then"
    reset = letters.reset(house, person.email)
    answer = confirm(house, person, token)
    assert answer.status_code == 200
    assert answer.json() == user(house, person)
    assert answer.json()["email"] == email
    assert answer.json()["email_verified_at"] is not None
    assert (sign_in(house, person.email), sign_in(house, email)) == (401, 201)
    # The former address is told, and what was sent there lets nobody in.
    assert sent_to(house, person.email)[-1].subject == "Your email address was changed"
    body = {"reset_token": reset, "password": "staple-of-nine-oaks"}
    answer = house.post("/v1/password-resets/actions/complete", json=body)
    is_problem(answer, 409, "reset_expired")
    rows = select(AuditEntry).where(AuditEntry.target == person.id)
    with house.database.read() as db:
        done = [each.detail for each in db.scalars(rows) if each.action == "user.email.change"]
    assert done == [{"email": email, "was": person.email}]


def test_ones_own_address_is_verified_the_same_way(house: House, person: Person) -> None:
    """As that of the owner whom the first start made."""
    token = letters.email_change(house, person, person.email)
    assert confirm(house, person, token).json()["email_verified_at"] is not None
    assert [one.subject for one in sent_to(house, person.email)] == ["Confirm your email address"]
    assert user(house, person)["email"] == person.email


def test_whoever_came_by_a_letter_has_shown_it(house: House, person: Person) -> None:
    tenant = house.tenant(plan="team")
    token = letters.invite(house, tenant, letters.new_email("grace"))
    body = {"invite_token": token, "name": "Grace", "password": PASSWORD}
    assert house.post("/v1/users", json=body).json()["email_verified_at"] is not None
    token = letters.invite(house, tenant, person.email)
    assert house.post(f"/v1/invites/{token}/accept", person.session).status_code == 200
    assert user(house, person)["email_verified_at"] is not None
    other = house.person()
    body = {"reset_token": letters.reset(house, other.email), "password": "staple-of-nine-oaks"}
    assert house.post("/v1/password-resets/actions/complete", json=body).status_code == 204
    with house.database.read() as db:
        assert db.get_one(User, other.id).email_verified_at is not None


def test_it_takes_the_password_and_the_second_factor(
    house: House, person: Person, email: str
) -> None:
    refused = ask(house, person, email, "wrong-horse-battery")
    is_problem(refused, 403, "password_refused")
    is_problem(house.post(CHANGE, json={"email": email, "password": PASSWORD}), 401)
    is_problem(house.post(CHANGE, house.tenant(owner=person).key, json={"email": email}), 403)
    enrolled(house, person)
    weak = house.post("/v1/sessions", json={"email": person.email, "password": PASSWORD}).json()
    body = {"email": email, "password": PASSWORD}
    is_problem(house.post(CHANGE, weak["token"], json=body), 403, "mfa_required")
    assert sent_to(house, email) == []


def test_a_token_is_good_once_and_for_its_user_alone(
    house: House, person: Person, email: str
) -> None:
    first = letters.email_change(house, person, f"first.{email}")
    second = letters.email_change(house, person, email)
    is_problem(confirm(house, house.person(), second), 404, "not_found")
    is_problem(confirm(house, person, first), 409, "email_token_expired")
    assert confirm(house, person, second).status_code == 200
    is_problem(confirm(house, person, second), 409, "email_token_used")
    is_problem(confirm(house, person, "mv_" + "0" * 49), 404, "not_found")
    is_problem(confirm(house, person, letters.reset(house, email)), 422)


def test_a_token_ends_after_a_day(make_house: MakeHouse) -> None:
    house = make_house()
    person = house.person()
    token = letters.email_change(house, person, "late@example.com")
    house.pass_time(86_401)
    later = Person(person.id, person.email, house.session(person.id))
    is_problem(confirm(house, later, token), 409, "email_token_expired")


def test_nobody_learns_whose_an_address_is(house: House, person: Person) -> None:
    other = house.person()
    taken = ask(house, person, other.email)
    assert taken.status_code == 202
    assert taken.json() == {"email": other.email, "valid_for_s": 86_400}
    assert sent_to(house, other.email) == []


@pytest.mark.every_database  # what is unique is up to the database
def test_one_address_is_of_one_account(house: House) -> None:
    people = [house.person() for _ in range(4)]
    email = f"shared.{people[0].email}"
    tokens = [letters.email_change(house, each, email) for each in people]
    asked = [
        ("POST", CONFIRM, each.session, {"json": {"email_token": token}})
        for each, token in zip(people, tokens, strict=True)
    ]
    answers = house.together(*asked)
    assert sorted(one.status_code for one in answers) == [200, 409, 409, 409]
    assert [user(house, each)["email"] for each in people].count(email) == 1


@pytest.mark.every_database  # what locks is the database
def test_one_token_sent_many_times_at_once_is_used_once(
    house: House, person: Person, email: str
) -> None:
    token = letters.email_change(house, person, email)
    asked = [("POST", CONFIRM, person.session, {"json": {"email_token": token}})] * 20
    answers = house.together(*asked)
    assert sorted(one.status_code for one in answers) == [200, *[409] * 19]
    assert len(sent_to(house, person.email)) == 1


def test_letters_are_few_by_person_and_by_address(house: House, person: Person) -> None:
    for number in range(5):
        assert ask(house, person, f"n{number}.{person.email}").status_code == 202
    refused = ask(house, person, f"n6.{person.email}")
    is_problem(refused, 422)
    assert refused.json()["errors"][0]["keyword"] == "quota"
    victim = f"victim.{person.email}"
    for _ in range(5):
        assert ask(house, house.person(), victim).status_code == 202
    is_problem(ask(house, house.person(), victim), 422)
    assert len(sent_to(house, victim)) == 5
    with house.database.write() as db:
        for each in db.scalars(select(AccountToken).where(AccountToken.email == victim)):
            each.created_at -= timedelta(days=1)
    assert ask(house, house.person(), victim).status_code == 202


def test_an_organization_keeps_its_domains(house: House, person: Person) -> None:
    """Else an invite to an allowed address would let in any other, one change later."""
    tenant = house.tenant(owner=person)
    token = letters.email_change(house, person, f"other.{person.email}")
    outside = "ada@example.net"
    body = {"allowed_email_domains": [person.email.partition("@")[2]]}
    assert house.request("PATCH", tenant.path, tenant.key, json=body).status_code == 200
    is_problem(ask(house, person, outside), 403, "email_domain_refused")
    assert confirm(house, person, token).status_code == 200
    token = letters.email_change(house, person, f"third.{person.email}")
    body = {"allowed_email_domains": ["example.com"]}
    assert house.request("PATCH", tenant.path, tenant.key, json=body).status_code == 200
    is_problem(confirm(house, person, token), 403, "email_domain_refused")


def test_with_a_code_it_is_done(house: House, person: Person, email: str) -> None:
    totp = enrolled(house, person)
    body = {"email": person.email, "password": PASSWORD, "totp_code": code(house, totp, 1)}
    session = house.post("/v1/sessions", json=body).json()["token"]
    strong = Person(person.id, person.email, session)
    token = letters.email_change(house, strong, email)
    assert confirm(house, strong, token).json()["email"] == email


def test_nobody_uses_up_what_may_be_sent_to_somebody_elses_address(
    house: House, person: Person
) -> None:
    """What others ask for it is not sent, and keeps nobody from verifying what is theirs."""
    thief = house.person("Eve")
    for _ in range(5):
        assert ask(house, thief, person.email).status_code == 202
    assert sent_to(house, person.email) == []
    for _ in range(5):
        assert ask(house, person, person.email).status_code == 202
    assert sent_to(house, person.email)[-1].subject == "Confirm your email address"
    is_problem(ask(house, person, person.email), 422)
