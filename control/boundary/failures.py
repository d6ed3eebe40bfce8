"""What storage and cells raise, as the problems callers read."""

from sqlalchemy.exc import DataError

from control.boundary.callers import NOT_FOUND
from control.cells.client import CellUnavailable
from control.cells.queues import QueueRefused
from specserver import Conflict, InternalError, Invalid, NotFound, Problem, Unavailable
from storage import errors as storage_errors

RETRY_AFTER_S = 2


EXPECTED = (storage_errors.StorageError, DataError, CellUnavailable, QueueRefused)


def as_problem(
    error: storage_errors.StorageError | DataError | CellUnavailable | QueueRefused,
) -> Problem:
    """Every absence reads the same, so that another org's record is not told from none."""
    if isinstance(error, DataError):
        # As PostgreSQL says of a text with a NUL in it, or of a number that is too large.
        return Invalid(
            "the request contains a value that cannot be stored", code="value_unstorable"
        )
    if isinstance(error, QueueRefused):
        return Problem(error.status, error.detail, code=error.code, errors=error.errors)
    if isinstance(error, storage_errors.RecordNotFound):
        return NotFound(NOT_FOUND)
    if isinstance(error, storage_errors.StateConflict):
        return Conflict(error.detail)
    if isinstance(error, storage_errors.StorageUnavailable | CellUnavailable):
        return Unavailable(error.detail, headers={"Retry-After": str(RETRY_AFTER_S)})
    return InternalError()
