"""Owns the log of a process, which its owner may read: nothing of the machine is in it."""

import logging
import re
import sys
import traceback
from types import TracebackType
from typing import Any

import structlog
from structlog.typing import EventDict

TRACE = "Stack Trace:"
"""What an engine's error says before its own stack."""
# Of a path of two parts or more, the last tells enough.
_PATH = re.compile(r"(?<![\w:/])(?:/[\w.+@-]+)+/([\w.+@-]+)")
_EXCEPTION = re.compile(r"^[\w.]+: .*", re.MULTILINE)
# Of each text in a line, whatever those who are logged have sent.
_TEXT_MAX = 4_000
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{4,}\b")


def before(text: str, *marks: str) -> str:
    """What stands before the first of these, without blanks at its end.

    An error quotes what it is about, which may be a megabyte of blanks.
    """
    found = [at for mark in marks if (at := text.find(mark)) >= 0]
    return text[: min(found)].rstrip() if found else text


def set_up(level: str) -> None:
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _without_places,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    sys.excepthook = _last_words
    logging.basicConfig(handlers=[_Libraries()], level=logging.WARNING, force=True)


def cleaned(text: str) -> str:
    """Without stack traces of the engine, folders and addresses."""
    return _ADDRESS.sub("…", _PATH.sub(r"\1", before(text, TRACE)))


def _without_places(_logger: Any, _method: str, event: EventDict) -> EventDict:
    return {
        name: cleaned(value)[:_TEXT_MAX] if isinstance(value, str) else value
        for name, value in event.items()
    }


def _last_words(
    _kind: type[BaseException], error: BaseException, _trace: TracebackType | None
) -> None:
    text = "".join(traceback.format_exception(error))
    structlog.get_logger().error("the process ends with an error", exception=text)


class _Libraries(logging.Handler):
    """What libraries say, in the same form and as short: of an exception its last line."""

    def emit(self, record: logging.LogRecord) -> None:
        said = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            said = f"{said} {record.exc_info[1]!r}"
        elif said.startswith("Traceback"):
            said = next(iter(_EXCEPTION.findall(cleaned(said))[::-1]), "an error")
        structlog.get_logger().log(record.levelno, said, logger=record.name)
