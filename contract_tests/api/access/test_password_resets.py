"""A lost password is replaced by whoever reads the account's mail, once, and nothing else is."""

from datetime import timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import event, select

from contract_tests.api import letters
from contract_tests.api.conftest import MakeHouse
from contract_tests.api.harness import PASSWORD, House, Person
from contract_tests.api.rows import is_problem
from contract_tests.api.second_factor import code, enrolled
from control.mail import Letter
from storage.access.account_tokens import AccountToken
from storage.access.users import User
from storage.events.audit import AuditEntry

NEW = "staple-of-nine-oaks"
OTHER = "lantern-cobalt-mitten"
ASK = "/v1/password-resets"
COMPLETE = "/v1/password-resets/actions/complete"
NO_TOKEN = "mp_" + "0" * 49


@pytest.fixture
def person(house: House) -> Person:
    return house.person("Ada")


def complete(house: House, token: str, password: str = NEW, **options: Any) -> httpx.Response:
    body = {"reset_token": token, "password": password}
    return house.post(COMPLETE, json=body, **options)


def sign_in(house: House, person: Person, password: str, **body: str) -> httpx.Response:
    return house.post("/v1/sessions", json={"email": person.email, "password": password, **body})


def sent_to(house: House, email: str) -> list[Letter]:
    house.settle()
    return [one for one in house.letters.sent.values() if one.to == email]


def audited(house: House, person: Person) -> list[AuditEntry]:
    rows = select(AuditEntry).where(AuditEntry.target == person.id)
    with house.database.read() as db:
        return list(db.scalars(rows.order_by(AuditEntry.id)))


def test_whoever_reads_the_mail_chooses_a_new_password(house: House, person: Person) -> None:
    tenant_key = house.tenant(owner=person).key
    token = letters.reset(house, person.email.upper())
    assert f"/account/reset?token={token}" in house.letters.last.text
    is_problem(house.post("/v1/sessions", json={"email": person.email, "password": NEW}), 401)
    assert complete(house, token).status_code == 204
    is_problem(sign_in(house, person, PASSWORD), 401)
    assert sign_in(house, person, NEW).status_code == 201
    # Whoever had come in by the former password is out, and programs go on.
    is_problem(house.get("/v1/me", person.session), 401)
    assert house.get("/v1/me", tenant_key).status_code == 200
    asked, done = audited(house, person)
    assert (asked.action, asked.actor_kind) == ("user.password.reset_request", "anonymous")
    assert (done.action, done.detail) == ("user.password.reset", {"sessions_revoked": 1})


def test_a_letter_tells_that_the_password_was_changed(house: House, person: Person) -> None:
    complete(house, letters.reset(house, person.email))
    told = sent_to(house, person.email)[-1]
    assert told.subject == "Your password was changed"
    assert "127.0.0.1" in told.text
    body = {"current_password": NEW, "new_password": OTHER}
    session = sign_in(house, person, NEW).json()["token"]
    assert house.post("/v1/me/password", session, json=body).status_code == 204
    changed = [one for one in sent_to(house, person.email) if one.subject == told.subject]
    assert len(changed) == 2
    assert not [one for one in changed if NEW in one.text or OTHER in one.text]


def test_a_token_works_once_and_ends_the_others(house: House, person: Person) -> None:
    first, second = (letters.reset(house, person.email) for _ in range(2))
    assert complete(house, second).status_code == 204
    is_problem(complete(house, second, OTHER), 409, "reset_used")
    is_problem(complete(house, first, OTHER), 409, "reset_expired")
    is_problem(complete(house, NO_TOKEN), 404, "not_found")
    # That of an invite, which is as long, is none.
    is_problem(complete(house, "mi_" + NO_TOKEN[3:]), 422)
    assert sign_in(house, person, NEW).status_code == 201


def test_a_weak_password_leaves_the_token(house: House, person: Person) -> None:
    token = letters.reset(house, person.email)
    refused = complete(house, token, "password1234")
    is_problem(refused, 422)
    assert refused.json()["errors"][0]["pointer"] == "/password"
    is_problem(complete(house, token, person.email), 422)
    assert house.get("/v1/me", person.session).status_code == 200
    assert complete(house, token).status_code == 204


def test_a_token_ends_after_an_hour(make_house: MakeHouse) -> None:
    house = make_house()
    person = house.person()
    token, late = (letters.reset(house, person.email) for _ in range(2))
    house.pass_time(3599)
    assert complete(house, token).status_code == 204
    token = letters.reset(house, person.email)
    house.pass_time(3601)
    is_problem(complete(house, token), 409, "reset_expired")
    is_problem(complete(house, late), 409, "reset_expired")
    assert sign_in(house, person, NEW).status_code == 201


def test_a_change_of_the_password_ends_the_tokens(house: House, person: Person) -> None:
    token = letters.reset(house, person.email)
    body = {"current_password": PASSWORD, "new_password": OTHER}
    assert house.post("/v1/me/password", person.session, json=body).status_code == 204
    is_problem(complete(house, token), 409, "reset_expired")
    assert sign_in(house, person, OTHER).status_code == 201


