"""How log lines look: structlog for our own and for the libraries', secrets taken out of both."""

import logging
import re
import sys
from typing import Any

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from gateway.log_lines import escape, write_standard_logging

# API keys, session tokens, bearer and basic credentials, and one-time tokens in paths.
_SECRETS = re.compile(
    r"\b(mk_live_|ms_|mi_|mp_|mv_)[0-9A-Za-z]{8,}"
    r"|(?<=Bearer )[^\s\"']+|(?<=Basic )[^\s\"']+"
    r"|(?<=/reveal/)[^\s\"'/?]+|(?<=/rotate/)[^\s\"'/?]+|(?<=/logs/)[^\s\"'/?]{60,}"
    # A token however it is encoded, and not the id of an invite.
    r"|(?<=/invites/)(?!inv_)[^\s\"'/?]+"
    r"|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"
)
_SECRET_NAMES = frozenset({"password", "secret", "token", "authorization", "api_key", "key_secret"})


def redact(text: str) -> str:
    """Replace everything in `text` that has the form of a secret."""
    return _SECRETS.sub("[redacted]", text)


def _without_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    return {
        name: "[redacted]" if name in _SECRET_NAMES else _clean(value)
        for name, value in event.items()
    }


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {
            name: "[redacted]" if name in _SECRET_NAMES else _clean(one)
            for name, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [_clean(one) for one in value]
    return value


def configure(log_format: str = "text", level: str = "info", *, role: str | None = None) -> None:
    """Send every log line of this process to standard error, as `text` or `json`."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _without_secrets,
        escape,
    ]
    last: Processor = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    write_standard_logging(shared, last, level.upper())
    # Libraries speak up only when something is wrong; request lines are our own.
    for name in ("uvicorn", "uvicorn.access", "httpx", "httpcore", "alembic", "connexion"):
        logging.getLogger(name).setLevel(logging.WARNING)
        logging.getLogger(name).handlers[:] = []
        logging.getLogger(name).propagate = True
    if role:
        structlog.contextvars.bind_contextvars(role=role)
