"""A stateful machine: whatever is asked of instances in any order, the API agrees with a model."""

from dataclasses import dataclass
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

from contract_tests.api.harness import House, Tenant

# What each verb does to an instance by its status; a status that is not there answers 409.
VERBS = {
    "pause": {"running": "pausing"},
    "resume": {"paused": "resuming"},
    "resize": {"running": "resizing"},
    "delete": dict.fromkeys(
        ["requested", "running", "pausing", "paused", "resuming", "resizing"], "deleting"
    ),
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


@dataclass
class Model:
    """An instance as it should be."""

    name: str
    size: str = "s0"
    next_size: str = "s0"
    status: str = "requested"


class Lifecycle(RuleBasedStateMachine):
    house: House

    def __init__(self) -> None:
        super().__init__()
        self.tenant: Tenant = self.house.tenant()
        self.models: dict[str, Model] = {}

    @precondition(lambda self: len(self.models) < INSTANCES_MAX)
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
    @rule(which=WHICH, verb=st.sampled_from(["pause", "resume"]))
    def pause_or_resume(self, which: int, verb: str) -> None:
        self._act(self._one(which), verb, "POST", f"/actions/{verb}", self.tenant.key)

    @precondition(lambda self: self.models)
    @rule(which=WHICH, verb=st.sampled_from(["delete", "erase"]))
    def delete_or_erase(self, which: int, verb: str) -> None:
        method, path = ("DELETE", "") if verb == "delete" else ("POST", "/actions/erase")
        self._act(self._one(which), verb, method, path, self.tenant.key)

    @precondition(lambda self: self.models)
    @rule(which=WHICH, size=st.sampled_from(["s0", "s1"]))
    def resize(self, which: int, size: str) -> None:
        instance_id = self._one(which)
        model = self.models[instance_id]
        options = {"json": {"size": size}}
        if size == model.size:
            # Nothing is asked, so nothing can be in its way.
            assert self._request("PATCH", instance_id, "", self.tenant.key, options) == 200
            return
        self._act(instance_id, "resize", "PATCH", "", self.tenant.key, options)
        if model.status == "resizing":
            model.next_size = size

    @precondition(lambda self: self.models)
    @rule(which=WHICH, name=st.sampled_from(NAMES))
    def rename(self, which: int, name: str) -> None:
        instance_id = self._one(which)
        model = self.models[instance_id]
        others = [one for key, one in self.models.items() if key != instance_id]
        taken = any(one.name == name and one.status not in LEAVING for one in others)
        options = {"json": {"name": name}}
        status = self._request("PATCH", instance_id, "", self.tenant.key, options)
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
            model.status = SETTLES.get(model.status, model.status)

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

    def _one(self, which: int) -> str:
        return sorted(self.models)[which % len(self.models)]

    def _act(
        self,
        instance_id: str,
        verb: str,
        method: str,
        path: str,
        token: str,
        options: dict[str, Any] | None = None,
    ) -> None:
        model = self.models[instance_id]
        becomes = VERBS[verb].get(model.status)
        status = self._request(method, instance_id, path, token, options or {})
        assert status == (409 if becomes is None else 202), (verb, model, status)
        model.status = becomes or model.status

    def _request(
        self, method: str, instance_id: str, path: str, token: str, options: dict[str, Any]
    ) -> int:
        asked = f"{self.tenant.path}/instances/{instance_id}{path}"
        return self.house.request(method, asked, token, **options).status_code


def _run(house: House, *, examples: int, steps: int) -> None:
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


def test_the_api_agrees_with_the_model(house: House) -> None:
    _run(house, examples=6, steps=20)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_the_api_agrees_with_the_model_at_length(house: House) -> None:
    _run(house, examples=200, steps=50)
