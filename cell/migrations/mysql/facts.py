"""What a source has, as its user sees it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cell.migrations.errors import MigrationError
from cell.migrations.mysql.grants import Grants
from cell.migrations.mysql.session import (
    UNREADABLE,
    QueryRefusedError,
    Row,
    SourceSession,
    count_of,
    listed,
)

SYSTEMS = frozenset({"information_schema", "performance_schema", "mysql", "sys", "ndbinfo"})
NAME_CHARACTERS_MAX = 64
TABLE_TYPES = ("BASE TABLE", "SYSTEM VERSIONED")
RELEASE = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})\.")
SERVER = "SELECT VERSION(), @@version_comment, @@lower_case_table_names"
TABLES = """
SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, COALESCE(ENGINE, ''), COALESCE(TABLE_ROWS, 0),
    COALESCE(DATA_LENGTH, 0) + COALESCE(INDEX_LENGTH, 0)
FROM information_schema.TABLES WHERE TABLE_SCHEMA IN ({databases})
"""
KEYS = """
SELECT DISTINCT TABLE_SCHEMA, TABLE_NAME FROM information_schema.COLUMNS
WHERE COLUMN_KEY = 'PRI' AND TABLE_SCHEMA IN ({databases})
"""
COLLATIONS = """
SELECT DISTINCT COLLATION_NAME FROM information_schema.COLUMNS
    WHERE COLLATION_NAME IS NOT NULL AND TABLE_SCHEMA IN ({databases})
UNION SELECT TABLE_COLLATION FROM information_schema.TABLES
    WHERE TABLE_COLLATION IS NOT NULL AND TABLE_SCHEMA IN ({databases})
UNION SELECT DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA
    WHERE SCHEMA_NAME IN ({databases})
"""
LOG = f"""
SHOW GLOBAL VARIABLES WHERE Variable_name IN ({
    listed(
        [
            *("log_bin", "binlog_format", "binlog_row_image", "log_bin_compress"),
            *("binlog_expire_logs_seconds", "expire_logs_days"),
            *("log_slave_updates", "gtid_slave_pos"),
        ]
    )
})
"""
COMPRESSED = """
SELECT DISTINCT TABLE_SCHEMA, TABLE_NAME FROM information_schema.COLUMNS
WHERE COLUMN_TYPE LIKE '%COMPRESSED%' AND TABLE_SCHEMA IN ({databases})
"""
# By kind: schema, name, who defined it, and whether its text cannot be seen.
CODE = {
    "view": """
SELECT TABLE_SCHEMA, TABLE_NAME, DEFINER, COALESCE(VIEW_DEFINITION, '') = ''
FROM information_schema.VIEWS WHERE TABLE_SCHEMA IN ({databases})
""",
    "routine": """
SELECT ROUTINE_SCHEMA, ROUTINE_NAME, DEFINER, ROUTINE_DEFINITION IS NULL
FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA IN ({databases})
""",
    "trigger": """
SELECT TRIGGER_SCHEMA, TRIGGER_NAME, DEFINER, 0
FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA IN ({databases})
""",
    "event": """
