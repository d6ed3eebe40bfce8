"""Passwords are verified before any transaction, so that sign-ins hold no other request up."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text

from contract_tests.api.harness import PASSWORD, House, Person
from contract_tests.api.rows import OPERATIONS, is_problem
from control.boundary import identity
from specserver.shares import HEAVY
from storage.access.users import User
from storage.database import Database

NEW = "staple-of-nine-oaks"
WRONG = "wrong-horse-battery"
Verify = Callable[[str | None, str], bool]
Ask = tuple[str, dict[str, str]]


@pytest.fixture
def person(house: House) -> Person:
    return house.person("Ada")


def asks(person: Person, password: str) -> dict[str, Ask]:
    """Whatever takes a password: its path, and its body."""
    return {
        "sign in": ("/v1/sessions", {"email": person.email, "password": password}),
        "change": ("/v1/me/password", {"current_password": password, "new_password": NEW}),
        "enrol": ("/v1/me/totp", {"password": password}),
    }


def send(house: House, person: Person, ask: Ask) -> Any:
    path, body = ask
    return house.post(path, None if path == "/v1/sessions" else person.session, json=body)


@pytest.mark.parametrize("what", ["sign in", "change", "enrol"])
@pytest.mark.every_database  # what locks is the database
def test_others_write_while_a_password_is_verified(
    house: House, person: Person, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, written = threading.Event(), threading.Event()
    found: list[bool] = []
    verify: Verify = identity.verify_password

    def slow(stored: str | None, password: str) -> bool:
        begun.set()
        found.append(written.wait(20))
        return verify(stored, password)

    def write() -> None:
        assert begun.wait(20)
        with house.database.write() as db:
            db.get_one(User, person.id).name = "Countess"
        written.set()

    monkeypatch.setattr(identity, "verify_password", slow)
    path, body = asks(person, PASSWORD)[what]
    token = None if path == "/v1/sessions" else person.session
    answer = house.during(write, "POST", path, token, json=body)
    assert answer.status_code in {201, 204}, answer.text
    assert found == [True]


@pytest.mark.parametrize("what", ["sign in", "change", "enrol"])
def test_a_wrong_password_begins_no_write(
    house: House, person: Person, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object) -> Any:
        raise AssertionError("a transaction that writes was begun")

    monkeypatch.setattr(Database, "write", refuse)
    answer = send(house, person, asks(person, WRONG)[what])
    if what == "sign in":
        is_problem(answer, 401, "sign_in_refused")
    else:
        is_problem(answer, 403, "password_refused")


def test_a_password_changed_while_it_is_verified_signs_nobody_in(
    house: House, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify: Verify = identity.verify_password

    def overtaken(stored: str | None, password: str) -> bool:
        right = verify(stored, password)
        with house.database.write() as db:
            db.get_one(User, person.id).password_hash = identity.hash_password(NEW)
        return right

    monkeypatch.setattr(identity, "verify_password", overtaken)
    answer = send(house, person, asks(person, PASSWORD)["sign in"])
    is_problem(answer, 409, "conflict")
    assert answer.json()["detail"] == "the password was changed at the same time; try again"
    monkeypatch.setattr(identity, "verify_password", verify)
    is_problem(send(house, person, asks(person, PASSWORD)["sign in"]), 401)
    assert send(house, person, asks(person, NEW)["sign in"]).status_code == 201


@pytest.mark.every_database  # who waits for whom is the database's
def test_no_session_that_begins_as_the_password_changes_outlives_the_change(
    house: House, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change comes between the look at the old password and the new session's commit."""
    found = threading.Event()
    new_token, hash_password = identity.new_session_token, identity.hash_password

    def overtaken() -> identity.Token:
        found.set()
        until(lambda: is_changed(house.database, person) or somebody_waits(house.database))
        return new_token()

    def hashed_late(password: str) -> str:
        assert found.wait(60)
        return hash_password(password)

    assert house.get("/v1/me", person.session).status_code == 200  # no stranger from now on
    monkeypatch.setattr(identity, "new_session_token", overtaken)
    monkeypatch.setattr(identity, "hash_password", hashed_late)
    ask = asks(person, PASSWORD)
    signed_in, answer = house.together(
        ("POST", ask["sign in"][0], None, {"json": ask["sign in"][1]}),
        ("POST", ask["change"][0], person.session, {"json": ask["change"][1]}),
    )
    assert (signed_in.status_code, answer.status_code) == (201, 204)
    is_problem(house.get("/v1/me", signed_in.json()["token"]), 401)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_changed(database: Database, person: Person) -> bool:
    with database.read() as db:
        stored = db.get_one(User, person.id).password_hash
    return stored is not None and not identity.verify_password(stored, PASSWORD)


def somebody_waits(database: Database) -> bool:
    if database.dialect == "sqlite":
        return True  # all writers do, for the one that writes
    waiting = text(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    with database.read() as db:
        return bool(db.scalar(waiting))


def test_a_repeated_change_of_the_password_gets_its_first_answer(
    house: House, person: Person
) -> None:
    path, body = asks(person, PASSWORD)["change"]
    for replayed in (None, "true"):
        answer = house.post(path, person.session, json=body, headers={"Idempotency-Key": "once"})
        assert answer.status_code == 204
        assert answer.headers.get("idempotency-replayed") == replayed


def test_an_outdated_hash_is_replaced(
    house: House, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "password_needs_rehash", lambda _hash: True)
    with house.database.read() as db:
        before = db.get_one(User, person.id).password_hash
    assert send(house, person, asks(person, PASSWORD)["sign in"]).status_code == 201
    with house.database.read() as db:
        assert db.get_one(User, person.id).password_hash != before
    assert send(house, person, asks(person, PASSWORD)["sign in"]).status_code == 201


def test_few_passwords_are_verified_at_once_however_many_addresses_send_them(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, free = threading.Lock(), threading.Event()
    running, most = 0, 0

    def slow(_stored: str | None, _password: str) -> bool:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        free.wait(0.05)
        with lock:
            running -= 1
        return False

    monkeypatch.setattr(identity, "verify_password", slow)
    body = {"email": "nobody@example.org", "password": WRONG}
    asked = [
        ("POST", "/v1/sessions", None, {"json": body, "address": f"198.51.100.{n}"})
        for n in range(12)
    ]
    assert {one.status_code for one in house.together(*asked)} == {401}
    assert 0 < most < HEAVY


CHOSEN = {
    "me.change_password new_password",
    "password_resets.complete password",
    "users.create password",
}
"""Passwords that are chosen, so that nobody can guess by them."""


def test_whatever_takes_a_code_or_a_password_is_counted() -> None:
    """The document names the members, and those are what is counted."""
    found = set()
    for one in OPERATIONS:
        content = one.document.get("requestBody", {}).get("content", {})
        members = content.get("application/json", {}).get("schema", {}).get("properties", {})
        for name, member in members.items():
            if "[0-9]{6}" in member.get("pattern", ""):
                assert one.extension("code") == name, one.id
                found.add(f"{one.id} {name}")
            elif name.endswith("password") and f"{one.id} {name}" not in CHOSEN:
                assert one.extension("password") == name, one.id
                found.add(f"{one.id} {name}")
    assert found == {
        "sessions.create password",
        "sessions.create totp_code",
        "sessions.step_up code",
        "me.change_email password",
        "me.change_password current_password",
        "me.enrol_totp password",
        "passkeys.options password",
        "me.confirm_totp code",
    }
