"""Faults of one record are kept from others: what a cell says of it may not be writable."""

from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from control.cells.client import CellUnavailable
from control.work import Again, LeaseLost
from storage.errors import StorageUnavailable

REASON_MAX = 300
_CONCERNS_ALL = (Again, CellUnavailable, LeaseLost, StorageUnavailable)
_log = structlog.get_logger("reconcile")


@contextmanager
def isolated(instance_id: str, **named: str) -> Iterator[None]:
    """Open the transaction within: after a statement that failed PostgreSQL takes no other in it.

    What concerns all records alike is raised.
    """
    try:
        yield
    except _CONCERNS_ALL:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, it is of this record
        # Of the database's errors the first cause, which does not repeat what was to be written.
        reason = repr(getattr(error, "orig", None) or error)[:REASON_MAX]
        _log.warning("record left as it was", instance_id=instance_id, reason=reason, **named)
