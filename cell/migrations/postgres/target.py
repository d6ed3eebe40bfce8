"""The instance as a migration fills it: a new database beside the owner's, which takes its place.

Nothing that a failed migration did is seen by a client, and nothing of it stays. All of it is done
as the owner, never as the administrator, except for what only the server can do: the subscription,
and the end of clients' sessions.
"""

import asyncio
from contextlib import AbstractAsyncContextManager

import psycopg
from psycopg.rows import TupleRow

from cell.engines.driver import Login
from cell.engines.postgres import connections, logins, roles
from cell.engines.postgres.connections import NotRunningError
from cell.engines.postgres.driver import PostgreSQL
from cell.engines.postgres.installation import Installation
from cell.instances.hosted import HostedInstance
from cell.migrations.errors import MigrationError
from cell.migrations.postgres import psql
from cell.migrations.postgres.psql import DatabasePlace, PsqlSession, QueryError
from cell.migrations.postgres.quoting import identifier, literal
from cell.migrations.postgres.tables import ALIKE, tables
from cell.runtime.confined_tools import Toolbox
from cell.runtime.host import Host

DATABASE = roles.DATABASE
SWAPS_MAX = 12
SWAP_AGAIN_S = 1.0
# What an owner has made in a database, without what comes with one.
OBJECTS = """
SELECT to_json(found.name) FROM (
    SELECT n.nspname || '.' || c.relname AS name, 'pg_catalog.pg_class'::regclass AS class, c.oid
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
    UNION ALL SELECT n.nspname || '.' || p.proname, 'pg_catalog.pg_proc'::regclass, p.oid
    FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
    UNION ALL SELECT n.nspname || '.' || t.typname, 'pg_catalog.pg_type'::regclass, t.oid
    FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
    WHERE n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
    UNION ALL SELECT n.nspname, 'pg_catalog.pg_namespace'::regclass, n.oid
    FROM pg_catalog.pg_namespace n
    WHERE n.nspname NOT IN ('information_schema', 'public') AND n.nspname !~ '^pg_'
    UNION ALL SELECT 'large object ' || l.oid, 'pg_catalog.pg_largeobject'::regclass, l.oid
    FROM pg_catalog.pg_largeobject_metadata l
) AS found WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_depend d
    WHERE d.classid = found.class AND d.objid = found.oid AND d.deptype = 'e')
LIMIT 5
"""
EXTENSIONS = "SELECT to_json(extname) FROM pg_catalog.pg_extension WHERE extname <> 'plpgsql'"
# What owners set for their database and their roles there. Lists are written as they are.
SETTINGS = """
SELECT to_json(CASE WHEN setrole = 0 THEN format('ALTER DATABASE %I SET %I TO ', {new}, name)
    ELSE format('ALTER ROLE %I IN DATABASE %I SET %I TO ', setrole::regrole::name, {new}, name) END
    || CASE WHEN name IN ('search_path', 'temp_tablespaces') THEN value
        ELSE quote_literal(value) END)
FROM (SELECT setrole, split_part(each, '=', 1) AS name,
        substr(each, strpos(each, '=') + 1) AS value
    FROM pg_catalog.pg_db_role_setting JOIN pg_catalog.pg_database d ON d.oid = setdatabase,
        unnest(setconfig) AS each
    WHERE d.datname = {former}) AS settings
"""
GRANTS = """
SELECT to_json(format('GRANT %s ON DATABASE %I TO %s', a.privilege_type, {new},
    CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(a.grantee::regrole::name) END))
FROM pg_catalog.pg_database d, aclexplode(d.datacl) AS a
WHERE d.datname = {former} AND a.grantee <> d.datdba
"""
# Of clients: no login may end those of a later one, and so the server does.
END_SESSIONS = f"""
SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity
WHERE datname IN ({{names}}) AND backend_type = 'client backend' AND usename <> '{roles.SUPERUSER}'
"""  # noqa: S608 - our own words
# Nobody can connect to a database whose removal was broken off; its subscriptions went before.
SUBSCRIPTIONS = """
SELECT to_json(subname) FROM pg_catalog.pg_subscription
JOIN pg_catalog.pg_database d ON d.oid = subdbid
WHERE d.datname = {name} AND d.datconnlimit <> -2
"""


