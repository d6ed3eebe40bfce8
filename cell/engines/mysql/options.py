"""What a server is started with: what is so for all, and what its size decides."""

from cell.runtime.engine_folders import EngineFolders
from cell.specification import Size
from gateway import logins

MIB = 2**20
GIB = 2**30
RESERVED_CONNECTIONS = 5
"""For the cell itself, beside those the size gives to its owner."""
DATABASES = "db"
TEMPORARY = "tmp"
# Folders that the server cannot write to: an empty one, and one with the library of its dialect.
NOTHING = "nothing"
LIBRARIES = "libraries"
NO_LOG = ("--skip-log-bin",)
# Must be the same for a template and everything copied from it.
FILES = ("--innodb-data-file-path=ibdata1:1M:autoextend", "--innodb-autoextend-increment=4")
TEMPLATE_LOG = "--innodb-log-file-size=4M"

Values = dict[str, int | str]


def for_all(view: EngineFolders, databases: str, socket: str) -> list[str]:
    """Both engines'."""
    nothing = view.configuration / NOTHING
    return [
        f"--datadir={view.data / databases}",
        f"--tmpdir={view.data / TEMPORARY}",
        f"--socket={view.run / socket}",
        f"--pid-file={view.run / 'engine.pid'}",
        f"--init-file={view.configuration / 'accounts.sql'}",
        *FILES,
        *("--skip-networking", "--skip-name-resolve"),
        # Files are not the owner's business: without the right to, and then not to anywhere.
        *(f"--secure-file-priv={nothing}", "--skip-symbolic-links"),
        *("--character-set-server=utf8mb4", "--default-time-zone=+00:00"),
        # With the stack, a crash would write the statement that ran to the log.
        "--skip-stack-trace",
        # Begun when the accounts are set and the owner had time to look, and no sooner.
        "--event-scheduler=OFF",
        # No other library is ever loaded, whatever a table of the server's says.
        f"--plugin-dir={view.configuration / LIBRARIES}",
        # A commit is on disk when it is acknowledged.
        *("--innodb-flush-log-at-trx-commit=1", "--innodb-doublewrite=ON"),
        # Its ring in the kernel is attack surface that no size here needs.
        "--innodb-use-native-aio=0",
        *("--max-allowed-packet=64M", "--open-files-limit=16384", "--innodb-log-buffer-size=8M"),
    ]


def changeable(size: Size) -> Values:
    """By the name of the variable, what a running server can be told too."""
    temporary_bytes = _between(size.memory_bytes // 64, 8 * MIB, 64 * MIB)
    small = size.memory_bytes < 2 * GIB
    return {
        "max_connections": size.connections_max + logins.MAX + RESERVED_CONNECTIONS,
        "max_user_connections": size.connections_max,
        "innodb_buffer_pool_size": buffer_pool_bytes(size),
        "tmp_table_size": temporary_bytes,
        "max_heap_table_size": temporary_bytes,
        "key_buffer_size": (1 if small else 8) * MIB,
        "table_open_cache": 400 if small else 2000,
        "table_definition_cache": 400 if small else 1400,
    }


def fixed(size: Size) -> Values:
    """What takes a new start."""
    return {"performance_schema": int(size.memory_bytes >= 4 * GIB)}


def log_bytes(size: Size) -> int:
    """The redo log: a quarter of the pool, and never more than a small part of the disk."""
    most = min(4 * GIB, size.storage_bytes // 32)
    return _between(buffer_pool_bytes(size) // 4, 16 * MIB, max(16 * MIB, _whole(most, 16)))


def session_bytes(size: Size) -> int:
    """What the server takes for one session before it answers with an error."""
    return max(64 * MIB, size.memory_bytes // 4)


def buffer_pool_bytes(size: Size) -> int:
    """The server itself and each connection need memory besides, the more so in small sizes."""
    if size.memory_bytes < GIB:
        share = 0.3
    elif size.memory_bytes < 4 * GIB:
        share = 0.4
    else:
        share = 0.5 if size.memory_bytes < 16 * GIB else 0.6
    return max(16 * MIB, _whole(int(size.memory_bytes * share), 16))


def words(values: Values) -> list[str]:
    return [f"--{name.replace('_', '-')}={value}" for name, value in values.items()]


def _between(value: int, least: int, most: int) -> int:
    return max(least, min(most, value))


def _whole(value: int, mebibytes: int) -> int:
    """Rounded down, as the server rounds, so that it can be told apart from what it was."""
    return value // (mebibytes * MIB) * (mebibytes * MIB)