SELECT EVENT_SCHEMA, EVENT_NAME, DEFINER, 0
FROM information_schema.EVENTS WHERE EVENT_SCHEMA IN ({databases})
""",
}


@dataclass(frozen=True)
class MySQLTable:
    database: str
    name: str
    type: str
    engine: str
    rows: int
    size_bytes: int

    @property
    def shown(self) -> str:
        return f"{self.database}.{self.name}"


@dataclass(frozen=True)
class MySQLObject:
    """A view, routine, trigger or event; `is_hidden`: the user cannot read its text."""

    kind: str
    database: str
    name: str
    definer: str
    is_hidden: bool

    @property
    def shown(self) -> str:
        return f"{self.database}.{self.name}"


@dataclass(frozen=True)
class MySQLFacts:
    """`missing`: the database of the URI is not there, or the user does not see it."""

    version: str
    is_mariadb: bool
    folds_names: bool
    databases: tuple[str, ...]
    missing: bool
    tables: tuple[MySQLTable, ...]
    with_key: frozenset[tuple[str, str]]
    collations: frozenset[str]
    code: tuple[MySQLObject, ...]
    grants: Grants

    @property
    def number(self) -> tuple[int, int]:
        return release(self.version)

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.tables)

    @property
    def rows(self) -> tuple[MySQLTable, ...]:
        """Those that hold some themselves."""
        return tuple(each for each in self.tables if each.type in TABLE_TYPES)


@dataclass(frozen=True)
class MySQLLog:
    """What is to be known of the binary log of a source that is followed.

    `values` are variables of the server, in capitals; `compressed` are tables with columns that
    are logged otherwise.
    """

    values: Mapping[str, str]
    compressed: tuple[str, ...]


async def gather(session: SourceSession) -> MySQLFacts:
    version, comment, folds = await session.row(SERVER, 3)
    wanted = session.conduit.source.database
    found = await databases(session)
    chosen = tuple(each for each in found if each == wanted) if wanted else found
    code: list[MySQLObject] = []
    for kind, question in CODE.items():
        rows = await _of(session, chosen, question, 4)
        code += [_code(kind, each) for each in rows if each[0] in chosen]
    tables = await _of(session, chosen, TABLES, 6)
    keys = await _of(session, chosen, KEYS, 2)
    collations = await _of(session, chosen, COLLATIONS, 1)
    return MySQLFacts(
        str(version),
        "mariadb" in f"{version} {comment}".lower(),
        folds != "0",
        chosen,
        bool(wanted) and not chosen,
        tuple(_table(each) for each in tables if each[0] in chosen),
        frozenset((str(each[0]), str(each[1])) for each in keys),
        frozenset(str(each[0]) for each in collations),
        tuple(code),
        Grants(str(each[0]) for each in await _grants(session)),
    )


async def log_of(session: SourceSession, found: MySQLFacts) -> MySQLLog:
    rows = await session.rows(LOG, 2)
    packed = await _of(session, found.databases, COMPRESSED, 2)
    return MySQLLog(
        {str(name).lower(): str(value).upper() for name, value in rows},
        tuple(f"{each[0]}.{each[1]}" for each in packed if each[0] in found.databases),
    )


async def databases(session: SourceSession) -> tuple[str, ...]:
    """Those of users."""
    names = [str(each[0]) for each in await session.rows("SHOW DATABASES")]
    if any("\0" in each or len(each) > NAME_CHARACTERS_MAX for each in names):
        # No server has such a name, and no tool can be told it.
        raise MigrationError(UNREADABLE)
    return tuple(sorted(each for each in names if each.lower() not in SYSTEMS))


async def size_bytes(session: SourceSession, chosen: tuple[str, ...]) -> int:
    rows = await _of(session, chosen, TABLES, 6)
    return sum(count_of(each[5]) for each in rows if each[0] in chosen)


async def _of(
    session: SourceSession, chosen: tuple[str, ...], question: str, columns: int
) -> list[Row]:
    """Nothing is asked about no database: servers look for one without a name."""
    if not chosen:
        return []
    return await session.rows(question.format(databases=listed(chosen)), columns)


async def _grants(session: SourceSession) -> Sequence[Row]:
    try:
        return await session.rows("SHOW GRANTS")
    except QueryRefusedError:
        # An anonymous user's.
        return []


def _table(row: Row) -> MySQLTable:
    return MySQLTable(
        *(str(row[0]), str(row[1]), str(row[2]), str(row[3])), count_of(row[4]), count_of(row[5])
    )


def _code(kind: str, row: Row) -> MySQLObject:
    return MySQLObject(kind, str(row[0]), str(row[1]), str(row[2]), row[3] == "1")


def release(version: str) -> tuple[int, int]:
    """(0, 0) where it is not said as servers say it."""
    found = RELEASE.match(version)
    return (int(found[1]), int(found[2])) if found else (0, 0)
