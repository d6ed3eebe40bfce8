"""API keys that are tried at everything are suspended; those that err again and again are not."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from contract_tests import written
from contract_tests.boundary.small_api import MakeSmallApi, Person, SmallApi
from control.boundary import identity, probing
from control.boundary.probing import OPERATIONS_MAX, WITHIN_S, ProbingWatch
from specserver import Exchange, Forbidden
from storage.access import memberships
from storage.events import audit, events
from storage.events.audit import AuditFilter


class Watched:
    """A key that is refused at operations, by a clock of its own."""

    def __init__(self, api: SmallApi) -> None:
        self.api, self.time = api, 0.0
        self.owner: Person = api.person()
        self.org = api.org((self.owner, "owner"))
        self.secret = api.key(self.org, self.owner, "member")
        self.watch = ProbingWatch(api.services, clock=lambda: self.time)

    def refuse(self, operation: str, *, code: str = "permission_missing", by: Any = ...) -> None:
        with self.api.database.read() as db:
            key = written.key_with(db, identity.token_sha256(self.secret))
        caller = SimpleNamespace(key=key) if by is ... else by
        about = SimpleNamespace(
            principal=caller, operation=SimpleNamespace(id=operation), request_id="req_1"
        )
        self.watch.note(cast("Exchange", about), Forbidden("no", code=code))

    @property
    def is_suspended(self) -> bool:
        with self.api.database.read() as db:
            key = written.key_with(db, identity.token_sha256(self.secret))
            return key.suspended_at is not None


@pytest.fixture
def watched(make_api: MakeSmallApi) -> Watched:
    return Watched(make_api(rate_limits=True))


def test_a_key_that_is_tried_at_many_operations_is_suspended_and_its_owners_told(
    watched: Watched,
) -> None:
    for n in range(OPERATIONS_MAX - 1):
        watched.refuse(f"operation.{n}")
    assert not watched.is_suspended
    watched.refuse("operation.last")
    assert watched.is_suspended
    with watched.api.database.read() as db:
        (entry,) = audit.page(db, watched.org, AuditFilter(), limit=5, after=None).items
        assert (entry.action, entry.detail["reason"]) == ("api_key.suspend", "probing")
        event, alerted = events.after(db, watched.org, 0, scope=None, limit=5)
        assert (event.type, event.data["reason"]) == ("api_key.suspended.v1", "probing")
        assert alerted.data["kind"] == "api_key_suspended"
        assert memberships.count(db, watched.org, "owner") == 1
    # Once for all: what is refused after that is nothing new.
    for n in range(OPERATIONS_MAX + 1):
        watched.refuse(f"operation.{n}")
    with watched.api.database.read() as db:
        assert len(events.after(db, watched.org, 0, scope=None, limit=5)) == 2


def test_a_program_that_errs_again_and_again_is_left_alone(watched: Watched) -> None:
    for _ in range(10 * OPERATIONS_MAX):
        watched.refuse("instances.create")
    assert not watched.is_suspended


def test_what_is_long_ago_counts_no_more(watched: Watched) -> None:
    for n in range(3 * OPERATIONS_MAX):
        watched.time += WITHIN_S / (OPERATIONS_MAX - 2)
        watched.refuse(f"operation.{n}")
    assert not watched.is_suspended


def test_only_missing_permissions_of_keys_count(watched: Watched) -> None:
    for n in range(2 * OPERATIONS_MAX):
        watched.refuse(f"operation.{n}", code="mfa_required")
        watched.refuse(f"operation.{n}", by=None)
        watched.refuse(f"operation.{n}", by=SimpleNamespace(key=None))
    assert not watched.is_suspended


def test_so_many_keys_are_watched_and_no_more(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "_KEYS_MAX", 2)
    for n in range(OPERATIONS_MAX - 1):
        watched.refuse(f"operation.{n}")
    for each in ("key_a", "key_b"):
        watched.refuse("operation.0", by=SimpleNamespace(key=SimpleNamespace(id=each)))
    watched.refuse("operation.last")
    assert not watched.is_suspended


def test_where_nothing_is_limited_nothing_is_suspended(make_api: MakeSmallApi) -> None:
    watched = Watched(make_api())
    for n in range(2 * OPERATIONS_MAX):
        watched.refuse(f"operation.{n}")
    assert not watched.is_suspended


def test_requests_that_are_refused_are_watched(
    make_api: MakeSmallApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "OPERATIONS_MAX", 1)
    api = make_api(rate_limits=True)
    person = api.person()
    org = api.org((person, "owner"))
    key = api.key(org, person, "owner", [])
    assert api.get(f"/v1/orgs/{org}/projects", key).json()["code"] == "permission_missing"
    assert api.get(f"/v1/orgs/{org}/projects", key).json()["code"] == "key_suspended"
