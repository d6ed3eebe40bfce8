"""Whoever the identity provider deactivates is out everywhere: in each process, and in the cells.

The provider pushes to one replica; what the person has open was opened at the other.
"""

import time
from dataclasses import replace
from typing import Any

import pytest

from contract_tests.api.harness import House, Person
from contract_tests.api.instances.test_credentials import claims
from contract_tests.api.sso.provider import Provider
from contract_tests.workflows.known import take_turn
from control.workflows.access import revocation
from control.workflows.instances import reconcile
from storage.access import users

# Whatever the provider says that means it.
OUT: dict[str, tuple[str, dict[str, Any] | None]] = {
    "deactivated": ("PATCH", {"Operations": [{"op": "Replace", "value": {"active": "False"}}]}),
    "suspended": ("PUT", {"active": False}),
    "deleted": ("DELETE", None),
}


class Pushed:
    """An admin whom the provider has pushed, with a session, a key and all that these open."""

    def __init__(self, one: House, two: House) -> None:
        self.one, self.two = one, two
        self.provider = Provider(one).on(two)
        self.path = self.provider.tenant.path
        person = one.member(self.provider.org_id, "admin")
        self.email = self.provider.address("ada")
        with one.database.write() as db:
            users.locked(db, person.id).email = self.email
        self.person: Person = replace(person, email=self.email)
        self.user = self.provider.user("ada")
        self.key, self.key_id = one.key(self.provider.org_id, person, "admin")
        self.instance_id = one.instance(self.provider.tenant)
        self.instance = f"{self.path}/instances/{self.instance_id}"

    def opened(self, what: str, token: str) -> dict[str, Any]:
        """The claims of a one-time URL."""
        made = self.one.post(f"{self.instance}/{what}", token)
        assert made.is_success, made.text
        return claims(made.json()["url"])

    def goes(self, how: str) -> None:
        method, body = OUT[how]
        if method == "PUT":
            body = {**self.user, **(body or {})}
        answer = self.provider.ask(method, f"/Users/{self.user['id']}", body)
        assert answer.is_success, answer.text


@pytest.fixture
def pushed(make_house: Any) -> Pushed:
    return Pushed(make_house(stream_ttl_s=120.0), make_house(stream_ttl_s=120.0))


@pytest.mark.parametrize("how", OUT)
def test_the_next_request_at_any_replica_is_refused(pushed: Pushed, how: str) -> None:
    session, key = pushed.person.session, pushed.key
    for house in (pushed.one, pushed.two):
        for path in (pushed.path, pushed.instance, f"{pushed.path}/members"):
            assert house.get(path, session).status_code == 200
            assert house.get(path, key).status_code == 200
    pushed.goes(how)
    for house in (pushed.one, pushed.two):
        for path in (pushed.path, pushed.instance, f"{pushed.path}/members"):
            assert house.get(path, session).status_code == 404
            assert house.get(path, key).status_code == 401
        refused = house.post(f"{pushed.instance}/console-sessions", session)
        assert refused.status_code == 404


def test_consoles_and_urls_end_in_the_cell_within_five_seconds(pushed: Pushed) -> None:
    session, key = pushed.person.session, pushed.key
    console = pushed.opened("console-sessions", session)
    urls = {
        pushed.opened("console-sessions", session)["jti"],
        pushed.opened("credentials/reveal", key)["jti"],
    }
    owners = pushed.opened("console-sessions", pushed.provider.tenant.key)
    cell, instance_id = pushed.two.cell, pushed.instance_id
    held = [{"holder": console["holder"], "kind": "console"}]
    held += [{"holder": pushed.key_id, "kind": "logs"}]
    held += [{"holder": owners["holder"], "kind": "console"}]
    cell.becomes(instance_id, access=held)
    assert max(reconcile.EVERY_S, revocation.URLS_EVERY_S) <= 5
    turn(pushed.two)
    assert cell.ended_urls == set()
    assert (cell.observe(instance_id) or {})["access"] == held
    pushed.goes("deactivated")
    turn(pushed.two)
    assert urls < cell.ended_urls
    assert owners["jti"] not in cell.ended_urls
    assert (cell.observe(instance_id) or {})["access"] == held[2:]


def turn(house: House) -> None:
    """Of a worker: what the schedules have within five seconds."""
    with house.database.write() as db:
        take_turn(db, "reconcile")
        take_turn(db, "access.end_urls")
    house.settle()


@pytest.mark.parametrize("by_key", [False, True])
def test_streams_end(pushed: Pushed, by_key: bool) -> None:
    """Long before they would by themselves; what they look at each time is tested with them."""
    token = pushed.key if by_key else pushed.person.session
    began = time.monotonic()
    path = f"{pushed.path}/events"
    followed = pushed.one.during(lambda: pushed.goes("deactivated"), "GET", path, token)
    assert followed.status_code == 200
    assert time.monotonic() - began < 60
    assert pushed.email not in followed.text.rpartition("org.member.removed.v1")[2]
