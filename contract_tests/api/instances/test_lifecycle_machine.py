"""A stateful machine: whatever is asked of instances in any order, the API agrees with a model."""

from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import Any

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
from sqlalchemy import delete

from contract_tests.api.harness import House, Tenant
from storage.instances.instances import Instance
from storage.work import Work

# What each verb does to an instance by its status; a status that is not there answers 409.
VERBS = {
    "pause": {"running": "pausing"},
    "resume": {"paused": "resuming"},
    "resize": {"running": "resizing"},
    "delete": dict.fromkeys(
        ["requested", "running", "pausing", "paused", "resuming", "resizing"], "deleting"
    ),
    "undelete": {"deleted": "resuming"},
    "erase": dict.fromkeys(
        [
            *("requested", "running", "pausing", "paused", "resuming", "resizing"),
            *("deleting", "deleted"),
        ],
        "erasing",
    ),
}
SETTLES = {
    "requested": "running",
    "pausing": "paused",
    "resuming": "running",
    "resizing": "running",
    "deleting": "deleted",
    "erasing": "erased",
}
LEAVING = {"deleting", "deleted", "erasing", "erased"}
HIDDEN = {"deleted", "erased"}
NAMES = ["ada", "bob"]
INSTANCES_MAX = 3
WHICH = st.integers(0, INSTANCES_MAX - 1)
# The rarest of all wrong transitions was found on the 50th walk.
WALKS_MAX = 100
# These are refused before, as nothing takes an erasure back.
REFUSED_BEFORE = {"delete": {"erasing", "erased"}}


@dataclass
class Model:
    """An instance as it should be."""

    name: str
    size: str = "s0"
    next_size: str = "s0"
    status: str = "requested"
    ran: bool = False
    # How it was before it was deleted, and is to be after it was undeleted.
    paused: bool = False


class Lifecycle(RuleBasedStateMachine):
    house: House

    def __init__(self) -> None:
        super().__init__()
        self.tenant: Tenant = self.house.tenant()
        self.models: dict[str, Model] = {}
        self.asked: Counter[tuple[str, str]] = Counter()

    @precondition(lambda self: len(self._present()) < INSTANCES_MAX)
    @rule(name=st.sampled_from(NAMES))
    def order(self, name: str) -> None:
        taken = any(one.name == name and one.status not in LEAVING for one in self.models.values())
        path = f"{self.tenant.path}/projects/{self.tenant.project_id}/instances"
        body = {"engine": "duckdb", "size": "s0", "name": name}
        answer = self.house.post(path, self.tenant.key, json=body)
        assert answer.status_code == (409 if taken else 201), answer.text
        if not taken:
            self.models[answer.json()["id"]] = Model(name)

    @precondition(lambda self: self.models)
    @rule(pick=st.integers(0, 2))
    def ask(self, pick: int) -> None:
        """One of what was asked least of an instance in such a status."""
        pairs = sorted(
            ((key, verb) for verb in VERBS for key in sorted(self.models)),
            key=lambda pair: self.asked[self.models[pair[0]].status, pair[1]],
        )
        instance_id, verb = pairs[pick % len(pairs)]
        self.asked[self.models[instance_id].status, verb] += 1
        if verb == "resize":
            self._resize(instance_id)
        elif verb == "undelete":
            self._undelete(instance_id)
        elif verb == "delete":
            self._act(instance_id, verb, "DELETE", "")
        else:
            self._act(instance_id, verb, "POST", f"/actions/{verb}")

    def _resize(self, instance_id: str) -> None:
        model = self.models[instance_id]
        size = "s1" if model.size == "s0" else "s0"
        self._act(instance_id, "resize", "PATCH", "", {"json": {"size": size}})
        if model.status == "resizing" and model.next_size == model.size:
            model.next_size = size

    def _undelete(self, instance_id: str) -> None:
        model = self.models[instance_id]
        taken = self._is_taken(model.name, model)
        if model.status == "deleted" and (taken or not model.ran):
            assert self._request("POST", instance_id, "/actions/undelete", {}) == 409
        else:
            self._act(instance_id, "undelete", "POST", "/actions/undelete")

    @precondition(lambda self: self.models)
    @rule(which=WHICH)
    def ask_for_the_size_it_has(self, which: int) -> None:
        instance_id = self._one(which)
        options = {"json": {"size": self.models[instance_id].size}}
        # Nothing is asked, so nothing can be in its way.
        assert self._request("PATCH", instance_id, "", options) == 200

    @precondition(lambda self: self.models)
    @rule(which=WHICH, name=st.sampled_from(NAMES))
    def rename(self, which: int, name: str) -> None:
        instance_id = self._one(which)
        model = self.models[instance_id]
        taken = self._is_taken(name, model)
        options = {"json": {"name": name}}
        status = self._request("PATCH", instance_id, "", options)
        if name == model.name:
            assert status == 200
        elif model.status in LEAVING or taken:
            assert status == 409
        else:
            assert status == 200
            model.name = name

    @precondition(lambda self: self.models)
    @rule()
    def settle(self) -> None:
        self.house.settle()
        for model in self.models.values():
            if model.status == "resizing":
                model.size = model.next_size
            model.next_size = model.size
            if model.status == "resuming" and model.paused:
                model.status = "pausing"
            model.status = SETTLES.get(model.status, model.status)
            model.ran = model.ran or model.status == "running"

    @invariant()
    def the_list_agrees_newest_first(self) -> None:
        listed = self.house.get(f"{self.tenant.path}/instances", self.tenant.key).json()["items"]
        found = [(one["id"], one["name"], one["status"], one["size"]) for one in listed]
        shown = sorted(self.models, reverse=True)
        assert found == [
            (key, one.name, one.status, one.size)
            for key in shown
            if (one := self.models[key]).status not in HIDDEN
        ]

    def teardown(self) -> None:
        for instance_id, model in self.models.items():
            path = f"{self.tenant.path}/instances/{instance_id}"
            assert self.house.get(path, self.tenant.key).json()["status"] == model.status

    def _is_taken(self, name: str, besides: Model) -> bool:
        others = [one for one in self.models.values() if one is not besides]
        return any(one.name == name and one.status not in LEAVING for one in others)

    def _present(self) -> list[Model]:
        return [one for one in self.models.values() if one.status not in LEAVING]

    def _one(self, which: int) -> str:
        return sorted(self.models)[which % len(self.models)]

    def _act(
        self,
        instance_id: str,
        verb: str,
        method: str,
        path: str,
        options: dict[str, Any] | None = None,
    ) -> None:
        model = self.models[instance_id]
        becomes = VERBS[verb].get(model.status)
        status = self._request(method, instance_id, path, options or {})
        assert status == (409 if becomes is None else 202), (verb, model, status)
        if becomes is not None and verb in {"pause", "resume"}:
            model.paused = verb == "pause"
        model.status = becomes or model.status

    def _request(self, method: str, instance_id: str, path: str, options: dict[str, Any]) -> int:
        asked = f"{self.tenant.path}/instances/{instance_id}{path}"
        return self.house.request(method, asked, self.tenant.key, **options).status_code


