"""Owns the connection: how the database is opened, locked down and closed."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb


@dataclass(frozen=True)
class EngineLimits:
    """What the size of the instance allows; None leaves the engine's own default."""

    memory_bytes: int | None = None
    threads: int | None = None
    temp_bytes: int | None = None
    storage_bytes: int | None = None


Configuration = dict[str, str | bool | int | float | list[str]]


def configuration(temp_directory: Path, limits: EngineLimits) -> Configuration:
    """What an engine is opened with; files and settings are not closed yet."""
    nowhere = str(temp_directory / "none")
    config: Configuration = {
        "temp_directory": str(temp_directory),
        "allow_community_extensions": "false",
        "allow_persistent_secrets": "false",
        "allow_unsigned_extensions": "false",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "extension_directory": nowhere,
        "home_directory": nowhere,
        # Or a table's name could be that of a variable of this program.
        "python_enable_replacements": "false",
    }
    if limits.memory_bytes is not None:
        config["memory_limit"] = f"{limits.memory_bytes}B"
    if limits.threads is not None:
        config["threads"] = str(limits.threads)
    if limits.temp_bytes is not None:
        config["max_temp_directory_size"] = f"{limits.temp_bytes}B"
    return config


def open_database(path: Path, temp_directory: Path, limits: EngineLimits) -> Any:
    """A connection whose settings can no longer be changed by what runs over it."""
    for spilled in temp_directory.glob("duckdb_temp_*"):
        # Of a process that was killed; nobody else writes here.
        spilled.unlink(missing_ok=True)
    connection = duckdb.connect(str(path), config=configuration(temp_directory, limits))
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def is_alive(connection: Any) -> bool:
    """Whether the engine still answers; after some faults it refuses everything until a restart."""
    try:
        return bool(connection.execute("SELECT 1").fetchall() == [(1,)])
    except duckdb.Error:
        return False
