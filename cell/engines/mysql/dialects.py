"""What differs between MariaDB and MySQL, and nothing else."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cell.engines.driver import EngineError, EngineRefusal
from cell.engines.mysql import accounts, options
from cell.engines.mysql.options import FILES, TEMPLATE_LOG, Values, log_bytes, session_bytes
from cell.engines.mysql.servers import ServerInstallation
from cell.engines.mysql.storage import ARIA_CHECKPOINT_S
from cell.specification import Size

POOLED_ABOVE = 200
"""Beyond as many connections threads are shared: thousands would take more memory than work."""
UNDO_SINCE = (10, 11, 18)
"""The oldest release of MariaDB seen to give such files to data that was made without."""


@dataclass(frozen=True)
class Dialect:
    """`everything` are the statements that a start begins with, `tenant` those of a rotation.

    Both begin with the administrator's name; after both nobody else can log in but the tenant.
    """

    engine: str
    missing: EngineRefusal
    programs: tuple[str, ...]
    runs: Callable[[ServerInstallation], bool]
    install: Callable[[ServerInstallation, str, str, str], list[str]]
    """The words that make an empty data folder, its scratch folder and a file of statements."""
    options: Callable[[ServerInstallation, Size], list[str]]
    changeable: Callable[[Size], Values]
    fixed: Callable[[Size], Values]
    """As in `options`, with what only this dialect has."""
    everything: Callable[[str, str, Sequence[str]], list[str]]
    tenant: Callable[[str, Sequence[str]], list[str]]
    hold: tuple[str, ...]
    """Until the connection ends, files are of one moment, as far as no log would mend them."""
    template: tuple[str, ...]
    """What a new server begins with."""
    rights: Callable[[bool], list[str]] | None
    """Gives the tenant all rights, or those only that free storage; None where that cannot be."""
    library: str | None
    """The only one that the server loads, and can: of its own plugins."""
    backup_tool: str | None
    upgrade_tool: str | None
    """None where the server brings old data up to date when it starts."""


def _install_mariadb(
    server: ServerInstallation, data: str, scratch: str, statements: str
) -> list[str]:
    tool = server.tool("mariadb-install-db", "mysql_install_db")
    if tool is None:
        raise EngineError(f"mariadb-install-db of {server.version} is not installed")
    return [
        *(str(tool), "--no-defaults", f"--basedir={server.base}", f"--datadir={data}"),
        *(f"--tmpdir={scratch}", f"--extra-file={statements}"),
        # Nothing is looked up by name, and no account is the operating system's.
        *("--cross-bootstrap", "--skip-name-resolve", "--auth-root-authentication-method=normal"),
        *("--skip-test-db", *FILES, TEMPLATE_LOG, *undo(server), "--innodb-use-native-aio=0"),
        # Copied and synced when it is whole; until then it may as well be lost.
        *("--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=16M"),
    ]


def _install_mysql(
    server: ServerInstallation, data: str, scratch: str, statements: str
) -> list[str]:
    return [
        *(str(server.program), "--no-defaults", "--initialize-insecure"),
        *(f"--datadir={data}", f"--tmpdir={scratch}", f"--init-file={statements}"),
        *(*FILES, "--innodb-use-native-aio=0"),
    ]


def undo(server: ServerInstallation) -> list[str]:
    """What transactions undo lies in files that shrink again; in `ibdata1` it stays for good."""
    return ["--innodb-undo-tablespaces=2"] if server.number >= UNDO_SINCE else []


def _mariadb_options(server: ServerInstallation, size: Size) -> list[str]:
    return [
        *(*undo(server), "--innodb-undo-log-truncate=ON", "--innodb-max-undo-log-size=10M"),
        *("--collation-server=utf8mb4_unicode_ci", "--feedback=OFF", "--unix-socket=OFF"),
        "--skip-slave-start",
        # Nobody sets a password by a statement.
        *(f"--plugin-load-add={accounts.GUARD}", "--strict-password-validation=ON"),
        *("--aria-pagecache-buffer-size=8M", "--log-warnings=1"),
        # What Aria logs counts as storage. After a checkpoint, files that are not needed go.
        *("--aria-log-file-size=8M", f"--aria-checkpoint-interval={ARIA_CHECKPOINT_S}"),
        *("--innodb-temp-data-file-path=ibtmp1:2M:autoextend", "--innodb-buffer-pool-dump-pct=25"),
        f"--innodb-log-file-size={log_bytes(size)}",
        # What a session may set for itself must not take the memory of all.
        *("--maximum-tmp-table-size=64M", "--maximum-max-heap-table-size=64M"),
        f"--max-session-mem-used={session_bytes(size)}",
        f"--maximum-max-session-mem-used={session_bytes(size)}",
    ]


def _mariadb_changeable(size: Size) -> Values:
    return {**options.changeable(size), "thread_pool_size": max(2, math.ceil(size.vcpu))}


def _mariadb_fixed(size: Size) -> Values:
    pooled = size.connections_max > POOLED_ABOVE
    threads = "pool-of-threads" if pooled else "one-thread-per-connection"
    return {**options.fixed(size), "thread_handling": threads}


def _mysql_options(server: ServerInstallation, size: Size) -> list[str]:
    # What the gateway can pass on without knowing a password. It ends with 8.4.
    native = ["--default-authentication-plugin=mysql_native_password"]
    if server.number >= (8, 4, 0):
        native = ["--mysql-native-password=ON", "--authentication-policy=mysql_native_password,,"]
    log = [f"--innodb-redo-log-capacity={log_bytes(size)}"]
    if server.number < (8, 0, 30):
        log = [f"--innodb-log-file-size={log_bytes(size) // 2}"]
    undone = ["--innodb-undo-log-truncate=ON", "--innodb-max-undo-log-size=10M"]
    return [*native, *log, *undone, "--mysqlx=OFF", "--partial-revokes=ON"]


MARIADB = Dialect(
    engine="mariadb",
    missing=EngineRefusal(
        "no mariadbd of version 10.7 or newer, with its own plugin password_reuse_check, is on the "
        "cell's machine",
        "install mariadb-server on it (Debian: apt-get install mariadb-server mariadb-backup), "
        "then restart the cell",
    ),
    programs=("mariadbd", "mysqld"),
    # Several passwords of one account came with 10.4, the plugin with 10.7.
    runs=lambda server: server.library(accounts.GUARD) is not None,
    rights=accounts.rights,
    library=accounts.GUARD,
    install=_install_mariadb,
    options=_mariadb_options,
    changeable=_mariadb_changeable,
    fixed=_mariadb_fixed,
    everything=accounts.mariadb_all,
    tenant=accounts.mariadb_tenant,
    hold=(
        *("BACKUP STAGE START", "BACKUP STAGE FLUSH", "BACKUP STAGE BLOCK_COMMIT"),
        # What the binary log says was committed, InnoDB's says on disk as well.
        "FLUSH LOCAL ENGINE LOGS",
    ),
    template=(
        # Views on what is switched off in most sizes, in a hundred files.
        "DROP DATABASE IF EXISTS sys",
        f"CREATE DATABASE {accounts.MARIADB_DATABASE}",
    ),
    backup_tool="mariadb-backup",
    upgrade_tool="mariadb-upgrade",
)

MYSQL = Dialect(
    engine="mysql",
    missing=EngineRefusal(
        "no mysqld of version 8.0.16 or newer, and older than 9, is on the cell's machine",
        "install mysql-server 8 on it from MySQL's own packages (dev.mysql.com/downloads), then "
        "restart the cell; Debian itself has MariaDB only",
    ),
    programs=("mysqld",),
    runs=lambda server: (8, 0, 16) <= server.number < (9, 0, 0),
    install=_install_mysql,
    options=_mysql_options,
    changeable=options.changeable,
    fixed=options.fixed,
    everything=accounts.mysql_all,
    tenant=accounts.mysql_tenant,
    hold=("LOCK INSTANCE FOR BACKUP", "FLUSH TABLES WITH READ LOCK"),
    template=(f"CREATE DATABASE {accounts.MYSQL_DATABASE}",),
    rights=None,
    library=None,
    backup_tool=None,
    upgrade_tool=None,
)