def run(house: House, *, examples: int, steps: int) -> None:
    """Raises what Hypothesis finds."""
    machine = type("LifecycleHere", (Lifecycle,), {"house": house})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate, Phase.shrink],
        ),
    )


def walk(house: House, *, steps: int, seed: int = 1) -> None:
    """One long way through the machine; what was asked least comes first, so little is left out."""
    machine = type("LifecycleHere", (Lifecycle,), {"house": house})()
    chance = Random(seed)
    for _ in range(steps):
        step = chance.choices(("order", "ask", "settle", "rename", "same"), (4, 12, 5, 2, 1))[0]
        if step == "order" or not machine.models:
            if len(machine._present()) < INSTANCES_MAX:
                machine.order(name=chance.choice(NAMES))
        elif step == "ask":
            machine.ask(pick=chance.randrange(3))
        elif step == "rename":
            machine.rename(which=chance.randrange(9), name=chance.choice(NAMES))
        elif step == "same":
            machine.ask_for_the_size_it_has(which=chance.randrange(9))
        else:
            machine.settle()
        machine.the_list_agrees_newest_first()
    machine.teardown()


def walk_often(house: House) -> None:
    for seed in range(1, WALKS_MAX + 1):
        walk(house, steps=100, seed=seed)


def test_the_api_agrees_with_the_model(house: House) -> None:
    walk(house, steps=200)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_the_api_agrees_with_the_model_at_length(house: House) -> None:
    run(house, examples=100, steps=100)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("verb", VERBS)
def test_the_machine_finds_a_transition_that_is_wrong(
    house: House, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """Each verb in each status: allowed where it is not to be, and the other way round."""
    right = Instance._move

    def wrong_in(mutated: str) -> Any:
        def move(
            self: Instance, asked: str, allowed: set[str], status: str, hint: str = ""
        ) -> None:
            named = {"resize": "change"}.get(verb, verb)
            right(self, asked, allowed ^ {mutated} if asked == named else allowed, status, hint)

        return move

    statuses = {*SETTLES, "running", "paused", *HIDDEN} - REFUSED_BEFORE.get(verb, set())
    for status in sorted(statuses):
        monkeypatch.setattr(Instance, "_move", wrong_in(status))
        with pytest.raises(AssertionError):
            walk_often(house)
        # What the wrong transition began may never end, and would be found in place of the next.
        with house.database.write() as db:
            db.execute(delete(Work))