def test_the_second_factor_stays(house: House, person: Person) -> None:
    totp = enrolled(house, person)
    complete(house, letters.reset(house, person.email))
    session = sign_in(house, person, NEW).json()
    assert session["assurance"] == "none"
    body = {"current_password": NEW, "new_password": OTHER}
    is_problem(house.post("/v1/me/password", session["token"], json=body), 403, "mfa_required")
    with_code = sign_in(house, person, NEW, totp_code=code(house, totp, 1)).json()
    assert with_code["assurance"] == "mfa"


@pytest.mark.every_database  # what locks is the database
def test_of_many_who_use_one_token_at_once_one_does(house: House, person: Person) -> None:
    token = letters.reset(house, person.email)
    chosen = [f"staple-of-nine-oaks-{number}" for number in range(20)]
    bodies = [{"reset_token": token, "password": each} for each in chosen]
    answers = house.together(*[("POST", COMPLETE, None, {"json": each}) for each in bodies])
    statuses = [one.status_code for one in answers]
    assert sorted(statuses) == [204, *[409] * 19]
    assert sign_in(house, person, chosen[statuses.index(204)]).status_code == 201


@pytest.mark.every_database  # what locks is the database
def test_a_reset_and_a_change_at_once_leave_one_password(house: House, person: Person) -> None:
    token = letters.reset(house, person.email)
    changed = {"current_password": PASSWORD, "new_password": OTHER}
    answers = house.together(
        ("POST", COMPLETE, None, {"json": {"reset_token": token, "password": NEW}}),
        ("POST", "/v1/me/password", person.session, {"json": changed}),
    )
    reset, change = (one.status_code for one in answers)
    assert (reset, change) in {(204, 401), (204, 409), (409, 204), (204, 403)}
    chosen = NEW if reset == 204 else OTHER
    assert sign_in(house, person, chosen).status_code == 201


def test_what_is_answered_and_asked_of_the_database_tells_nobody_who_is_known(
    house: House, person: Person
) -> None:
    """Statement by statement: whoever measures the time finds nothing."""
    found = {}
    for email in (person.email, "nobody@example.org"):
        statements: list[str] = []

        def note(
            _of: Any, _cursor: Any, statement: str, *_more: Any, seen: Any = statements
        ) -> None:
            seen.append(statement)

        event.listen(house.database.engine, "before_cursor_execute", note)
        answer = house.post(ASK, json={"email": email})
        event.remove(house.database.engine, "before_cursor_execute", note)
        found[email] = (answer.status_code, answer.json(), statements)
    known, unknown = found.values()
    assert known == unknown
    assert known[:2] == (202, {"valid_for_s": 3600})
    assert known[2]
    assert [one.subject for one in sent_to(house, person.email)] == ["Choose a new password"]
    assert sent_to(house, "nobody@example.org") == []


def test_an_account_gets_five_letters_a_day(make_house: MakeHouse) -> None:
    house = make_house()
    person, other = house.person(), house.person()
    asked = [("POST", ASK, None, {"json": {"email": person.email}})] * 20
    assert {one.status_code for one in house.together(*asked)} == {202}
    assert len(sent_to(house, person.email)) == 5
    assert letters.reset(house, other.email)
    is_older(house, person, timedelta(days=1))
    house.post(ASK, json={"email": person.email})
    assert len(sent_to(house, person.email)) == 6


def is_older(house: House, person: Person, by: timedelta) -> None:
    with house.database.write() as db:
        for each in db.scalars(select(AccountToken).where(AccountToken.user_id == person.id)):
            each.created_at -= by


def test_a_letter_that_is_not_sent_yet_is_not_when_its_token_has_ended(
    house: House, person: Person
) -> None:
    house.post(ASK, json={"email": person.email})
    house.turns(1)
    body = {"current_password": PASSWORD, "new_password": OTHER}
    assert house.post("/v1/me/password", person.session, json=body).status_code == 204
    assert [one.subject for one in sent_to(house, person.email)] == ["Your password was changed"]


def test_a_repeated_request_sends_one_letter(house: House, person: Person) -> None:
    headers = {"Idempotency-Key": "lost"}
    for replayed in (None, "true"):
        answer = house.post(ASK, json={"email": person.email}, headers=headers)
        assert answer.headers.get("idempotency-replayed") == replayed
    assert len(sent_to(house, person.email)) == 1


def test_no_password_and_no_token_is_kept(house: House, person: Person) -> None:
    token = letters.reset(house, person.email)
    complete(house, token)
    with house.database.read() as db:
        kept = db.scalars(select(AccountToken).where(AccountToken.user_id == person.id)).one()
        assert token not in str(vars(kept))
        assert NEW not in str(vars(db.get_one(User, person.id)))
