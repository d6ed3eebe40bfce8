"""Who may log in, and with which rights: statements that hold hashes of passwords and no more.

The administrator has a password like everybody: the gateway runs as the cell's own user, so
a login by the user of the operating system would let every client be the administrator.
"""

# ruff: noqa: S608 - every name and every hash in these statements is ours

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from cell.engines.mysql.client import CHANGES_USER

TENANT = "app"
TENANT_ACCOUNT = "app@'%'"
DATABASE = "app"
FORGET_MASTER = "RESET SLAVE ALL"
# What the cell itself changes is no change of the owner's: it is not in the binary log.
UNLOGGED = "SET SESSION sql_log_bin = OFF"
LOGGED = "SET SESSION sql_log_bin = ON"
LOCK = f"ALTER USER {TENANT_ACCOUNT} ACCOUNT LOCK"
_HASH = re.compile(r"['\"](\*[0-9A-F]{40})['\"]")


def ends(told: Path, hashes: Sequence[str]) -> bool:
    """Whether a password that the server was told to take is none of these any more."""
    try:
        lines = told.read_text().splitlines()
    except FileNotFoundError:
        return False
    tenants = (line for line in lines if "localhost" not in line)
    former = {found for line in tenants for found in _HASH.findall(line)}
    return not former <= set(hashes)


def native_hash(password: str) -> str:
    """As mysql_native_password keeps it. Of 256 random bits, it tells nothing."""
    inner = hashlib.sha1(password.encode(), usedforsecurity=False).digest()
    return "*" + hashlib.sha1(inner, usedforsecurity=False).hexdigest().upper()


# --- MariaDB: an account may have any number of ways to prove itself, one of which suffices.

# Each of these begins with nothing: whatever is in them was not put there by us.
_OTHERS = (
    *("tables_priv", "columns_priv", "procs_priv", "proxies_priv", "roles_mapping"),
    *("plugin", "func", "servers"),
)
# The most exact entry counts, so one without any right takes away what the one for `%` gives; it
# can be written and not granted. Any name that begins with `#` could be the file system's for
# another: `#mysql50#mysql` is `mysql`.
_SHUT = ("mysql", "performance\\_schema", "#%")
# Figures of statements and tables, in which nobody's text, name or address appears.
_SHOWN = (
    "events_statements_summary_by_digest",
    "events_statements_summary_global_by_event_name",
    "events_waits_summary_global_by_event_name",
    "table_io_waits_summary_by_index_usage",
    "table_io_waits_summary_by_table",
    "table_lock_waits_summary_by_table",
)
# The server asks this plugin of its own before it sets a password, and the plugin writes into a
# table that takes nothing. So an owner's session, event or routine sets none, which would outlive
# the credential of whoever wrote it.
GUARD = "password_reuse_check"
_REFUSING = (
    "SET GLOBAL strict_password_validation = ON",
    (
        f"CREATE OR REPLACE TABLE mysql.{GUARD}_history (hash BINARY(64) PRIMARY KEY,"
        " time TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,"
        " CONSTRAINT `rotate the credential instead` CHECK (FALSE)) ENGINE=Aria"
    ),
)
# As in a new server: the URI names it. Only where it was dropped, as what is there may be locked; a
# login works without it, so nothing is kept up or refused for it.
_MISSING = (
    "NOT EXISTS (SELECT SCHEMA_NAME FROM information_schema.SCHEMATA"
    f" WHERE SCHEMA_NAME = '{DATABASE}')"
)
MARIADB_DATABASE = f"{DATABASE} CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci"
_DATABASE_MADE = (
    "BEGIN NOT ATOMIC DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN END;"
    f" SET SESSION lock_wait_timeout = 2; IF {_MISSING} THEN"
    f" CREATE DATABASE IF NOT EXISTS {MARIADB_DATABASE}; END IF; END"
)
_ALL_RIGHTS = 2**64 - 1
_FREEING = (
    *("Select", "Delete", "Delete_history", "Drop", "Execute", "Lock_tables", "Show_view"),
    # Drops them, too.
    "Alter_routine",
)
_WRITING = (
    *("Insert", "Update", "Create", "Alter", "Index", "References", "Create_tmp_table"),
    *("Create_view", "Create_routine", "Event", "Trigger"),
)
_SYSTEMS_ROUTINES = "'AddGeometryColumn', 'DropGeometryColumn'"


