"""The roles of an instance: the driver's own, the owner's, and one for each later credential."""

import secrets
from collections.abc import Mapping, Sequence

import psycopg
import structlog
from psycopg import AsyncConnection, sql
from psycopg.rows import TupleRow

from cell.engines.postgres import stored_settings
from instance_services.queues.installation import ROLES as GROUPS

log = structlog.get_logger("cell.postgres")

SUPERUSER = "menagerie"
OWNER = "app"
CELL = f"{OWNER}_0"
"""As whom the cell's tools act for the owner: a login that the gateway lets nobody use.

What somebody left in a database runs in their sessions, and can become who logged in: the newest
login must not be that.
"""
DATABASE = "app"
LOGINS = f"^{OWNER}_[0-9]+$"
CREATEROLE_SINCE = 16
"""Before, who may create roles may grant himself to run programs on the server."""

FIRST = 12000
"""Roles with lower numbers are the server's own: the superuser's and the predefined ones."""

Connection = AsyncConnection[TupleRow]

# Of the predefined roles this one is a member of others, in a new cluster.
MONITORS = ("pg_read_all_settings", "pg_read_all_stats", "pg_stat_scan_tables")

# Owners may make roles with such names, and write any comment on them. Membership in their own role
# is what they cannot give, so who has it from the superuser is a login that was made here: on this
# cluster, on the one that it was copied from, and before and after an upgrade.
FAMILY = f"""
SELECT r.rolname FROM pg_catalog.pg_roles r
WHERE r.rolname = '{OWNER}' OR r.rolname ~ '{LOGINS}' AND EXISTS (
    SELECT FROM pg_catalog.pg_auth_members
    WHERE roleid = '{OWNER}'::pg_catalog.regrole AND member = r.oid
    AND grantor = '{SUPERUSER}'::pg_catalog.regrole)
"""  # noqa: S608 - our own words
END_MIGHTY = """
SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity WHERE usename = %s
"""
# Nobody is a member of the superuser or of a login, and only logins are members of the owner.
FOREIGN = f"""
SELECT r.rolname, m.rolname, g.rolname FROM pg_catalog.pg_auth_members
JOIN pg_catalog.pg_roles r ON r.oid = roleid
JOIN pg_catalog.pg_roles m ON m.oid = member
JOIN pg_catalog.pg_roles g ON g.oid = grantor
WHERE r.rolname = '{SUPERUSER}' OR r.rolname <> '{OWNER}' AND r.rolname IN ({FAMILY})
OR r.rolname = '{OWNER}' AND m.rolname NOT IN ({FAMILY})
OR r.oid < {FIRST} AND NOT (m.rolname = 'pg_monitor' AND r.rolname IN {MONITORS})
    AND NOT (m.rolname = '{OWNER}' AND r.rolname = 'pg_monitor')
"""  # noqa: S608 - our own words
# What no owner can give. In 15 the right to make roles is worth that of the superuser.
MIGHTY = f"""
SELECT rolname FROM pg_catalog.pg_roles
WHERE oid >= {FIRST} AND (rolsuper OR rolreplication OR rolbypassrls OR rolcreaterole
    AND pg_catalog.current_setting('server_version_num')::int < {CREATEROLE_SINCE}0000)
"""  # noqa: S608 - our own words
# Statements do not change predefined roles, and rows can be. Nobody logs in as one.
PREDEFINED = f"""
UPDATE pg_catalog.pg_authid SET rolsuper = false, rolcanlogin = false, rolcreaterole = false,
    rolcreatedb = false, rolreplication = false, rolbypassrls = false, rolpassword = NULL
WHERE oid < {FIRST} AND oid <> 10 AND (rolsuper OR rolcanlogin OR rolcreaterole OR rolcreatedb
    OR rolreplication OR rolbypassrls OR rolpassword IS NOT NULL)
"""  # noqa: S608 - our own words
# Where owners make no roles, only a superuser made those that log in.
STRANGERS = f"""
SELECT rolname FROM pg_catalog.pg_roles WHERE oid >= {FIRST} AND rolcanlogin
AND rolname NOT IN ({FAMILY})
AND pg_catalog.current_setting('server_version_num')::int < {CREATEROLE_SINCE}0000
"""  # noqa: S608 - our own words
# Whoever makes a role has ADMIN on it, until the maker is dropped. Where ADMIN does not lead to one
# from the owner, nobody but a superuser could end it. (pg_has_role answers the same, and
# goes through all of the owner's roles anew for each.)
ORPHANS = f"""
WITH RECURSIVE owners AS (
    SELECT '{OWNER}'::pg_catalog.regrole::oid AS oid
    UNION SELECT roleid FROM pg_catalog.pg_auth_members JOIN owners ON member = owners.oid
), ruled AS (
    SELECT roleid FROM pg_catalog.pg_auth_members JOIN owners ON member = owners.oid
    WHERE admin_option)
SELECT r.oid, r.rolname FROM pg_catalog.pg_authid r
JOIN (SELECT oid FROM pg_catalog.pg_authid WHERE oid >= {FIRST}
    EXCEPT SELECT roleid FROM ruled) AS lost ON lost.oid = r.oid
WHERE r.rolname <> '{OWNER}' AND r.rolname NOT IN ({FAMILY})
ORDER BY NOT rolcanlogin, r.oid
"""  # noqa: S608 - our own words
# They make no more roles that would be lost like them.
WEAKEN_ORPHANS = f"""
UPDATE pg_catalog.pg_authid SET rolcreaterole = false, rolcreatedb = false
WHERE oid IN (SELECT oid FROM ({ORPHANS}) AS orphans)
"""  # noqa: S608 - our own words
ORPHANS_WITHIN_MS = 10_000
ORPHANS_AT_ONCE = 1_000
"""Are given back to the owner in one go: an intruder may have made any number."""
# A role may have a name of any bytes too. Whatever is wrong with one, credentials change.
GIVE_BACK_ORPHANS = f"""
DO $$
DECLARE
    one record;
BEGIN
    FOR one IN {ORPHANS} LIMIT {{}} LOOP
        BEGIN
            EXECUTE pg_catalog.format('GRANT %I TO {OWNER} WITH ADMIN OPTION', one.rolname);
        EXCEPTION WHEN OTHERS THEN
            RAISE LOG 'role % cannot be given back: %', one.oid, SQLERRM;
        END;
    END LOOP;
END $$
"""
OPEN_GROUPS = """
SELECT rolname FROM pg_catalog.pg_roles WHERE rolcanlogin AND rolname = ANY(%s)
"""
# Rights to set what owners cannot.
TIDY = (
    "DELETE FROM pg_catalog.pg_shdepend WHERE classid = 'pg_catalog.pg_parameter_acl'::regclass",
    "DELETE FROM pg_catalog.pg_parameter_acl",
)
# A database's name may be of any bytes, and so it stays on the server.
RESET_IN_DATABASES = """
DO $$
DECLARE
    one record;
BEGIN
    FOR one IN SELECT d.datname FROM pg_catalog.pg_db_role_setting
        JOIN pg_catalog.pg_database d ON d.oid = setdatabase WHERE setrole = {}::regrole
    LOOP
        EXECUTE pg_catalog.format('ALTER ROLE %I IN DATABASE %I RESET ALL', {}, one.datname);
    END LOOP;
END $$
"""
# Nobody changes roles meanwhile, nor makes us fail by changing one again and again. Logins read on.
ALONE = """
LOCK TABLE pg_catalog.pg_authid, pg_catalog.pg_auth_members, pg_catalog.pg_db_role_setting
IN SHARE ROW EXCLUSIVE MODE
"""
OWNING_IN = """
SELECT DISTINCT pg_catalog.encode(pg_catalog.textsend(datname::text), 'hex')
FROM pg_catalog.pg_shdepend JOIN pg_catalog.pg_database d
ON d.oid = dbid OR (dbid = 0 AND datname = 'postgres')
WHERE refclassid = 'pg_catalog.pg_authid'::pg_catalog.regclass
AND refobjid = (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = %s)
AND deptype = 'o' AND datallowconn AND datconnlimit <> -2
"""


