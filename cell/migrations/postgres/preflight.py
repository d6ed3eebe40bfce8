"""What would go wrong with a source that is a running server, found before anything is changed."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cell.engines.postgres import extensions
from cell.migrations.postgres.psql import PsqlSession
from cell.migrations.postgres.tables import USERS, Sequence, SourceTable, sequences, tables
from cell.migrations.postgres.target import PostgresTarget
from cell.migrations.report import PreflightFinding, PreflightReport, sizes

SYNC_SINCE = 16
"""Before, the server applies changes as its superuser, and so runs the owner's triggers as it."""
DIGEST_SINCE = 11
OLDEST = 10
NAMES_SHOWN = 20
UNUSED = "; it is left out, as nothing depends on it"
FACTS = """
SELECT json_build_object(
    'version', current_setting('server_version'),
    'number', current_setting('server_version_num')::int,
    'bytes', pg_catalog.pg_database_size(current_database()),
    'encoding', pg_catalog.getdatabaseencoding(),
    'collation', (SELECT datcollate FROM pg_catalog.pg_database
        WHERE datname = current_database()),
    'recovering', pg_catalog.pg_is_in_recovery(),
    'wal_level', current_setting('wal_level'),
    'slots_max', current_setting('max_replication_slots')::int,
    'senders_max', current_setting('max_wal_senders')::int,
    'replicates', (SELECT rolreplication OR rolsuper FROM pg_catalog.pg_roles
        WHERE rolname = current_user),
    'publishes', pg_catalog.has_database_privilege(current_database(), 'CREATE'),
    'large_objects', (SELECT count(*) FROM pg_catalog.pg_largeobject_metadata))
"""
EXTENSIONS = """
SELECT json_build_object('name', e.extname, 'version', e.extversion, 'used', EXISTS (
    SELECT FROM pg_catalog.pg_depend d
    JOIN pg_catalog.pg_depend m ON m.classid = d.refclassid AND m.objid = d.refobjid
        AND m.deptype = 'e' AND m.refclassid = 'pg_catalog.pg_extension'::regclass
    WHERE m.refobjid = e.oid AND d.deptype <> 'e' AND NOT EXISTS (
        SELECT FROM pg_catalog.pg_depend o
        WHERE o.classid = d.classid AND o.objid = d.objid AND o.deptype IN ('e', 'i'))))
FROM pg_catalog.pg_extension e WHERE e.extname <> 'plpgsql' ORDER BY e.extname
"""
# What only a superuser can make.
FUNCTIONS = """
SELECT to_json(n.nspname || '.' || p.proname) FROM pg_catalog.pg_proc p
JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
JOIN pg_catalog.pg_language l ON l.oid = p.prolang
WHERE n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
AND NOT l.lanpltrusted AND p.prokind <> 'a' AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d
    WHERE d.classid = 'pg_catalog.pg_proc'::regclass AND d.objid = p.oid
    AND d.deptype IN ('e', 'i'))
ORDER BY 1::text LIMIT 20
"""
EVENT_TRIGGERS = """
SELECT to_json(evtname) FROM pg_catalog.pg_event_trigger ORDER BY evtname LIMIT 20
"""
FOREIGN_TABLES = f"""
SELECT to_json(n.nspname || '.' || c.relname)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'f' AND {USERS} ORDER BY 1::text LIMIT 20
"""  # noqa: S608 - our own words
POLICY_ROLES = """
SELECT DISTINCT to_jsonb(r.rolname) FROM pg_catalog.pg_policy p
JOIN pg_catalog.pg_roles r ON r.oid = ANY (p.polroles)
"""
OWNERS = f"""
SELECT to_json(count(DISTINCT c.relowner)) FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'S') AND {USERS}
"""  # noqa: S608 - our own words
GRANTS = f"""
SELECT to_json(count(*)) FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relacl IS NOT NULL AND c.relkind IN ('r', 'p', 'v', 'm', 'S') AND {USERS}
"""  # noqa: S608 - our own words
ROLES = "SELECT to_json(rolname) FROM pg_catalog.pg_roles"


