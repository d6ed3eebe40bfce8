"""Migrations: the schema's revisions, run by Alembic without any file outside the package."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from sqlalchemy import Engine

_LOCK: Final = 7_231_940_116
"""The PostgreSQL advisory lock under which replicas that start together take turns."""


def upgrade(engine: Engine, revision: str = "head") -> None:
    """Run what is missing up to `revision`: all of it, or nothing."""
    _in_transaction(engine, lambda config: command.upgrade(config, revision))


def downgrade(engine: Engine, revision: str) -> None:
    """Take revisions back to `revision` (`base` for an empty database)."""
    _in_transaction(engine, lambda config: command.downgrade(config, revision))


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.set_main_option("path_separator", "os")
    return config


def _in_transaction(engine: Engine, act: Callable[[Config], None]) -> None:
    config = _config()
    with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
        config.attributes["connection"] = connection
        act(config)