def cluster_statements(major: int, verifier: str) -> list[str]:
    """For a new cluster, in the database `postgres`."""
    rights = "CREATEDB CREATEROLE" if major >= CREATEROLE_SINCE else "CREATEDB"
    return [
        f"ALTER ROLE {SUPERUSER} PASSWORD '{verifier}'",
        f"CREATE ROLE {OWNER} NOLOGIN NOSUPERUSER NOREPLICATION NOBYPASSRLS {rights}",
        f"COMMENT ON ROLE {OWNER} IS 'owner of the instance'",
        # Not to end every session: autovacuum runs what a former holder left, as the owner.
        f"GRANT pg_monitor TO {OWNER}",
        f"CREATE ROLE {CELL} INHERIT",
        f"GRANT {OWNER} TO {CELL}",
        f"COMMENT ON ROLE {CELL} IS 'tools of the service'",
        f"ALTER ROLE {CELL} SET role = {OWNER}",
        # The driver's own; others may look in, as tools do that ask for the list of databases.
        "REVOKE TEMPORARY ON DATABASE postgres FROM PUBLIC",
        f"CREATE DATABASE {DATABASE} OWNER {OWNER}",
    ]


async def set_password(connection: Connection, verifier: str) -> None:
    """The superuser's."""
    await _run(
        connection,
        "ALTER ROLE {} PASSWORD {}",
        sql.Identifier(SUPERUSER),
        sql.Literal(verifier),
    )