@dataclass(frozen=True)
class SourceFacts:
    """What was asked of both sides."""

    asked: dict[str, Any]
    tables: list[SourceTable]
    sequences: list[Sequence]
    extensions: list[dict[str, Any]]
    named: dict[str, list[str]]
    counted: dict[str, int]
    roles: set[str]
    objects: list[str]

    @property
    def major(self) -> int:
        return int(self.asked["number"]) // 10_000


async def gather(source: PsqlSession, target: PostgresTarget) -> SourceFacts:
    queries = {
        "functions": FUNCTIONS,
        "event_triggers": EVENT_TRIGGERS,
        "foreign_tables": FOREIGN_TABLES,
        "policy_roles": POLICY_ROLES,
    }
    named = {name: list(map(str, await source.rows(each))) for name, each in queries.items()}
    async with target.session("postgres") as asked:
        roles = {str(each) for each in await asked.rows(ROLES)}
    return SourceFacts(
        dict(await source.value(FACTS)),
        await tables(source),
        await sequences(source),
        await source.rows(EXTENSIONS),
        named,
        {"owners": int(await source.value(OWNERS)), "grants": int(await source.value(GRANTS))},
        roles,
        await target.objects(),
    )


def report(facts: SourceFacts, target: PostgresTarget, *, syncs: bool) -> PreflightReport:
    found = [*_of_target(facts, target), *_of_source(facts, target), *_of_tables(facts)]
    if syncs:
        found += _of_sync(facts, target)
    asked = facts.asked
    return PreflightReport("postgres", str(asked["version"]), int(asked["bytes"]), tuple(found))


def of_objects(objects: list[str]) -> Iterator[PreflightFinding]:
    if objects:
        yield PreflightFinding(
            "blocking",
            "target_not_empty",
            f"the database of the instance has objects already, such as {', '.join(objects)}",
            "drop them, or migrate into a new instance",
        )


def of_version(major: int, target: PostgresTarget) -> Iterator[PreflightFinding]:
    if major > target.major:
        yield PreflightFinding(
            "blocking",
            "newer_version",
            f"the source is PostgreSQL {major}, and the instance is PostgreSQL {target.major}",
            f"migrate into an instance of PostgreSQL {major} or newer",
        )


def _of_target(facts: SourceFacts, target: PostgresTarget) -> Iterator[PreflightFinding]:
    yield from of_objects(facts.objects)
    yield from sizes(int(facts.asked["bytes"]), target.instance)
    yield from of_version(facts.major, target)
    if facts.major < OLDEST:
        yield PreflightFinding(
            "blocking",
            "older_version",
            f"the source is PostgreSQL {facts.asked['version']}, which is older than {OLDEST}",
            f"upgrade the source to PostgreSQL {OLDEST} or newer first",
        )
    elif facts.major < DIGEST_SINCE:
        yield PreflightFinding(
            "warning",
            "counts_only",
            "PostgreSQL 10 cannot compute digests, so only counts of rows are compared",
        )


def of_extensions(
    names: list[tuple[str, bool]], target: PostgresTarget, otherwise: str = UNUSED
) -> Iterator[PreflightFinding]:
    """Each with whether something is known to depend on it; `otherwise` is said of the others."""
    creatable = set(extensions.creatable(target.installation.source))
    for name, is_used in names:
        if name in creatable:
            continue
        yield PreflightFinding(
            "blocking" if is_used else "warning",
            "missing_extension",
            f"the instance has no extension {name}{'' if is_used else otherwise}",
            "drop it at the source with what depends on it" if is_used else None,
            name,
        )


