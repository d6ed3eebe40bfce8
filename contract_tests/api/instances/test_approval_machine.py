"""A stateful machine: whatever is asked and decided in any order, approvals agree with a model."""

from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from contract_tests import written
from contract_tests.api.access.team_helpers import put
from contract_tests.api.harness import House
from contract_tests.api.instances.approval_helpers import decide, order, site
from contract_tests.workflows.known import take_turn
from control.policy import quotas

DAY_S = 86_400
TTL_DAYS = 7
WHICH = st.integers(0, 9)


@dataclass
class Model:
    """An order as it should be."""

    asked_on: int
    status: str = "pending"
    told: bool = False
    instance: str | None = None


class Approvals(RuleBasedStateMachine):
    house: House

    def __init__(self) -> None:
        super().__init__()
        self.at = site(self.house)
        tenant = self.at.tenant
        self.operator, _ = self.house.key(tenant.org_id, self.at.operator, "member")
        self.lead, _ = self.house.key(tenant.org_id, self.at.lead, "admin")
        self.models: dict[str, Model] = {}
        self.day = 0
        self.may_order = True

    @rule()
    def ask(self) -> None:
        waiting = sum(model.status == "pending" for model in self.models.values())
        full = waiting >= quotas.APPROVALS_OF_ONE_MAX
        answer = order(self.house, self.at, self.operator, size="f0")
        expected = 403 if not self.may_order else 422 if full else 202
        assert answer.status_code == expected, answer.text
        if expected == 202:
            self.models[answer.json()["id"]] = Model(self.day)

    @precondition(lambda self: self.models)
    @rule(which=WHICH, verb=st.sampled_from(["approve", "deny"]))
    def decide(self, which: int, verb: str) -> None:
        key = sorted(self.models)[which % len(self.models)]
        model, path = self.models[key], f"{self.at.tenant.path}/approvals/{key}"
        answer = decide(self.house, path, verb, self.lead)
        if model.status != "pending" or (verb == "approve" and not self.may_order):
            assert answer.status_code == 409, answer.text
            return
        assert answer.status_code == 200, answer.text
        model.status = {"approve": "approved", "deny": "denied"}[verb]
        model.instance, model.told = answer.json()["instance_id"], True

    @rule(days=st.integers(1, 5))
    def wait(self, days: int) -> None:
        self.house.pass_time(days * DAY_S)
        self.day += days
        for model in self.models.values():
            if model.status == "pending" and self.day - model.asked_on >= TTL_DAYS:
                model.status = "expired"

    @rule()
    def mark(self) -> None:
        with self.house.database.write() as db:
            take_turn(db, "approvals.expire")
        self.house.settle()
        for model in self.models.values():
            model.told = model.told or model.status == "expired"

    @rule()
    def change_the_right_to_order(self) -> None:
        self.may_order = not self.may_order
        role = "operator" if self.may_order else "viewer"
        assert put(self.house, self.at.team, self.at.tenant.key, self.at.operator, role).is_success

    @invariant()
    def they_are_as_they_should_be(self) -> None:
        for token in (self.lead, self.operator):
            listed = self.house.get(f"{self.at.tenant.path}/approvals?status=all&limit=200", token)
            found = {
                one["id"]: (one["status"], one["instance_id"]) for one in listed.json()["items"]
            }
            expected = {key: (one.status, one.instance) for key, one in self.models.items()}
            assert found == expected

    @invariant()
    def each_approved_one_has_its_instance_and_no_other_is_there(self) -> None:
        path = f"{self.at.orders}?limit=200"
        items = self.house.get(path, self.at.tenant.key).json()["items"]
        made = sorted(one["id"] for one in items)
        assert made == sorted(one.instance for one in self.models.values() if one.instance)

    def teardown(self) -> None:
        """Each was told of once, when it was decided or found to have expired."""
        with self.house.database.read() as db:
            told = [
                event.data["approval_id"]
                for event in written.events_of(db, self.at.tenant.org_id)
                if event.type == "approval.decided.v1"
            ]
        assert sorted(told) == sorted(key for key, one in self.models.items() if one.told)


def walk(house: House, *, steps: int, seed: int) -> None:
    machine = type("ApprovalsHere", (Approvals,), {"house": house})()
    chance = Random(seed)
    for _ in range(steps):
        step = chance.choices(("ask", "decide", "wait", "mark", "right"), (6, 8, 2, 2, 1))[0]
        if step == "ask" or not machine.models:
            machine.ask()
        elif step == "decide":
            machine.decide(which=chance.randrange(9), verb=chance.choice(["approve", "deny"]))
        elif step == "wait":
            machine.wait(days=chance.randint(1, 5))
        elif step == "mark":
            machine.mark()
        else:
            machine.change_the_right_to_order()
        machine.they_are_as_they_should_be()
        machine.each_approved_one_has_its_instance_and_no_other_is_there()
    machine.teardown()


@pytest.mark.parametrize("seed", [1, 2])
def test_approvals_agree_with_the_model(house: House, seed: int) -> None:
    walk(house, steps=60, seed=seed)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_approvals_agree_with_the_model_at_length(house: House) -> None:
    run_state_machine_as_test(
        type("ApprovalsHere", (Approvals,), {"house": house}),
        settings=settings(
            max_examples=40,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate, Phase.shrink],
        ),
    )
