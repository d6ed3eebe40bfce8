"""Recovery codes stand in for the authenticator app, each once, and for nobody else's."""

from typing import Any

import httpx
import pytest
from sqlalchemy import select

from contract_tests.api.harness import PASSWORD, House, Person
from contract_tests.api.rows import is_problem
from contract_tests.api.second_factor import CONFIRM, code, enrol, enrolled
from storage.access.recovery_codes import RecoveryCode
from storage.events.audit import AuditEntry

RENEW = "/v1/me/recovery-codes"
STEP_UP = "/v1/sessions/current/actions/step-up"


@pytest.fixture
def person(house: House) -> Person:
    return house.person()


def confirmed(house: House, person: Person) -> list[str]:
    """The codes that are given when the app is confirmed."""
    totp = enrol(house, person)
    answer = house.post(CONFIRM, person.session, json={"code": code(house, totp)})
    assert answer.status_code == 200, answer.text
    codes: list[str] = answer.json()["recovery_codes"]
    return codes


def sign_in(house: House, person: Person, **body: str) -> httpx.Response:
    return house.post("/v1/sessions", json={"email": person.email, "password": PASSWORD, **body})


def left(house: House, person: Person) -> Any:
    return house.get("/v1/me", person.session).json()["recovery_codes_left"]


def test_ten_are_given_once_the_app_is_confirmed(house: House, person: Person) -> None:
    assert left(house, person) is None
    codes = confirmed(house, person)
    assert len(set(codes)) == 10
    assert left(house, person) == 10
    assert house.get("/v1/me", house.tenant(owner=person).key).json()["recovery_codes_left"] is None
    with house.database.read() as db:
        kept = list(db.scalars(select(RecoveryCode).where(RecoveryCode.user_id == person.id)))
    assert len({one.code_hash for one in kept}) == 10
    assert not [one for one in codes if one in str([vars(each) for each in kept])]


def test_each_signs_in_once(house: House, person: Person) -> None:
    first, second, *_ = confirmed(house, person)
    session = sign_in(house, person, totp_code=first)
    assert (session.status_code, session.json()["assurance"]) == (201, "mfa")
    is_problem(sign_in(house, person, totp_code=first), 401, "sign_in_refused")
    assert left(house, person) == 9
    # However it is typed; letters that look like digits are those digits.
    typed = second.replace("-", "").upper().replace("0", "O").replace("1", "l")
    assert sign_in(house, person, totp_code=typed).status_code == 201
    is_problem(sign_in(house, person, totp_code=second), 401)
    assert left(house, person) == 8
    told = select(AuditEntry).where(AuditEntry.target == session.json()["id"])
    with house.database.read() as db:
        detail = db.scalars(told).one().detail
    assert detail == {"user_id": person.id, "mfa": True, "recovery_code": True}


def test_each_steps_up_once(house: House, person: Person) -> None:
    first, *_ = confirmed(house, person)
    session = sign_in(house, person).json()["token"]
    assert house.post(STEP_UP, session, json={"code": first}).json()["assurance"] == "mfa"
    is_problem(house.post(STEP_UP, session, json={"code": first}), 403, "code_refused")


def test_a_wrong_one_and_somebody_elses_are_refused(house: House, person: Person) -> None:
    codes = confirmed(house, person)
    other = house.person()
    theirs = confirmed(house, other)
    for wrong in (theirs[0], "0000-0000-0000-0000"):
        is_problem(sign_in(house, person, totp_code=wrong), 401, "sign_in_refused")
        is_problem(house.post(STEP_UP, person.session, json={"code": wrong}), 403, "code_refused")
    assert (left(house, person), left(house, other)) == (10, 10)
    for senseless in (codes[0] + "0", codes[0][:-1], "1234567", "' OR 1=1 --", codes[0] + "\n"):
        is_problem(sign_in(house, person, totp_code=senseless), 422)
    # Beside a wrong password none is looked at.
    body = {"email": person.email, "password": "wrong-horse-battery", "totp_code": codes[0]}
    is_problem(house.post("/v1/sessions", json=body), 401)
    assert left(house, person) == 10


def test_they_confirm_no_app_and_are_worth_nothing_without_one(
    house: House, person: Person
) -> None:
    codes = confirmed(house, person)
    assert house.request("DELETE", "/v1/me/totp", person.session).status_code == 204
    assert left(house, person) is None
    is_problem(sign_in(house, person, totp_code=codes[0]), 401)
    is_problem(house.post(STEP_UP, person.session, json={"code": codes[0]}), 409)
    enrol(house, person)
    is_problem(house.post(CONFIRM, person.session, json={"code": codes[0]}), 422)
    anew = confirmed(house, person)
    assert not set(anew) & set(codes)
    is_problem(sign_in(house, person, totp_code=codes[0]), 401)
    assert sign_in(house, person, totp_code=anew[0]).status_code == 201


def test_new_ones_replace_all(house: House, person: Person) -> None:
    codes = confirmed(house, person)
    assert sign_in(house, person, totp_code=codes[0]).status_code == 201
    weak = sign_in(house, person).json()["token"]
    is_problem(house.post(RENEW, weak), 403, "mfa_required")
    answer = house.post(RENEW, person.session)
    assert answer.status_code == 201
    anew = answer.json()["recovery_codes"]
    assert (len(anew), left(house, person)) == (10, 10)
    is_problem(sign_in(house, person, totp_code=codes[1]), 401)
    assert sign_in(house, person, totp_code=anew[1]).status_code == 201
    is_problem(house.post(RENEW, house.tenant(owner=person).key), 403, "session_required")


def test_without_an_app_there_are_none_to_make(house: House) -> None:
    person = house.person(mfa=True)
    is_problem(house.post(RENEW, person.session), 409)


def test_a_repeated_request_shows_the_same_ones(house: House, person: Person) -> None:
    enrolled(house, person)
    headers = {"Idempotency-Key": "written-down"}
    first, second = (house.post(RENEW, person.session, headers=headers) for _ in range(2))
    assert first.json() == second.json()
    assert sign_in(house, person, totp_code=first.json()["recovery_codes"][3]).status_code == 201


@pytest.mark.every_database  # what locks is the database
def test_one_sent_many_times_at_once_works_once(house: House, person: Person) -> None:
    first, *_ = confirmed(house, person)
    tokens = [sign_in(house, person).json()["token"] for _ in range(20)]
    sent = [("POST", STEP_UP, token, {"json": {"code": first}}) for token in tokens]
    answers = house.together(*sent)
    assert sorted(one.status_code for one in answers) == [200, *[403] * 19]
    assert left(house, person) == 9


def test_the_first_code_of_an_app_is_not_kept_as_one(house: House, person: Person) -> None:
    """A code of six digits is never looked for among them."""
    totp = enrolled(house, person)
    assert sign_in(house, person, totp_code=code(house, totp, 1)).status_code == 201
    assert left(house, person) == 10
