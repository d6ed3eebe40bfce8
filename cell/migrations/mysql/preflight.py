"""What would go wrong with a running MySQL or MariaDB, found before anything is changed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cell.engines.mysql.examination import Supported
from cell.instances.hosted import HostedInstance
from cell.migrations.mysql import sync_preflight
from cell.migrations.mysql.facts import SYSTEMS, MySQLFacts, MySQLLog, MySQLTable, release
from cell.migrations.mysql_dumps import known_collation
from cell.migrations.report import PreflightFinding, PreflightReport, sizes, some

Findings = Iterator[PreflightFinding]
OLDEST = (5, 5)
APP = "app"
# Of the engines that servers have: those whose rows are of the dump's moment, and those whose rows
# lie elsewhere.
TRANSACTIONAL = frozenset({"innodb", "rocksdb", "tokudb"})
ELSEWHERE = frozenset(
    {"federated", "connect", "spider", "oqgraph", "vp", "mrg_myisam", "mrg_isam", "s3", "blackhole"}
)
MEMORY = "memory"
WITHOUT = {
    "EVENT": "events cannot be copied",
    "TRIGGER": "it does not see the triggers",
    "SELECT": "it cannot read the rows",
}
GRANT = "GRANT {right} ON {database}.* TO the user of the source"


@dataclass(frozen=True)
class BothSides:
    """What was asked of both sides. `database` is that of the URI, or empty.

    `log` is None where the source is not followed.
    """

    facts: MySQLFacts
    supported: Supported
    instance: HostedInstance
    database: str
    log: MySQLLog | None = None


def report(compared: BothSides) -> PreflightReport:
    facts = compared.facts
    found: list[PreflightFinding] = [
        *_of_databases(compared),
        *sizes(facts.size_bytes, compared.instance),
    ]
    found += [*_of_version(compared), *_of_tables(compared), *_of_code(facts), *_of_rights(facts)]
    found += sync_preflight.findings(facts, compared.log, compared.database)
    engine = "mariadb" if facts.is_mariadb else "mysql"
    return PreflightReport(engine, facts.version, facts.size_bytes, tuple(found))


def _of_databases(compared: BothSides) -> Findings:
    facts, wanted = compared.facts, compared.database
    if wanted.lower() in SYSTEMS:
        told = f"the database {wanted} is the server's own"
        yield PreflightFinding("blocking", "no_database", told, "name another in the URI")
    elif facts.missing:
        told = f"the source has no database {wanted}, or its user has no rights on it"
        remedy = "name another in the URI, or give the user rights on it"
        yield PreflightFinding("blocking", "no_database", told, remedy)
    elif not facts.databases:
        told = "the user of the source sees no database but the server's own"
        yield PreflightFinding("blocking", "no_database", told, "name a user with rights on some")
    elif wanted:
        told = f"the database {wanted} becomes the instance's database {APP}"
        yield PreflightFinding("info", "databases", told)
    else:
        names = ", ".join(facts.databases)
        told = f"{len(facts.databases)} databases are copied under their own names: {names}"
        remedy = f"name one in the URI, so that it becomes the instance's database {APP}"
        yield PreflightFinding("info", "databases", told, remedy)
    if facts.databases and not facts.tables:
        yield PreflightFinding("warning", "empty", "there are no tables in the source")
    if facts.folds_names:
        told = "names of databases and tables differ by case in the instance, and not at the source"
        remedy = "look at the statements of the application, and of views and routines"
        yield PreflightFinding("warning", "names_by_case", told, remedy)


def _of_version(compared: BothSides) -> Findings:
    facts, own = compared.facts, release(compared.supported.version)
    if facts.number < OLDEST:
        yield PreflightFinding(
            "blocking",
            "older_version",
            f"the source is {facts.version}, which is older than MySQL 5.5 and MariaDB 5.5",
            "upgrade the source first",
        )
    if not facts.is_mariadb:
        yield PreflightFinding(
            "info",
            "mysql",
            f"the source is MySQL {facts.version}; what MariaDB does not know ends the copy, and "
            "the instance is as before",
        )
    elif facts.number > own:
        newer = ".".join(map(str, facts.number))
        told = f"the source is MariaDB {newer}, and the instance is {'.'.join(map(str, own))}"
        yield PreflightFinding(
            "warning",
            "newer_version",
            f"{told}; what the older version does not know ends the copy",
            f"migrate into an instance of MariaDB {newer} or newer",
        )


def _of_tables(compared: BothSides) -> Findings:
    facts, supported = compared.facts, compared.supported
    for table in facts.rows:
        yield from _of_engine(table, supported)
    others = [
        each.shown for each in facts.rows if each.engine.lower() not in TRANSACTIONAL | ELSEWHERE
    ]
    if others:
        yield PreflightFinding(
            "warning",
            "not_transactional",
            f"tables with engines without transactions: {some(others)}; what is written to them "
            "meanwhile makes the copy differ",
            "stop writing to them during the copy, or give them the engine InnoDB",
        )
    if versioned := [each.shown for each in facts.rows if each.type == "SYSTEM VERSIONED"]:
        yield PreflightFinding(
            "warning",
            "history",
            f"only the current rows of system-versioned tables are copied: {some(versioned)}",
        )
    keyless = [
        each.shown for each in facts.rows if (each.database, each.name) not in facts.with_key
    ]
    if keyless:
        told = f"tables without a primary key: {some(keyless)}"
        yield PreflightFinding("info", "tables_without_primary_key", told)
    for name in sorted(facts.collations):
        if _known(name) not in supported.collations:
            yield PreflightFinding(
                "blocking",
                "missing_collation",
                f"the instance has no collation {name}",
                "give another to the columns, tables and databases that have it",
                name,
            )


def _known(collation: str) -> str:
    """As the instance names it. Older servers call utf8mb3 by its former name."""
    if collation.startswith("utf8_"):
        return collation.replace("utf8_", "utf8mb3_", 1)
    return known_collation(collation)


def _of_engine(table: MySQLTable, supported: Supported) -> Findings:
    engine = table.engine.lower()
    if engine in ELSEWHERE:
        yield PreflightFinding(
            "blocking",
            "rows_elsewhere",
            f"the rows of a table with the engine {table.engine} are not in it",
            "drop it at the source, or copy its rows into a table of InnoDB",
            table.shown,
        )
    elif engine == MEMORY and table.rows:
        yield PreflightFinding(
            "blocking",
            "rows_in_memory",
            "the rows of a table with the engine MEMORY would be lost with each start",
            "give it the engine InnoDB, or empty it",
            table.shown,
        )
    elif engine not in supported.engines:
        told = f"the instance has no engine {table.engine}: the table gets the engine InnoDB"
        yield PreflightFinding("warning", "missing_engine", told, None, table.shown)


def _of_code(facts: MySQLFacts) -> Findings:
    definers = sorted({each.definer for each in facts.code})
    if definers:
        yield PreflightFinding(
            "info",
            "definers",
            f"the definers of views, routines, triggers and events ({some(definers)}) become the "
            f"instance's user ({APP})",
        )
    events = [each.shown for each in facts.code if each.kind == "event"]
    if events:
        yield PreflightFinding(
            "info",
            "events",
            f"events that are enabled run in the instance from its next minute on: {some(events)}",
            "disable what must not run twice",
        )


def _of_rights(facts: MySQLFacts) -> Findings:
    for code in (each for each in facts.code if each.is_hidden):
        right = "SHOW VIEW" if code.kind == "view" else "SELECT on mysql.proc (MySQL: SHOW_ROUTINE)"
        yield PreflightFinding(
            "blocking",
            "missing_right",
            f"the user of the source cannot read how the {code.kind} is defined",
            f"give it the right {right}",
            code.shown,
        )
    for database in facts.databases:
        all_of_them = [each.name for each in facts.tables if each.database == database]
        with_rows = [each.name for each in facts.rows if each.database == database]
        yield from _of_right("SELECT", facts, database, all_of_them)
        yield from _of_right("TRIGGER", facts, database, with_rows)
        yield from _of_right("EVENT", facts, database, None)
        if not _sees_routines(facts, database):
            yield PreflightFinding(
                "warning",
                "routines_not_seen",
                "the user of the source may not see all routines; those that it does not see are "
                "not copied",
                GRANT.format(right="EXECUTE", database=database),
                database,
            )


def _of_right(
    right: str, facts: MySQLFacts, database: str, tables: Sequence[str] | None
) -> Findings:
    """On all of a database, or on each of the tables."""
    if facts.grants.has(right, database):
        return
    lacking = [each for each in tables or () if not facts.grants.has(right, database, each)]
    if tables is not None and not lacking:
        return
    of = f" of {some(lacking)}" if lacking else ""
    yield PreflightFinding(
        "blocking",
        "missing_right",
        f"the user of the source does not have the right {right}: {WITHOUT[right]}{of}",
        GRANT.format(right=right, database=database),
        database,
    )


def _sees_routines(facts: MySQLFacts, database: str) -> bool:
    rights = ("EXECUTE", "CREATE ROUTINE", "ALTER ROUTINE", "SHOW_ROUTINE", "SHOW CREATE ROUTINE")
    return facts.grants.has("SELECT", "mysql", "proc") or any(
        facts.grants.has(each, database) for each in rights
    )
