"""Runs one claimed operation: to its end, to its next try, or out by its deadline."""

import random
from datetime import timedelta
from typing import Final

import structlog

from control.work import queue, registry
from control.work.errors import Again, GiveUp, LeaseLost
from control.work.operation import Operation
from storage.database import now
from storage.work import Work

BACK_OFF_FIRST_S: Final = 0.5
BACK_OFF_MAX_S: Final = 30.0
_log = structlog.get_logger("work")


def back_off_s(attempts: int) -> float:
    """Doubles with every failure up to the maximum; the jitter keeps a herd from returning."""
    whole: float = min(BACK_OFF_FIRST_S * 2 ** min(attempts, 16), BACK_OFF_MAX_S)
    return whole * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing


def run(operation: Operation, work: Work) -> None:
    """Run what was claimed. Raises only what the database raises when it cannot be written."""
    found = registry.find(work.kind)
    log = _log.bind(operation=operation.id, kind=work.kind, lane=work.lane, lease=work.lease)
    try:
        if _is_overdue(operation, work):
            raise GiveUp(_overdue_reason(work))  # noqa: TRY301 - one way out for both kinds
        found.run(operation)
        with operation.database.write() as db:
            queue.end(db, operation.hold, "done")
        log.debug("operation done")
    except LeaseLost:
        log.warning("operation lost its lease")
    except Again as wait:
        queue.postpone(operation.database, operation.hold, wait.after_s)
    except GiveUp as final:
        _give_up(operation, found, final.reason)
        log.warning("operation failed", reason=final.reason)
    except Exception as error:
        wait_s = back_off_s(work.attempts)
        log.warning(
            "step failed",
            attempts=work.attempts + 1,
            retry_s=wait_s,
            reason=_in_words(error),
            exc_info=None if hasattr(error, "detail") else error,
        )
        queue.postpone(
            operation.database,
            operation.hold,
            wait_s,
            attempts=work.attempts + 1,
            error=_in_words(error),
        )


def _is_overdue(operation: Operation, work: Work) -> bool:
    with operation.database.read() as db:
        return work.deadline is not None and now(db) > work.deadline


def _overdue_reason(work: Work) -> str:
    assert work.due is not None
    assert work.deadline is not None
    last = f"; the last answer was: {work.error}" if work.error else ""
    limit = timedelta(seconds=registry.find(work.kind).deadline_s)
    return f"it did not finish within {limit}{last}"


def _give_up(operation: Operation, found: registry.Workflow, reason: str) -> None:
    with operation.database.write() as db:
        queue.end(db, operation.hold, "failed", reason)
        if found.on_failure is not None:
            found.on_failure(operation, db, reason)


def _in_words(error: Exception) -> str:
    """What an owner may read of it: our own sentences, and of anything else only its kind."""
    sentence = getattr(error, "detail", None)
    return sentence if isinstance(sentence, str) else f"an internal error ({type(error).__name__})"
