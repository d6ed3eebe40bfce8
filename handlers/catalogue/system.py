"""The service itself: is it well, and what does it offer."""

from datetime import timedelta
from importlib import metadata
from typing import Any, Final

from control.boundary import Call
from control.work import queue, schedules
from control.workflows.catalogue.cells import SKEW_TOLD_S
from specserver import Reply
from storage.catalogue import cells

Check = dict[str, str | None]

_OK: Final[Check] = {"status": "ok", "detail": None}
# Work is begun within a second or two; so late means that no worker runs, or none keeps up.
_LATE: Final = timedelta(seconds=60)
# Schedules come round every half a minute.
_TURNS: Final = timedelta(seconds=90)


def health(call: Call) -> dict[str, Any]:
    """The boundary has asked the database for the time already, and answered 503 without it."""
    checks = {"database": _database(call), "cells": _cells(call), "worker": _worker(call)}
    well = all(check["status"] == "ok" for check in checks.values())
    version = metadata.version("menagerie")
    return {"status": "ok" if well else "degraded", "version": version, "checks": checks}


def description(call: Call) -> Reply:
    return Reply(200, call.exchange.public_document)


def _database(call: Call) -> Check:
    lacking = call.services.database.lacks_space()
    return _OK if lacking is None else _degraded(lacking)


def _cells(call: Call) -> Check:
    known = cells.every(call.db)
    silent = [cell for cell in known if cell.is_silent(call.now)]
    if not known:
        return _degraded("no cell is registered; run `menagerie init` to register this home's cell")
    if len(silent) < len(known):
        skews = [cell.clock_skew_s for cell in known if cell not in silent and cell.clock_skew_s]
        return {"status": "ok", "detail": _clock(max(skews, key=abs, default=0.0))}
    if all(cell.last_seen_at is None for cell in known):
        return _degraded("no cell has reported its engines since it started")
    return _degraded("no cell has reported in the last minute")


def _clock(skew_s: float) -> str | None:
    if abs(skew_s) <= SKEW_TOLD_S:
        return None
    direction = "ahead of" if skew_s > 0 else "behind"
    return (
        f"the clock of a cell's machine is {abs(skew_s):.0f} s {direction} the database's; the "
        "cell corrects for it, but set the clock: timedatectl set-ntp true"
    )


def _worker(call: Call) -> Check:
    """Whoever works keeps the schedules too, so turns that nobody began tell that nobody works."""
    if queue.is_late(call.db, call.now - _LATE):
        return _degraded("work has been waiting for more than a minute")
    if not schedules.are_kept(call.db, call.now - _TURNS):
        return _degraded("no worker is running; start one with `menagerie worker`")
    return _OK


def _degraded(detail: str) -> Check:
    return {"status": "degraded", "detail": detail}
