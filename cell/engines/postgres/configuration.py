"""The server's settings for a size, and who may log in how."""

import math
from dataclasses import dataclass

from cell.engines.driver import EngineRefusal
from cell.engines.postgres import extensions
from cell.engines.postgres.sources import Source
from cell.runtime.engine_folders import EngineFolders
from cell.specification import Size
from gateway import logins

MIB = 2**20
GIB = 2**30
PORT = 5432
SOCKET = f".s.PGSQL.{PORT}"
# Connections of the driver itself, beside those a size has.
RESERVED = 5
BACKGROUND_MAX = 64
FILE = "postgresql.conf"
ACCESS = "pg_hba.conf"
IDENTITIES = "pg_ident.conf"
# Says that autovacuum is off, and until when; else it is empty.
AUTOVACUUM = "autovacuum.conf"
# An instance that can have no more data is backed up whole, which takes seconds.
UNSUMMARIZED_BYTES = 2 * 10**9
# A name of ours, which owners may look up.
LIMIT = "menagerie.storage_bytes"
# `all` is every database, and not what WAL is received from.
ACCESS_CONTENT = b"local all all scram-sha-256\nlocal replication menagerie scram-sha-256\n"
# What the server reads at its start only; see `needs_restart`.
AT_START = frozenset(
    {
        *("shared_buffers", "max_connections", "superuser_reserved_connections", "io_method"),
        *("max_worker_processes", "max_wal_senders", "max_replication_slots", "wal_level"),
        *("autovacuum_max_workers", "shared_preload_libraries", "unix_socket_directories"),
    }
)


@dataclass(frozen=True)
class Family:
    """An engine served by PostgreSQL: itself, or with an extension that the engine is about."""

    engine: str
    missing: EngineRefusal
    extension: str | None = None
    settings: tuple[tuple[str, str], ...] = ()


POSTGRES = Family(
    "postgres",
    EngineRefusal(
        "no PostgreSQL of version 15 or newer that runs on the cell's machine was found",
        "run `make install` in Menagerie's folder on it, or install postgresql (Debian: "
        "apt-get install postgresql), then restart the cell",
    ),
)
TIMESCALEDB = Family(
    "timescaledb",
    EngineRefusal(
        "no PostgreSQL on the cell's machine has the extension timescaledb",
        "install it for a PostgreSQL of version 15 or newer (docs.timescale.com/self-hosted), "
        "then restart the cell",
    ),
    "timescaledb",
    (("timescaledb.telemetry_level", "off"),),
)


def content(family: Family, source: Source, size: Size, view: EngineFolders) -> bytes:
    """The whole of postgresql.conf."""
    major = int(source.major)
    settings = {
        **_place(),
        **_memory(size),
        **_processes(major, size),
        **_storage(size),
        **_summaries(major, size),
        **_logging(),
        # A statement ends with the client that waits for it.
        "client_connection_check_interval": "2s",
        **_language(),
        **_ours(family, int(source.major)),
        **decisive(family, source, view),
        "include_if_exists": AUTOVACUUM,
    }
    lines = [f"{name} = '{value}'" for name, value in settings.items()]
    return ("\n".join(lines) + "\n").encode()


def decisive(family: Family, source: Source, view: EngineFolders) -> dict[str, str]:
    """Who is let in, and what is loaded or run: said at the start, where no file overrides it."""
    preloaded = [*filter(None, [family.extension]), *extensions.preloaded(source)]
    found = {
        "listen_addresses": "",
        "unix_socket_directories": str(view.run),
        "hba_file": str(view.configuration / ACCESS),
        "ident_file": str(view.configuration / IDENTITIES),
        "ssl": "off",
        "shared_preload_libraries": ",".join(preloaded),
        "session_preload_libraries": "",
        "dynamic_library_path": "$libdir",
        "archive_mode": "off",
        "archive_command": "",
        "archive_library": "",
        "archive_cleanup_command": "",
        "recovery_end_command": "",
        "restore_command": "",
        "primary_conninfo": "",
        "logging_collector": "off",
    }
    major = int(source.major)
    if major >= 17:  # noqa: PLR2004 - a version
        found["allow_alter_system"] = "off"
    if major >= 18:  # noqa: PLR2004 - a version
        found["extension_control_path"] = "$system"
    return found


def needs_restart(former: bytes, wanted: bytes) -> bool:
    """Whether two files differ in what is read at the start only."""

    def at_start(file: bytes) -> set[str]:
        lines = file.decode().splitlines()
        return {line for line in lines if line.partition(" = ")[0] in AT_START}

    return at_start(former) != at_start(wanted)


def storage_bytes(content: bytes) -> int | None:
    """The limit that a file tells."""
    for line in content.decode().splitlines():
        name, _, value = line.partition(" = ")
        if name == LIMIT:
            return int(value.strip("'"))
    return None


