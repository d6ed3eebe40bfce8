"""Owns how an error is told: what the client can use of it, and nothing of the machine."""

import re
from pathlib import Path

import duckdb
import structlog

from instance_services.logs import TRACE, before

log = structlog.get_logger()

FAULT = "the engine failed on this statement because of an internal error; it had no effect"
MEMORY = (
    "Out of Memory Error: the statement needs more memory than this instance has; select, group or"
    " sort less at a time, or choose a larger size"
)
TEMPORARY = (
    "Out of Memory Error: the statement needs more memory and temporary storage than this instance"
    " has; select, group or sort less at a time, or choose a larger size"
)
_FAULTS = (duckdb.FatalException, duckdb.InternalException)
_MEMORY = (duckdb.OutOfMemoryException, MemoryError)
_DISK = "max_temp_directory_size"
_LINE = re.compile(r"^LINE (\d+):", re.MULTILINE)
_ADVICE = "Possible solutions:"
_PLACE = re.compile(r"(?:0x[0-9a-fA-F]+|/[\w.-]+)+")


def told(error: Exception, directory: Path, *, rendered: bool) -> str:
    """The text for the client; `rendered` where the statement stands inside one of ours."""
    text = before(str(error), TRACE, _ADVICE).replace(f"{directory}/", "")
    if isinstance(error, _FAULTS):
        first = text.partition("\n")[0]
        log.error("the engine failed because of an internal error", reason=_PLACE.sub("…", first))
        return FAULT
    if isinstance(error, _MEMORY):
        return TEMPORARY if _DISK in text else MEMORY
    if rendered:
        # The statement stands one line lower inside the one that renders it.
        text = _LINE.sub(lambda found: f"LINE {max(1, int(found.group(1)) - 1)}:", text)
    return text or type(error).__name__