def mariadb_tenant(administrator: str, hashes: Sequence[str]) -> list[str]:
    """Newest first, as most clients come with it; each further one costs a round trip."""
    return [
        *(UNLOGGED, *_alone(administrator), *_strangers_end(administrator), *_ways(hashes)),
        *(LOGGED, _DATABASE_MADE),
    ]


def mariadb_all(administrator: str, administrators_hash: str, hashes: Sequence[str]) -> list[str]:
    """Everything anew at each start, whatever the data came from.

    The server stops reading at an error and works on: so the last thing is to let the tenant in.
    """
    account = {"access": _ALL_RIGHTS, **_proofs([administrators_hash])}
    return [
        UNLOGGED,
        _account("localhost", administrator, account),
        _account("%", TENANT, {"access": 0, "account_locked": True}),
        "FLUSH PRIVILEGES",
        *_alone(administrator),
        *rights(True),
        "FLUSH PRIVILEGES",
        FORGET_MASTER,
        LOGGED,
        _DATABASE_MADE,
        UNLOGGED,
        *_ways(hashes),
    ]


def rights(writing: bool) -> list[str]:
    """The tenant's own, on all databases that are not shut; they count after FLUSH PRIVILEGES."""
    given = (*_FREEING, *_WRITING) if writing else _FREEING
    names, values = ", ".join(f"{each}_priv" for each in given), ", ".join("'Y'" for _ in given)
    return [
        UNLOGGED,
        f"DELETE FROM mysql.db WHERE Db = '%' AND User = '{TENANT}'",
        f"INSERT INTO mysql.db (Host, Db, User, {names}) VALUES ('%', '%', '{TENANT}', {values})",
    ]


def _ways(hashes: Sequence[str]) -> list[str]:
    if not hashes:
        return [LOCK]
    account = {"access": 0, **_proofs(hashes)}
    return [_account("%", TENANT, account), "FLUSH PRIVILEGES"]


def _account(host: str, user: str, properties: dict[str, Any]) -> str:
    """Written and not told: the server refuses each statement that sets a password."""
    content = orjson.dumps(properties).decode()
    return (
        "REPLACE INTO mysql.global_priv (Host, User, Priv)"
        f" VALUES ('{host}', '{user}', '{content}')"
    )


def _proofs(hashes: Sequence[str]) -> dict[str, Any]:
    # A refused SET PASSWORD to a hash of 16 digits changes the plugin of an account that has one
    # way only, until privileges are read again: nobody could log in. So there are two at least.
    newest, *older = (
        {"plugin": "mysql_native_password", "authentication_string": each}
        for each in (*hashes, *hashes[: len(hashes) == 1])
    )
    # An empty one stands for the account's own.
    return {**newest, "auth_or": [{}, *older]}


def _alone(administrator: str) -> list[str]:
    """Nobody but the administrator and the tenant, with their rights, from one moment on."""
    known = (
        f"((User = '{TENANT}' AND Host = '%') OR (User = '{administrator}' AND Host = 'localhost'))"
    )
    shut = ", ".join(f"('%', '{name}', '{TENANT}')" for name in _SHUT)
    shown = ", ".join(
        f"('%', 'performance_schema', '{TENANT}', '{table}', 'Select')" for table in _SHOWN
    )
    return [
        *_REFUSING,
        f"DELETE FROM mysql.global_priv WHERE NOT {known}",
        (
            "UPDATE mysql.global_priv SET Priv = JSON_SET("
            "JSON_REMOVE(Priv, '$.is_role', '$.default_role'), '$.access', 0)"
            f" WHERE User = '{TENANT}'"
        ),
        f"DELETE FROM mysql.db WHERE NOT {known} OR Db <> '%'",
        "UPDATE mysql.db SET Grant_priv = 'N'",
        f"INSERT INTO mysql.db (Host, Db, User) VALUES {shut}",
        *(f"DELETE FROM mysql.{table}" for table in _OTHERS),
        f"INSERT INTO mysql.tables_priv (Host, Db, User, Table_name, Table_priv) VALUES {shown}",
        f"DELETE FROM mysql.proc WHERE db = 'mysql' AND name NOT IN ({_SYSTEMS_ROUTINES})",
        *(
            f"UPDATE mysql.{table} SET definer = '{TENANT}@%'"
            f" WHERE db <> 'mysql' AND definer <> '{TENANT}@%'"
            for table in ("proc", "event")
        ),
        "DELETE FROM mysql.event WHERE db = 'mysql'",
        "FLUSH PRIVILEGES",
    ]