def _place() -> dict[str, str]:
    return {
        "port": str(PORT),
        # The folder is the instance's own, and root goes everywhere.
        "unix_socket_permissions": "0700",
        "password_encryption": "scram-sha-256",
    }


def _memory(size: Size) -> dict[str, str]:
    memory = size.memory_bytes
    work = memory // 4 // max(1, size.connections_max)
    return {
        "shared_buffers": _kib(memory // 4),
        "effective_cache_size": _kib(memory * 3 // 4),
        "work_mem": _kib(_within(MIB, work, 256 * MIB)),
        "maintenance_work_mem": _kib(_within(16 * MIB, memory // 16, GIB)),
        "autovacuum_work_mem": _kib(_within(16 * MIB, memory // 32, GIB // 2)),
        "huge_pages": "off",
        "dynamic_shared_memory_type": "posix",
        "jit": "off",
    }


def _processes(major: int, size: Size) -> dict[str, str]:
    whole = max(1, math.ceil(size.vcpu))
    found = {
        "max_connections": str(size.connections_max + logins.MAX + RESERVED),
        "superuser_reserved_connections": str(RESERVED),
        "max_worker_processes": str(min(BACKGROUND_MAX, 4 + 2 * whole)),
        "max_parallel_workers": str(whole),
        "max_parallel_workers_per_gather": str(0 if whole == 1 else min(4, whole // 2)),
        "max_parallel_maintenance_workers": str(0 if whole == 1 else min(4, whole // 2)),
        "autovacuum_max_workers": str(_within(2, whole, 6)),
    }
    if major >= 18:  # noqa: PLR2004 - a version
        # Its worker processes would be half of what a small instance costs while idle.
        found["io_method"] = "sync" if whole == 1 else "worker"
    return found


def _storage(size: Size) -> dict[str, str]:
    storage = size.storage_bytes
    return {
        LIMIT: str(storage),
        # For the way back of a migration; what that costs was measured (decision 0053).
        "wal_level": "logical",
        "max_wal_size": _mib(_within(96 * MIB, storage // 10, 8 * GIB)),
        "min_wal_size": _mib(_within(32 * MIB, storage // 100, GIB)),
        # What a snapshot or a follower holds back must not fill the disk.
        "max_slot_wal_keep_size": _mib(_within(256 * MIB, storage // 4, 64 * GIB)),
        "temp_file_limit": _kib(max(256 * MIB, storage // 2)),
        # What notes which transactions hold a row together counts as storage, and goes only when no
        # database needs it any more; by default nobody looks before it has gigabytes.
        "autovacuum_multixact_freeze_max_age": str(_within(100_000, storage // 2_000, 400_000_000)),
        # A thousand files are synchronised at once after a crash, and not each by itself.
        "recovery_init_sync_method": "syncfs",
        "max_wal_senders": "6",
        "max_replication_slots": "6",
    }


def _summaries(major: int, size: Size) -> dict[str, str]:
    """Of what changed, for incremental backups. The process that writes them takes a megabyte."""
    if major < 17:  # noqa: PLR2004 - a version
        return {}
    return {
        "summarize_wal": "on" if size.storage_bytes > UNSUMMARIZED_BYTES else "off",
        # Since then there is a full backup.
        "wal_summary_keep_time": "8d",
    }


def _logging() -> dict[str, str]:
    return {
        "log_destination": "stderr",
        "log_line_prefix": "%m [%p] %q%u@%d ",
        "log_timezone": "UTC",
        "timezone": "UTC",
        # Statements hold passwords and people's data: their texts are never written. Details are,
        # of a deadlock or a crash say, a statement, and of a constraint the values.
        "log_error_verbosity": "terse",
        "log_statement": "none",
        "log_min_error_statement": "panic",
        "log_parameter_max_length_on_error": "0",
        "log_lock_waits": "on",
        "log_temp_files": "64MB",
    }


def _language() -> dict[str, str]:
    """As a new cluster has it; messages are in English, which the driver reads."""
    locales = dict.fromkeys(("lc_monetary", "lc_numeric", "lc_time"), "C.UTF-8")
    return {
        **locales,
        "lc_messages": "C",
        "datestyle": "iso, mdy",
        "default_text_search_config": "pg_catalog.english",
    }


def _ours(family: Family, major: int) -> dict[str, str]:
    found = {}
    if major >= 16:  # noqa: PLR2004 - a version
        # Who makes a role may act as it, as owners of databases expect.
        found["createrole_self_grant"] = "set, inherit"
    return {**found, **dict(family.settings)}


def _within(least: int, wanted: int, most: int) -> int:
    return max(least, min(most, wanted))


def _kib(size_bytes: int) -> str:
    return f"{size_bytes // 1024}kB"


def _mib(size_bytes: int) -> str:
    return f"{size_bytes // MIB}MB"
