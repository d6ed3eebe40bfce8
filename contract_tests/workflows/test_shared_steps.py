"""A step done for several operations: for those of one sharer that still wait, and no others."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select

from contract_tests.workflows.test_work import Bench, bench, claim
from control.work import Operation
from control.work.shared_steps import step_for_all
from storage.work import Work

__all__ = ["bench"]


def steps(bench: Bench) -> dict[str, dict[str, Any]]:
    with bench.stage.database.read() as db:
        return {work.args["name"]: work.steps for work in db.scalars(select(Work))}


def test_it_is_noted_for_those_that_still_wait(bench: Bench) -> None:
    """Whoever was given one meanwhile does the step for it."""
    for name in ("own", "taken", "beside"):
        bench.start(name, name, org_id="org_a")
    bench.start("later", "later", org_id="org_a", after_s=50)
    bench.start("of another", "other", org_id="org_b")
    work = claim(bench.stage.database)
    assert work is not None

    def act(all_args: Sequence[dict[str, Any]]) -> list[str]:
        assert claim(bench.stage.database) is not None
        return [f"of {args['name']}" for args in all_args]

    assert step_for_all(Operation(work, bench.stage.services), "look", act, limit=9) == "of own"
    assert steps(bench) == {
        "own": {"look": "of own"},
        "taken": {},
        "beside": {"look": "of beside"},
        "later": {},
        "of another": {},
    }


def test_it_is_done_for_so_many_at_once(bench: Bench) -> None:
    for name in ("own", "first", "second", "third"):
        bench.start(name, name, org_id="org_a")
    work = claim(bench.stage.database)
    assert work is not None
    operation = Operation(work, bench.stage.services)
    step_for_all(operation, "look", lambda all_args: list(range(len(all_args))), limit=2)
    assert steps(bench) == {
        "own": {"look": 0},
        "first": {"look": 1},
        "second": {"look": 2},
        "third": {},
    }
