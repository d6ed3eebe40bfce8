"""The service itself: is it well, and what does it offer."""

from datetime import timedelta
from importlib import metadata
from typing import Any, Final

from sqlalchemy import exists, select

from control.boundary import Call
from handlers.catalogue_views import SILENT_AFTER
from specserver import Reply
from storage import cells
from storage.work import Work

Check = dict[str, str | None]

_OK: Final[Check] = {"status": "ok", "detail": None}
# Work is begun within a second or two; so late means that no worker runs, or none keeps up.
_LATE: Final = timedelta(seconds=60)


def health(call: Call) -> dict[str, Any]:
    """The boundary has asked the database for the time already, and answered 503 without it."""
    checks = {"database": _OK, "cells": _cells(call), "worker": _worker(call)}
    well = all(check["status"] == "ok" for check in checks.values())
    version = metadata.version("menagerie")
    return {"status": "ok" if well else "degraded", "version": version, "checks": checks}


def description(call: Call) -> Reply:
    return Reply(200, call.exchange.public_document)


def _cells(call: Call) -> Check:
    seen = [cell.last_seen_at for cell in cells.every(call.db) if cell.last_seen_at]
    if not seen:
        return _degraded("no cell has been heard of yet")
    if max(seen) + SILENT_AFTER < call.now:
        return _degraded("no cell was heard of in the last minute")
    return _OK


def _worker(call: Call) -> Check:
    overdue = exists().where(Work.due < call.now - _LATE)
    if call.db.scalar(select(overdue)):
        return _degraded("work waits for more than a minute")
    return _OK


def _degraded(detail: str) -> Check:
    return {"status": "degraded", "detail": detail}