def _strangers_end(administrator: str) -> list[str]:
    """The sessions of accounts that are no more; the server has some of its own."""
    servers = "'event_scheduler', 'system user', 'unauthenticated user'"
    known = f"'{TENANT}', '{administrator}', {servers}"
    strangers = (
        "SELECT ID FROM information_schema.PROCESSLIST"
        f" WHERE USER NOT IN ({known}) OR {CHANGES_USER}"
    )
    # One may end by itself meanwhile.
    unknown = "DECLARE CONTINUE HANDLER FOR 1094 BEGIN END;"
    end = "EXECUTE IMMEDIATE CONCAT('KILL ', stranger.ID);"
    return [
        f"BEGIN NOT ATOMIC {unknown} FOR stranger IN ({strangers}) DO {end} END FOR; END",
    ]


# --- MySQL: one further password, which is kept beside the account's attributes. `RETAIN CURRENT
# PASSWORD` writes the same, but takes the password itself, and a site keeps only hashes.

MYSQL_RIGHTS = (
    "SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, REFERENCES, INDEX, ALTER,"
    " CREATE TEMPORARY TABLES, LOCK TABLES, EXECUTE, CREATE VIEW, SHOW VIEW,"
    " CREATE ROUTINE, ALTER ROUTINE, EVENT, TRIGGER"
)
# What the server keeps for itself, none of which can log in.
MYSQL_OWN = ("mysql.sys", "mysql.session", "mysql.infoschema")
MYSQL_DATABASE = f"{DATABASE} CHARACTER SET utf8mb4"
_MYSQL_DATABASE_MADE = (
    f"SET @made = IF({_MISSING}, 'CREATE DATABASE {MYSQL_DATABASE}', 'DO 0')",
    "PREPARE made FROM @made",
    "EXECUTE made",
    "DEALLOCATE PREPARE made",
)
_ROW = "WHERE User = 'app' AND Host = '%'"
_ATTRIBUTES = "COALESCE(User_attributes, JSON_OBJECT())"


def mysql_tenant(administrator: str, hashes: Sequence[str]) -> list[str]:
    """The newest two: the server keeps no more."""
    return [*_mysql_alone(administrator), *_passwords(hashes), *_MYSQL_DATABASE_MADE]


def _mysql_alone(administrator: str) -> list[str]:
    known = ", ".join(f"'{each}'" for each in (TENANT, administrator, *MYSQL_OWN))
    return [
        *(
            f"DELETE FROM mysql.{table} WHERE User NOT IN ({known})"
            for table in ("user", "db", "tables_priv", "procs_priv", "global_grants")
        ),
        *(
            f"DELETE FROM mysql.{table}"
            for table in ("proxies_priv", "role_edges", "default_roles")
        ),
        "FLUSH PRIVILEGES",
    ]


def _passwords(hashes: Sequence[str]) -> list[str]:
    if not hashes:
        return [f"ALTER USER {TENANT_ACCOUNT} ACCOUNT LOCK"]
    newest, *older = hashes
    changed = f"JSON_REMOVE({_ATTRIBUTES}, '$.additional_password')"
    if older:
        changed = f"JSON_SET({_ATTRIBUTES}, '$.additional_password', '{older[0]}')"
    return [
        (
            f"ALTER USER {TENANT_ACCOUNT} IDENTIFIED WITH mysql_native_password AS '{newest}'"
            " ACCOUNT UNLOCK"
        ),
        f"UPDATE mysql.user SET User_attributes = {changed} {_ROW}",
        "FLUSH PRIVILEGES",
    ]


def mysql_all(administrator: str, administrators_hash: str, hashes: Sequence[str]) -> list[str]:
    account = f"{administrator}@localhost"
    return [
        f"CREATE USER IF NOT EXISTS {account}",
        (f"ALTER USER {account} IDENTIFIED WITH mysql_native_password AS '{administrators_hash}'"),
        f"GRANT ALL PRIVILEGES ON *.* TO {account} WITH GRANT OPTION",
        f"DROP USER IF EXISTS {TENANT_ACCOUNT}",
        f"CREATE USER {TENANT_ACCOUNT} ACCOUNT LOCK",
        f"GRANT {MYSQL_RIGHTS} ON *.* TO {TENANT_ACCOUNT}",
        f"REVOKE ALL ON mysql.* FROM {TENANT_ACCOUNT}",
        f"REVOKE ALL ON performance_schema.* FROM {TENANT_ACCOUNT}",
        *_mysql_alone(administrator),
        *_passwords(hashes),
        # The server stops reading at an error, as with a disk that is full.
        *_MYSQL_DATABASE_MADE,
    ]