def _of_source(facts: SourceFacts, target: PostgresTarget) -> Iterator[PreflightFinding]:
    asked, named = facts.asked, facts.named
    used = [(str(each["name"]), bool(each["used"])) for each in facts.extensions]
    yield from of_extensions(used, target)
    if asked["encoding"] not in ("UTF8", "SQL_ASCII"):
        yield PreflightFinding(
            "info", "encoding", f"texts are converted from {asked['encoding']} to UTF8"
        )
    elif asked["encoding"] == "SQL_ASCII":
        yield PreflightFinding(
            "warning",
            "encoding",
            "the source has no encoding (SQL_ASCII); texts that are not UTF-8 end the migration",
            "convert the texts at the source to UTF-8 first",
        )
    yield PreflightFinding(
        "info",
        "collation",
        f"the default order of texts is {asked['collation']} at the source and C.UTF-8 in the "
        "instance; columns with a collation of their own keep it",
    )
    for name in named["functions"][:NAMES_SHOWN]:
        yield PreflightFinding(
            "blocking",
            "untrusted_function",
            "only a superuser can create a function in its language",
            "drop it at the source, or rewrite it in SQL or PL/pgSQL",
            name,
        )
    for name in named["event_triggers"]:
        yield PreflightFinding(
            "warning", "event_trigger", "event triggers are left out", None, name
        )
    for name in named["foreign_tables"]:
        yield PreflightFinding(
            "blocking",
            "foreign_table",
            "foreign tables need the network, which instances do not have",
            "drop it at the source, or copy its rows into a table",
            name,
        )
    for name in sorted(set(named["policy_roles"]) - facts.roles):
        yield PreflightFinding(
            "blocking",
            "missing_role",
            f"policies name the role {name}, which the instance does not have",
            f"create it in the instance: CREATE ROLE {name}",
            name,
        )


def _of_tables(facts: SourceFacts) -> Iterator[PreflightFinding]:
    if facts.counted["owners"] > 1:
        yield PreflightFinding(
            "info",
            "owners",
            f"the objects have {facts.counted['owners']} owners; in the instance all are the "
            "owner's (app)",
        )
    if facts.counted["grants"]:
        yield PreflightFinding(
            "info",
            "grants",
            f"rights that were granted on {facts.counted['grants']} objects are not migrated",
            "grant them again in the instance",
        )
    if count := int(facts.asked["large_objects"]):
        yield PreflightFinding("info", "large_objects", f"the source has {count} large objects")


def _of_sync(facts: SourceFacts, target: PostgresTarget) -> Iterator[PreflightFinding]:
    asked = facts.asked
    if target.major < SYNC_SINCE:
        yield PreflightFinding(
            "blocking",
            "sync_not_supported",
            f"copy_and_sync needs an instance of PostgreSQL {SYNC_SINCE} or newer",
            "use the mode copy, or migrate into a newer instance",
        )
    if asked["recovering"]:
        yield PreflightFinding(
            "blocking", "standby", "the source is a standby", "use the address of the primary"
        )
    if asked["wal_level"] != "logical":
        yield PreflightFinding(
            "blocking",
            "wal_level",
            f"the source has wal_level = {asked['wal_level']}, and logical replication needs more",
            "set wal_level = logical at the source and restart it, or use the mode copy",
        )
    if not asked["replicates"]:
        yield PreflightFinding(
            "blocking",
            "replication_right",
            "the user of the source does not have the right to replicate",
            "ALTER ROLE … REPLICATION at the source, or name another user",
        )
    if not asked["publishes"]:
        yield PreflightFinding(
            "blocking",
            "publication_right",
            "the user of the source cannot create publications in its database",
            "GRANT CREATE ON DATABASE … to it, or name another user",
        )
    if int(asked["large_objects"]):
        yield PreflightFinding(
            "blocking",
            "large_objects_not_synced",
            "logical replication does not carry large objects",
            "use the mode copy, or move them into columns of type bytea",
        )
    yield from _of_synced_tables(facts)


def _of_synced_tables(facts: SourceFacts) -> Iterator[PreflightFinding]:
    for table in facts.tables:
        if table.persistence == "u":
            yield PreflightFinding(
                "warning",
                "unlogged_tables",
                "the table is unlogged, and its rows are copied at the cutover",
                None,
                table.shown,
            )
            continue
        if not table.has_key:
            yield PreflightFinding(
                "blocking",
                "tables_without_primary_key",
                "the table has no primary key, so its rows could not be changed while it syncs",
                f"add a primary key, or ALTER TABLE {table.sql} REPLICA IDENTITY FULL",
                table.shown,
            )
        if not table.is_owned:
            yield PreflightFinding(
                "blocking",
                "not_owner",
                "the user of the source does not own the table, so it cannot publish it",
                "name the owner of the table as the user of the source",
                table.shown,
            )
    if facts.sequences:
        yield PreflightFinding(
            "info",
            "sequences",
            f"the values of {len(facts.sequences)} sequences are taken over at the cutover",
        )
    yield PreflightFinding(
        "info",
        "schema_changes",
        "changes of the schema are not carried while it syncs; the cutover finds them",
    )
