"""The picture of docs/cell.md is that of the code, and one class alone changes a state."""

import ast
import copy
import inspect
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from cell.instances.records import InstanceRecord
from cell.instances.state import InstanceState
from cell.specification import Size, Spec
from contract_tests.habits.test_architecture import Transition, drawn_life
from contract_tests.habits.test_sizes import FILES, ROOT, names, parsed
from specserver import Conflict

PAGE = (ROOT / "docs" / "cell.md").read_text()
OWNER = ROOT / "cell" / "instances" / "state.py"
SPEC = Spec("duckdb", "1", Size("f0", 0.25, 2**28, 2**30, 20), "x.local", None, None, 0.0)
NEW = InstanceState(InstanceRecord("inst_x", 1, SPEC, "running", None, 0.0))
# How an instance came to be what it is.
COMES_BY: dict[str, tuple[str, ...]] = {
    "provisioning": (),
    "running": ("engine_started", "became_usable"),
    "failed": ("start_failed",),
    "paused": ("pause", "engine_ended"),
    "stopped": ("delete", "engine_ended"),
    "erased": ("erase", "engine_ended"),
}
ARGUMENTS: dict[str, Any] = {
    "spec": replace(SPEC, engine_version="2"),
    "process": object(),
    "memory_kills": 0,
    "reason": "it exited",
    "failures_max": 1,
    "verb": "pause",
    "wanted": True,
    "lost": {"db.example.com"},
    "further": {"db.example.com"},
    "domains": {"db.example.com"},
}
ATTRIBUTES = {name for name in vars(NEW) if name.startswith("_")}


def call(state: InstanceState, verb: str) -> None:
    method = getattr(state, verb)
    given = {name: ARGUMENTS[name] for name in inspect.signature(method).parameters}
    # A question, which says nothing of a change.
    if verb != "why_ended":
        method(**given)


def transitions() -> Iterator[Transition]:
    methods = [name for name, _ in inspect.getmembers(InstanceState, inspect.isfunction)]
    for status, verbs in COMES_BY.items():
        for verb in (name for name in methods if not name.startswith("_")):
            state = copy.copy(NEW)
            for former in verbs:
                call(state, former)
            assert state.status == status
            try:
                call(state, verb)
            except Conflict:
                continue
            if state.status != status:
                yield status, state.status, verb


def test_the_state_of_an_instance_is_drawn_as_it_is() -> None:
    statuses, drawn = drawn_life(PAGE)
    assert statuses == COMES_BY.keys()
    assert drawn == set(transitions())


def test_what_is_erased_stays_so() -> None:
    assert not [verb for status, _, verb in transitions() if status == "erased"]


@pytest.mark.parametrize("name", ["record", "process", "usable", "failed", "reason", "status"])
def test_nobody_else_can_write_a_state(name: str) -> None:
    with pytest.raises(AttributeError, match="no setter"):
        setattr(copy.copy(NEW), name, None)
    with pytest.raises(AttributeError):
        NEW.record.desired = "paused"  # type: ignore[misc] # frozen


def test_no_other_class_writes_it_from_within() -> None:
    """Not one that inherits it, either."""
    wrong = []
    for path in FILES:
        if ROOT / "cell" not in path.parents or path == OWNER:
            continue
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef) and _inherits(node):
                wrong += [f"{names(path)}: {name}" for name in _written(node) & ATTRIBUTES]
    assert not wrong


def _inherits(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id == "InstanceState" for base in node.bases)


def _written(node: ast.ClassDef) -> set[str]:
    found = (each for each in ast.walk(node) if isinstance(each, ast.Attribute))
    return {each.attr for each in found if isinstance(each.ctx, ast.Store)}
