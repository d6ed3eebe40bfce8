"""Runs one claimed operation: to its end, to its next try, or out by its deadline."""

import random
import time
from typing import Final

import structlog

from control.work import queue
from control.work.errors import Again, GiveUp, LeaseLost
from control.work.operation import Operation
from control.work.workflow import Workflow
from specserver import tracing
from specserver.instruments import CounterInstrument, Duration
from storage.work import Work

BACK_OFF_FIRST_S: Final = 0.5
BACK_OFF_MAX_S: Final = 30.0
SECONDS_MAX: Final = 120
"""Longer times are told in minutes."""
ENDED: Final = CounterInstrument(
    "menagerie_work_turns",
    "Turns of operations that workers took, by what became of them: done, failed, retried after an"
    " error, postponed, or lost to another worker.",
    ("workflow", "outcome"),
)
TURNS: Final = Duration(
    "menagerie_work_turn_duration_seconds", "How long turns of operations took.", ("workflow",)
)
_log = structlog.get_logger("work")


def back_off_s(attempts: int, at_most_s: float = BACK_OFF_MAX_S) -> float:
    """Doubles with every failure up to the maximum; the jitter keeps a herd from returning."""
    whole: float = min(BACK_OFF_FIRST_S * 2 ** min(attempts, 16), at_most_s)
    return whole * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing


def run(operation: Operation, claim: queue.Claim, found: Workflow) -> None:
    """Run what was claimed. Raises only what the database raises when it cannot be written."""
    work = claim.work
    began, parent = time.perf_counter(), work.args.get(tracing.HEADER)
    with tracing.span(work.kind, "consumer", parent):
        outcome = _outcome(operation, claim, found)
    ENDED.add(work.kind, outcome)
    TURNS.took(time.perf_counter() - began, work.kind)


def _outcome(operation: Operation, claim: queue.Claim, found: Workflow) -> str:
    """Runs it, and tells what became of it."""
    work = claim.work
    log = _log.bind(operation=operation.id, kind=work.kind, lane=work.lane, lease=work.lease)
    try:
        try:
            if claim.overdue:
                raise GiveUp(_overdue_reason(work, found.deadline_s))  # noqa: TRY301 - one way out for both
            found.run(operation)
            with operation.database.write() as db:
                queue.end(db, operation.held, "done")
            log.debug("operation done")
        except GiveUp as final:
            _give_up(operation, found, final.reason)
            log.warning("operation failed", reason=final.reason)
            return "failed"
    except LeaseLost:
        log.warning("operation lost its lease")
        return "lost"
    except Again as wait:
        queue.postpone(operation.database, operation.held, wait.after_s)
        return "postponed"
    except Exception as error:
        # Whoever is outside of the installation may want to be asked less often.
        wait_s = back_off_s(work.attempts, getattr(error, "retry_max_s", BACK_OFF_MAX_S))
        log.warning(
            "step failed",
            attempts=work.attempts + 1,
            retry_s=wait_s,
            reason=_in_words(error),
            exc_info=None if hasattr(error, "detail") else error,
        )
        queue.postpone(
            operation.database,
            operation.held,
            wait_s,
            attempts=work.attempts + 1,
            error=_in_words(error),
        )
        return "retried"
    return "done"


def _overdue_reason(work: Work, limit_s: float) -> str:
    last = f"; the last error was: {work.error}" if work.error else ""
    limit = f"{limit_s:.0f} seconds" if limit_s < SECONDS_MAX else f"{limit_s / 60:.0f} minutes"
    return f"it did not finish within {limit}{last}"


def _give_up(operation: Operation, found: Workflow, reason: str) -> None:
    with operation.database.write() as db:
        queue.end(db, operation.held, "failed", reason)
        if found.on_failure is not None:
            found.on_failure(operation, db, reason)


def _in_words(error: Exception) -> str:
    """What an owner may read of it: our own sentences, and of anything else only its kind."""
    sentence = getattr(error, "detail", None)
    return sentence if isinstance(sentence, str) else f"an internal error ({type(error).__name__})"
