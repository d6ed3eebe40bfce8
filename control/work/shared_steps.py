"""A step that is done for several operations at once, in the turn of the one that runs."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from control.work import queue
from control.work.errors import LeaseLost
from control.work.operation import Operation

Act = Callable[[Sequence[dict[str, Any]]], Sequence[Any]]
"""Given the arguments of operations, the results for them, in the same order."""


def step_for_all(op: Operation, name: str, act: Act, *, limit: int) -> Any:
    """The step's result for `op`; at most `limit` others that wait are noted theirs as well.

    These are of the same kind, as many tries old, and whose `op` is, whose turns they would take
    one after the other.
    """

    def act_for_all() -> Any:
        with op.database.read() as db:
            others = queue.waiting_beside(db, op.held, limit)
        own, *results = act([op.args, *(each.args for each in others)])
        with op.database.write() as db:
            for each, result in zip(others, results, strict=True):
                # Whoever has been given the operation meanwhile does the step for it.
                with contextlib.suppress(LeaseLost):
                    held = queue.Lease(each.seq, each.lease)
                    queue.checkpoint(db, held, steps={**each.steps, name: result})
        return own

    return op.step(name, act_for_all)
