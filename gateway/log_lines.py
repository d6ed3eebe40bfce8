"""How a cell or a gateway writes its log lines where it runs alone."""

import logging
import sys
from typing import Any

import structlog

_EXCEPTION = "exception"
# Of each text in a line; a traceback has its own end and beginning.
_TEXT_MAX = 4_000
_EXCEPTION_MAX = 20_000


def escape(_logger: Any, _method: str, event: structlog.typing.EventDict) -> dict[str, Any]:
    """For structlog: a line of the log is one line, whatever those who are logged have sent.

    A traceback has more, each of them indented, so that none looks like a line of its own.
    """
    return {escaped(name): _escaped(name, value) for name, value in event.items()}


def cut(text: str, most: int) -> str:
    """The beginning of a text, and how long it was: others choose what it holds."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"


def _middle_cut(text: str) -> str:
    """Of a traceback, where it began and what it ended in."""
    if len(text) <= _EXCEPTION_MAX:
        return text
    half = _EXCEPTION_MAX // 2
    return f"{text[:half]}…\n… ({len(text)} characters)\n…{text[-half:]}"


def escaped(text: str) -> str:
    """Control characters as Python writes them, and what a reader would not see."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def _escaped(name: str, value: Any) -> Any:
    if name.startswith("_"):  # structlog's own, which are not written
        return value
    if name == _EXCEPTION and isinstance(value, str):
        return "\n    ".join(escaped(line) for line in _middle_cut(value).split("\n"))
    if isinstance(value, str):
        return escaped(cut(value, _TEXT_MAX))
    if isinstance(value, dict):
        return {escaped(str(key)): _escaped("", each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_escaped("", each) for each in value]
    return value


def configure(log_format: str | None, log_level: str) -> None:
    """Write to standard error; None leaves structlog as whoever started this process set it."""
    if log_format is None:
        return
    renderer: structlog.types.Processor = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    )
    level = logging.getLevelNamesMapping()[log_level.upper()]
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        escape,
    ]
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )
    # Libraries speak up only when something is wrong.
    write_standard_logging(shared, renderer, logging.WARNING)


def write_standard_logging(
    shared: list[structlog.types.Processor], renderer: structlog.types.Processor, level: int | str
) -> None:
    """What libraries log goes to standard error too, and looks as our own lines do."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