class PostgresTarget:
    """Of one migration. `database` is the new one's name."""

    def __init__(
        self,
        host: Host,
        instance: HostedInstance,
        driver: PostgreSQL,
        installation: Installation,
        database: str,
    ) -> None:
        site = instance.site
        self.instance = instance
        self.installation = installation
        self.database = database
        self._driver = driver
        self._folder = str(host.view(site).run)
        mounts = tuple(installation.mounts)
        self.toolbox = Toolbox(host, site, instance.record.spec.size, mounts)

    @property
    def login(self) -> Login:
        """The cell's own: what somebody left in the data runs in its sessions."""
        return logins.of_cell(self.toolbox.host, self.instance.site)

    @property
    def major(self) -> int:
        return int(self.installation.source.major)

    def program(self, name: str) -> str:
        return self.installation.program(name)

    def place(self, database: str | None = None) -> DatabasePlace:
        login = self.login
        given = (self._folder, login.username, login.password, database or self.database)
        return psql.place(*given, ())

    def session(self, database: str | None = None) -> AbstractAsyncContextManager[PsqlSession]:
        return psql.session(self.toolbox, self.program("psql"), self.place(database))

    async def objects(self, database: str = DATABASE) -> list[str]:
        """Some of what is in a database that should be empty."""
        async with self.session(database) as asked:
            await asked.run(*ALIKE)
            return [str(each) for each in await asked.rows(OBJECTS)]

    async def create(self) -> None:
        """Anew, with the extensions and settings that the owner's database has."""
        await self.drop()
        async with self.session(DATABASE) as asked:
            extensions = [str(each) for each in await asked.rows(EXTENSIONS)]
        new, former = literal(self.database), literal(DATABASE)
        async with self.session("postgres") as asked:
            await asked.run(*ALIKE, f"CREATE DATABASE {identifier(self.database)}")
            for query in (SETTINGS, GRANTS):
                found = await asked.rows(query.format(new=new, former=former))
                await asked.run(*map(str, found))
        async with self.session() as asked:
            for each in extensions:
                await asked.run(f"CREATE EXTENSION IF NOT EXISTS {identifier(each)} CASCADE")

    async def drop(self) -> None:
        """With its subscription, whoever is connected to it."""
        await self.forget_subscriptions()
        await self._drop(self.database)

    @property
    def former(self) -> str:
        """The name of what was the owner's database, until it is removed."""
        return f"before_{self.database}"

    async def swap(self) -> None:
        """The new database becomes the owner's, at once for everybody."""
        names = ", ".join(map(literal, (DATABASE, self.database)))
        renames = (
            "BEGIN",
            f"ALTER DATABASE {identifier(DATABASE)} RENAME TO {identifier(self.former)}",
            f"ALTER DATABASE {identifier(self.database)} RENAME TO {identifier(DATABASE)}",
            "COMMIT",
        )
        for attempt in range(SWAPS_MAX):
            try:
                await self.as_server(END_SESSIONS.format(names=names), database="postgres")
                async with self.session("postgres") as asked:
                    await asked.run(*renames)
                break
            except QueryError:
                if await self.has(self.former) and not await self.has(self.database):
                    # Nothing was heard of it, and it was done.
                    break
                # Somebody connected in between, or the server looks after its tables.
                if attempt == SWAPS_MAX - 1:
                    raise
            await asyncio.sleep(SWAP_AGAIN_S)

    async def drop_former(self) -> bool:
        """Whether something was made there meanwhile, so that it is kept."""
        if not await self.has(self.former):
            return False
        if await self.objects(self.former):
            return True
        await self._drop(self.former)
        return False

    async def _drop(self, database: str) -> None:
        """By the server, which alone may end whatever session there is; no code runs by it."""
        drop = f"DROP DATABASE IF EXISTS {identifier(database)} WITH (FORCE)"
        await self.as_server(drop, database="postgres")

    async def has(self, database: str) -> bool:
        async with self.session("postgres") as asked:
            query = "SELECT to_json(count(*)) FROM pg_catalog.pg_database WHERE datname ="
            return bool(await asked.value(f"{query}{literal(database)}"))

    async def give_back(self) -> None:
        """What a file says is done as the owner, who may drop or rename the database of clients."""
        if not await self.has(DATABASE):
            async with self.session("postgres") as asked:
                await asked.run(f"CREATE DATABASE {identifier(DATABASE)}")

    async def analyze(self) -> None:
        async with self.session() as asked:
            await asked.run(*(f"ANALYZE {each.sql}" for each in await tables(asked)))

    async def as_server(
        self, *statements: str, database: str | None = None
    ) -> list[tuple[object, ...]]:
        """As the administrator, by default in the new one; the rows of the last statement."""
        superuser = self._driver.superuser(self.instance.site)
        opened = connections.administration(
            self.instance.site.run, superuser, database or self.database, major=self.major
        )
        try:
            async with opened as connection:
                for each in statements:
                    found = await connection.execute(each.encode())
                return await found.fetchall() if found.description else []
        except NotRunningError as error:
            raise MigrationError("the engine of the instance does not respond") from error
        except psycopg.Error as error:
            raise QueryError(connections.reason(error)) from error

    def decoding(
        self, message_bytes_max: int
    ) -> AbstractAsyncContextManager[psycopg.AsyncConnection[TupleRow]]:
        """A connection that the changes of the owner's database come over."""
        place, superuser = self.instance.site.run, self._driver.superuser(self.instance.site)
        bounds = {"major": self.major, "message_bytes_max": message_bytes_max}
        return connections.decoding(place, superuser, DATABASE, **bounds)

    async def forget_subscriptions(self) -> None:
        """Without a word to the source: what is there is removed there."""
        async with self.session("postgres") as asked:
            names = await asked.rows(SUBSCRIPTIONS.format(name=literal(self.database)))
        for name in names:
            named = identifier(str(name))
            await self.as_server(
                f"ALTER SUBSCRIPTION {named} DISABLE",
                f"ALTER SUBSCRIPTION {named} SET (slot_name = NONE)",
                f"DROP SUBSCRIPTION {named}",
            )
