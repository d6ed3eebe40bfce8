"""Keys, roles, scopes and members change in any order: rights follow at once (a model decides)."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from contract_tests.boundary.document import PERMISSIONS, path_of
from contract_tests.boundary.small_api import Person, SmallApi
from contract_tests.databases import Databases
from control.policy.permissions import ROLES

roles = st.sampled_from(sorted(ROLES))
scopes = st.none() | st.sets(st.sampled_from(PERMISSIONS), max_size=6).map(sorted)


class Rights(RuleBasedStateMachine):
    """The model: who has which role, and what each key was made with."""

    url = ""
    people: Bundle[Person] = Bundle("people")
    keys: Bundle[str] = Bundle("keys")

    def __init__(self) -> None:
        super().__init__()
        self.api = SmallApi(self.url)
        self.roles: dict[str, str] = {}
        self.made: dict[str, tuple[Person, str, list[str] | None]] = {}
        self.dead: set[str] = set()
        self.suspended: set[str] = set()

    @initialize(target=people)
    def found(self) -> Any:
        self.org = self.api.org()
        members = [self.api.person() for _ in range(3)]
        for person in members:
            self.api.set_role(self.org, person, "owner")
            self.roles[person.id] = "owner"
            # It lasts, so that whatever becomes of its owner becomes of a key.
            self.make_key_of(person, "owner", None)
        return multiple(*members)

    @rule(person=people)
    def demote(self, person: Person) -> None:
        self.give_role(person, "auditor")

    @rule(person=people, role=roles)
    def give_role(self, person: Person, role: str) -> None:
        """And at once their keys are asked for what only the one, or the other, role holds."""
        before = ROLES[self.roles.get(person.id, role)]
        self.api.set_role(self.org, person, role)
        self.roles[person.id] = role
        for differing in (before - ROLES[role], ROLES[role] - before):
            for permission in sorted(differing)[:1]:
                self.try_everyone(permission)

    @rule(person=people)
    def remove(self, person: Person) -> None:
        if person.id in self.roles:
            self.api.set_role(self.org, person, None)
            del self.roles[person.id]

    @rule(target=keys, person=people, role=roles, scopes=scopes)
    def make_key(self, person: Person, role: str, scopes: list[str] | None) -> str:
        return self.make_key_of(person, role, scopes)

    def make_key_of(self, person: Person, role: str, scopes: list[str] | None) -> str:
        key = self.api.key(self.org, person, role, scopes)
        self.made[key] = (person, role, scopes)
        return key

    @rule(key=consumes(keys))
    def revoke(self, key: str) -> None:
        self.api.change_key(key, revoked_at=self.api.now())
        self.dead.add(key)

    @rule(key=keys)
    def suspend(self, key: str) -> None:
        self.api.change_key(key, suspended_at=self.api.now())
        self.suspended.add(key)

    @rule(key=keys)
    def lift(self, key: str) -> None:
        self.api.change_key(key, suspended_at=None)
        self.suspended.discard(key)

    @rule(permission=st.sampled_from(PERMISSIONS))
    def try_one(self, permission: str) -> None:
        self.try_everyone(permission)

    def try_everyone(self, permission: str) -> None:
        path = path_of(permission).format(org_id=self.org)
        keys = list(self.made)
        answers = self.api.together(("GET", path, key, {}) for key in keys)
        for key, answer in zip(keys, answers, strict=True):
            assert answer.status_code == self.expected(key, permission), (key, permission)

    @invariant()
    def a_dead_key_stays_dead(self) -> None:
        for key in list(self.dead)[-2:]:
            assert self.api.get("/v1/me", key).status_code == 401

    def expected(self, key: str, permission: str) -> int:
        person, key_role, scopes = self.made[key]
        role = self.roles.get(person.id)
        if key in self.dead or role is None:
            return 401
        if key in self.suspended:
            return 403
        cut = scopes is None or permission in scopes
        return 200 if permission in ROLES[role] & ROLES[key_role] and cut else 403

    def teardown(self) -> None:
        self.api.close()


def run(databases: Databases, dialect: str, examples: int, steps: int) -> None:
    machine = type("Rights", (Rights,), {"url": databases.migrated(dialect)})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples, stateful_step_count=steps, deadline=None)
    )


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_rights_follow_the_model(databases: Databases, dialect: str) -> None:
    run(databases, dialect, examples=6, steps=25)


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_rights_follow_the_model_at_length(databases: Databases, dialect: str) -> None:
    run(databases, dialect, examples=200, steps=50)