async def disable(connection: Connection) -> None:
    """No credential of where the data comes from works any more."""
    async with connection.transaction():
        await _expel(connection)
        for name in await _family(connection):
            await _forbid(connection, name)
            if name != OWNER:
                await reset(connection, name)


async def allow(connection: Connection, verifiers: Mapping[str, str]) -> None:
    """From now on these logins work, and nobody else has a hand in them. Within a transaction."""
    await connection.execute(ALONE)
    await _expel(connection)
    family = await _family(connection)
    for name, verifier in verifiers.items():
        if name not in family:
            await _make(connection, name)
        statement = (
            "ALTER ROLE {} LOGIN INHERIT NOSUPERUSER NOREPLICATION NOBYPASSRLS"
            " CONNECTION LIMIT -1 VALID UNTIL 'infinity' PASSWORD {}"
        )
        await _run(connection, statement, sql.Identifier(name), sql.Literal(verifier))


async def forbid_others(connection: Connection, verifiers: Mapping[str, str]) -> list[str]:
    """Answers which of our logins ended. Within a transaction."""
    await connection.execute(ALONE)
    ended = [name for name in await _family(connection) if name not in verifiers]
    for name in ended:
        await _forbid(connection, name)
    return ended


async def databases_owned_in(connection: Connection, name: str) -> Sequence[str]:
    """Where a login owns something; what the owner has stays the owner's.

    Without those whose name is no text, which no client of ours could ask for.
    """
    if name == OWNER:
        return []
    rows = await (await connection.execute(OWNING_IN, [name])).fetchall()
    names = [bytes.fromhex(database) for (database,) in rows]
    return [each.decode() for each in names if is_text(each)]


async def hand_over(connection: Connection, name: str) -> None:
    """What a login made after it stepped out of its role is the owner's all the same."""
    statement = "REASSIGN OWNED BY {} TO {}"
    await _run(connection, statement, sql.Identifier(name), sql.Identifier(OWNER))


async def drop(connection: Connection, name: str) -> None:
    """Only one that nothing refers to: rights and policies are not ours to take away."""
    if name == OWNER:
        return
    try:
        await _run(connection, "DROP ROLE {}", sql.Identifier(name))
    except psycopg.errors.DependentObjectsStillExist:
        log.info("cell.postgres.login_kept", role=name)


async def make_groups(connection: Connection, names: Sequence[str]) -> None:
    """Those that are not there are made; the owner may give them away.

    Nobody logs in as one, also where it was there: what is given to it is for its members. Before
    version 16 owners cannot make roles themselves.
    """
    async with connection.transaction():
        # Of two who make them at once one waits.
        await connection.execute("SELECT pg_catalog.pg_advisory_xact_lock(0, 0)")
        for name in names:
            there = "SELECT FROM pg_catalog.pg_roles WHERE rolname = %s"
            if await (await connection.execute(there, [name])).fetchone() is None:
                role, owner = sql.Identifier(name), sql.Identifier(OWNER)
                await _run(connection, "CREATE ROLE {} NOLOGIN", role)
                await _run(connection, "GRANT {} TO {} WITH ADMIN OPTION", role, owner)
        await _close_groups(connection)


def is_text(name: bytes) -> bool:
    """Databases in no encoding (SQL_ASCII) may give names of any bytes to others, and to roles."""
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


async def _family(connection: Connection) -> list[str]:
    return [name for (name,) in await (await connection.execute(FAMILY)).fetchall()]


async def _forbid(connection: Connection, name: str) -> None:
    await _run(connection, "ALTER ROLE {} NOLOGIN PASSWORD NULL", sql.Identifier(name))


