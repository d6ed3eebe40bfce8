"""Statements on an instance, whatever its engine: one Session for each protocol.

    from clients.sessions import open_session

Each engine's driver is imported when its session is opened, and not before.
"""

import importlib
from typing import Final

from clients import errors
from clients.credentials import Credential
from clients.sessions.session import ROWS_MAX, Result, Session
from clients.transport import Authorities

__all__ = ["ENGINES", "ROWS_MAX", "Result", "Session", "open_session"]

# Engine: the module that holds its session, and the session's name there.
ENGINES: Final = {
    "duckdb": ("https", "HttpsSession"),
    "postgres": ("postgres", "PostgresSession"),
    "timescaledb": ("postgres", "PostgresSession"),
    "mysql": ("mysql", "MysqlSession"),
    "mariadb": ("mysql", "MysqlSession"),
    "redis": ("resp", "RespSession"),
    "valkey": ("resp", "RespSession"),
}


def open_session(engine: str, credential: Credential, authorities: Authorities) -> Session:
    """Answer a session; it connects at its first statement, and anew where it was cut off."""
    if engine not in ENGINES:
        raise errors.ConfigurationError(f"this client does not support {engine}")
    module, name = ENGINES[engine]
    kind = getattr(importlib.import_module(f"clients.sessions.{module}"), name)
    session: Session = kind(credential, authorities)
    return session