async def expel(connection: Connection) -> None:
    """Nobody has what an owner cannot give, however it was come by."""
    async with connection.transaction():
        await connection.execute(ALONE)
        await _expel(connection)


async def _expel(connection: Connection) -> None:
    if (await connection.execute(PREDEFINED.encode())).rowcount:
        log.warning("cell.postgres.role_stripped", role="a predefined role")
    for (name,) in await (await connection.execute(STRANGERS)).fetchall():
        await _run(connection, "ALTER ROLE {} NOLOGIN", sql.Identifier(name))
        await connection.execute(END_MIGHTY, [name])
        log.warning("cell.postgres.role_stripped", role=name)
    await stored_settings.clear(connection)
    for statement in TIDY:
        await connection.execute(statement.encode())
    for (name,) in await (await connection.execute(MIGHTY)).fetchall():
        rights = "NOSUPERUSER NOREPLICATION NOBYPASSRLS"
        if connection.info.server_version < CREATEROLE_SINCE * 10_000:
            rights += " NOCREATEROLE"
        await _run(connection, f"ALTER ROLE {{}} {rights} NOLOGIN", sql.Identifier(name))
        await connection.execute(END_MIGHTY, [name])
        log.warning("cell.postgres.role_stripped", role=name)
    for role, member, grantor in await (await connection.execute(FOREIGN)).fetchall():
        names = [sql.Identifier(each) for each in (role, member, grantor)]
        await _run(connection, "REVOKE {} FROM {} GRANTED BY {} CASCADE", *names)
        log.warning("cell.postgres.member_expelled", role=role, member=member)
    await _close_groups(connection)


async def _close_groups(connection: Connection) -> None:
    """A former holder who can log in as one would read each queue that is made later."""
    for (name,) in await (await connection.execute(OPEN_GROUPS, [list(GROUPS)])).fetchall():
        await _forbid(connection, name)
        await connection.execute(END_MIGHTY, [name])
        log.warning("cell.postgres.role_stripped", role=name)


async def give_back_orphans(connection: Connection) -> None:
    """The owner can change, end and drop each role of his instance; as far as time allows.

    Apart from what changes credentials: an intruder may have made any number of roles.
    """
    try:
        async with connection.transaction():
            await connection.execute(f"SET LOCAL statement_timeout = {ORPHANS_WITHIN_MS}".encode())
            # Catalogs that grew a moment ago look small to the planner, which would compare each
            # role with each.
            await connection.execute("SET LOCAL enable_nestloop = off")
            await connection.execute(ALONE)
            found = (await connection.execute(WEAKEN_ORPHANS.encode())).rowcount
            if found:
                await _run(connection, GIVE_BACK_ORPHANS, sql.Literal(ORPHANS_AT_ONCE))
                log.warning("cell.postgres.roles_given_back", count=found)
    except psycopg.Error as error:
        if connection.closed:
            raise
        log.warning("cell.postgres.roles_not_given_back", reason=str(error)[:200])


async def _make(connection: Connection, name: str) -> None:
    """A role of the owner's that has the name keeps everything else."""
    role, owner = sql.Identifier(name), sql.Identifier(OWNER)
    found = await connection.execute("SELECT FROM pg_catalog.pg_roles WHERE rolname = %s", [name])
    if await found.fetchone() is not None:
        another = f"{name}_{secrets.token_hex(4)}"
        await _run(connection, "ALTER ROLE {} RENAME TO {}", role, sql.Identifier(another))
        log.warning("cell.postgres.role_renamed", role=name, to=another)
    await _run(connection, "CREATE ROLE {} INHERIT", role)
    await _run(connection, "GRANT {} TO {}", owner, role)
    await _run(connection, "COMMENT ON ROLE {} IS 'login of a credential'", role)
    await reset(connection, name)


async def reset(connection: Connection, name: str) -> None:
    """A login acts as the owner from its first statement on, so that what it makes is his."""
    role = sql.Identifier(name)
    await _run(connection, RESET_IN_DATABASES, sql.Literal(name), sql.Literal(name))
    await _run(connection, "ALTER ROLE {} RESET ALL", role)
    if name != OWNER:
        await _run(connection, "ALTER ROLE {} SET role = {}", role, sql.Literal(OWNER))


async def _run(connection: Connection, statement: str, *parts: sql.Composable) -> None:
    await connection.execute(sql.SQL(statement).format(*parts))
