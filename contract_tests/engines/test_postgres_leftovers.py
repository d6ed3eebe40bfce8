"""What somebody who was superuser for a while left behind, and what the cell leaves of it."""

from collections.abc import Callable
from dataclasses import replace

import psycopg
import pytest

from cell.engines.postgres import PostgreSQL
from contract_tests.by_day import one_in
from contract_tests.engines.conftest import Subject
from contract_tests.engines.postgres_sessions import (
    NEWEST,
    ask,
    every_version,
    every_version_lent,
    newest_lent,
    session,
    superuser,
    upgraded,
    value,
)

BODY = "LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'CREATE ROLE again SUPERUSER'; END $$"
PLANTED = (
    f"CREATE FUNCTION public.door() RETURNS void SECURITY DEFINER {BODY}",
    f"CREATE PROCEDURE public.act() SECURITY DEFINER {BODY}",
    f'CREATE FUNCTION pg_catalog."an ""odd"" one"() RETURNS void SECURITY DEFINER {BODY}',
    f"CREATE FUNCTION public.fired() RETURNS trigger SECURITY DEFINER {BODY}",
    "CREATE TABLE public.mine (n int)",
    (
        "CREATE TRIGGER fires BEFORE INSERT ON public.mine FOR EACH ROW"
        " EXECUTE FUNCTION public.fired()"
    ),
    "CREATE VIEW public.secrets AS SELECT rolname, rolpassword FROM pg_authid",
    "GRANT SELECT ON public.secrets TO app",
    "CREATE RULE ruled AS ON DELETE TO public.mine DO INSTEAD SELECT public.door()",
    f"CREATE FUNCTION public.evented() RETURNS event_trigger SECURITY DEFINER {BODY}",
    "CREATE FUNCTION public.native(text) RETURNS text LANGUAGE internal AS 'pg_read_file_all'",
    "CREATE FUNCTION public.used(int) RETURNS int LANGUAGE internal IMMUTABLE AS 'int4abs'",
    "CREATE TABLE public.using (n int CHECK (public.used(n) > 0))",
    "ALTER FUNCTION public.used(int) OWNER TO app",
    (
        "CREATE FUNCTION public.lib(text) RETURNS text LANGUAGE c"
        " AS '$libdir/dict_snowball', 'dsnowball_init'"
    ),
    "CREATE FUNCTION public.cast_it(text) RETURNS regrole LANGUAGE sql AS 'SELECT 10::regrole'",
    "CREATE CAST (text AS regrole) WITH FUNCTION public.cast_it(text)",
    "CREATE OPERATOR public.### (FUNCTION = public.used, RIGHTARG = int)",
    "CREATE SCHEMA hidden",
    f"CREATE FUNCTION hidden.deep() RETURNS void SECURITY DEFINER {BODY}",
    "ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO app",
    "GRANT EXECUTE ON FUNCTION pg_catalog.pg_read_file(text) TO app",
    "GRANT SELECT ON pg_catalog.pg_authid TO app",
    "GRANT UPDATE (rolsuper) ON pg_catalog.pg_authid TO app",
    "SELECT lo_from_bytea(4242, 'x')",
    "CREATE EVENT TRIGGER watching ON ddl_command_end EXECUTE FUNCTION public.evented()",
    "ALTER EVENT TRIGGER watching ENABLE ALWAYS",
)
SHARED = (
    "GRANT pg_execute_server_program TO pg_monitor",
    "CREATE ROLE stranger LOGIN PASSWORD 'p'",
    "GRANT SET ON PARAMETER session_preload_libraries TO app",
    "ALTER ROLE app SET session_preload_libraries = ''",
    "ALTER DATABASE app SET dynamic_library_path = '/tmp'",
    "ALTER ROLE ALL SET search_path = 'public'",
    "ALTER ROLE menagerie SET work_mem = '5MB'",
    "ALTER DATABASE postgres SET work_mem = '6MB'",
    "ALTER DATABASE app SET work_mem = '7MB'",
    "GRANT CREATE ON DATABASE postgres TO app",
    "UPDATE pg_authid SET rolsuper = true WHERE rolname = 'pg_read_all_data'",
)
# What is left that is a superuser's, or lets do what only one may.
OWNED = """
SELECT 'function', oid::regprocedure::text FROM pg_proc WHERE proowner = 10 AND oid >= 16384
    AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = pg_proc.oid AND deptype IN ('e', 'i'))
UNION ALL SELECT 'relation', oid::regclass::text FROM pg_class
    WHERE relowner = 10 AND oid >= 16384 AND relkind <> 't' AND relkind <> 'i'
UNION ALL SELECT 'schema', nspname FROM pg_namespace
    WHERE nspowner = 10 AND oid >= 16384 AND nspname !~ '^pg_'
UNION ALL SELECT 'event trigger', evtname FROM pg_event_trigger
UNION ALL SELECT 'default', oid::text FROM pg_default_acl
UNION ALL SELECT 'operator', oid::text FROM pg_operator WHERE oprowner = 10 AND oid >= 16384
UNION ALL SELECT 'cast', oid::text FROM pg_cast WHERE oid >= 16384
UNION ALL SELECT 'large object', oid::text FROM pg_largeobject_metadata WHERE lomowner = 10
UNION ALL SELECT 'native', oid::regprocedure::text FROM pg_proc WHERE oid >= 16384
    AND prolang IN (SELECT oid FROM pg_language WHERE lanname IN ('c', 'internal'))
UNION ALL SELECT 'right', proname FROM pg_proc WHERE proacl::text ~ 'app=' AND oid < 16384
UNION ALL SELECT 'right', relname FROM pg_class WHERE relacl::text ~ 'app=' AND oid < 16384
UNION ALL SELECT 'right', attname FROM pg_attribute WHERE attacl::text ~ 'app='
UNION ALL SELECT 'right', lanname FROM pg_language WHERE lanacl IS NOT NULL AND oid < 12000
UNION ALL SELECT 'database', datname FROM pg_database
    WHERE datname <> 'app' AND datacl::text ~ 'app='
UNION ALL SELECT 'parameter', parname FROM pg_parameter_acl
"""
SETTINGS = "SELECT unnest(setconfig) FROM pg_db_role_setting ORDER BY 1"
MEMBERS = """SELECT pg_has_role('app', 'pg_execute_server_program', 'member'),
(SELECT rolsuper FROM pg_roles WHERE rolname = 'pg_read_all_data'),
(SELECT rolcanlogin FROM pg_roles WHERE rolname = 'stranger')"""


def rotate(subject: Subject) -> None:
    subject.accept(subject.login)


def start(subject: Subject) -> None:
    subject.stop()
    subject.start()


def branch(subject: Subject) -> None:
    folder = subject.site.directory / "copied"
    subject.run(subject.driver.snapshot(subject.site, subject.process, subject.login, folder))
    subject.stop()
    subject.run(subject.driver.restore(subject.site, folder))
    subject.accept(subject.login)
    subject.start()


def upgrade(subject: Subject) -> None:
    former = subject.spec
    wanted = subject.driver.versions()[0]
    if wanted == former.engine_version:
        pytest.skip("there is no newer version on this machine")
    subject.stop()
    subject.spec = replace(former, engine_version=wanted)
    subject.run(subject.driver.upgrade(subject.site, former, subject.spec))
    subject.start()


def plant(subject: Subject) -> None:
    for database in ("app", "postgres", "template1"):
        with session(subject, superuser(subject), database) as connection:
            for statement in PLANTED:
                connection.execute(statement.encode())
    with session(subject, superuser(subject), "postgres") as connection:
        connection.execute("ALTER EVENT TRIGGER watching DISABLE")
        for statement in SHARED:
            connection.execute(statement.encode())
        connection.execute("CREATE DATABASE closed TEMPLATE app")
        connection.execute("ALTER DATABASE closed ALLOW_CONNECTIONS false")


def check(subject: Subject, *, makes_roles: bool) -> None:
    with session(subject, superuser(subject), "postgres") as connection:
        connection.execute("ALTER DATABASE closed ALLOW_CONNECTIONS true")
    for database in ("app", "postgres", "template1", "closed"):
        with session(subject, superuser(subject), database) as connection:
            assert connection.execute(OWNED.encode()).fetchall() == [], database
    assert "work_mem=7MB" in (kept := [each for (each,) in ask(subject, SETTINGS)])
    assert set(kept) <= {"work_mem=7MB", "role=app"}
    assert ask(subject, MEMBERS) == [(False, False, makes_roles)]
    with session(subject) as connection:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT public.door()")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT * FROM public.secrets")
        # His data is not touched, nor what depended on something of it.
        connection.execute("SELECT * FROM public.mine, public.using")


@pytest.mark.nightly
@every_version_lent
@pytest.mark.parametrize("act", one_in(2, [rotate, branch]))
def test_nothing_a_superuser_left_stays_his(lent: Subject, act: Callable[[Subject], None]) -> None:
    plant(lent)
    act(lent)
    check(lent, makes_roles=lent.spec.engine_version != "15")


@every_version
@pytest.mark.nightly
def test_nothing_a_superuser_left_stays_his_after_a_start(running: Subject) -> None:
    plant(running)
    start(running)
    check(running, makes_roles=running.spec.engine_version != "15")


@upgraded
@pytest.mark.nightly  # by day in test_postgres_upgrade_intruders.py
def test_an_upgrade_restores_nothing_a_superuser_left(running: Subject) -> None:
    makes_roles = running.spec.engine_version != "15"
    plant(running)
    with session(running, superuser(running), "postgres") as connection:
        connection.execute("DROP DATABASE closed")
    upgrade(running)
    with session(running, superuser(running), "postgres") as connection:
        connection.execute("CREATE DATABASE closed")
    check(running, makes_roles=makes_roles)


# By day what a superuser left.
@pytest.mark.nightly
@every_version_lent
def test_settings_files_in_the_data_say_nothing(lent: Subject) -> None:
    """On 15 and 16 a superuser writes one of them by ALTER SYSTEM."""
    said = "hba_file = '/instance/data/mine.conf'\nsession_preload_libraries = 'evil'\n"
    said += "dynamic_library_path = '/tmp'\narchive_mode = on\narchive_command = 'false'\n"
    lent.stop()
    outside = lent.site.directory / "outside"
    outside.write_text("kept")
    automatic = lent.site.data.outside / "postgresql.auto.conf"
    automatic.write_text(said)
    (lent.site.data.outside / "pg_ident.conf").unlink()
    (lent.site.data.outside / "pg_ident.conf").symlink_to(outside)
    (lent.site.data.outside / "standby.signal").touch()
    lent.start()
    assert automatic.read_text() == ""
    assert outside.read_text() == "kept"
    for name, wanted in (
        *(("session_preload_libraries", ""), ("dynamic_library_path", "$libdir")),
        *(("archive_mode", "off"), ("transaction_read_only", "off")),
    ):
        assert value(lent, f"SHOW {name}") == wanted
    with session(lent, superuser(lent)) as connection:
        for statement in (f"SET {each}" for each in ("archive_command = 'x'",)):
            with pytest.raises(psycopg.Error):
                connection.execute(statement.encode())


LEGITIMATE = (
    "CREATE TYPE public.span AS RANGE (subtype = int)",
    "CREATE TYPE public.mood AS ENUM ('good')",
    "CREATE DOMAIN public.positive AS int CHECK (value > 0)",
    "CREATE TABLE public.t (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, s public.span)",
    "CREATE FUNCTION public.as_text(public.mood) RETURNS text LANGUAGE sql AS $$ SELECT 'm' $$",
    "CREATE CAST (public.mood AS text) WITH FUNCTION public.as_text(public.mood)",
    "CREATE AGGREGATE public.most (int) (SFUNC = int4larger, STYPE = int)",
    "CREATE FUNCTION public.own() RETURNS int SECURITY DEFINER LANGUAGE sql AS 'SELECT 1'",
    "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO PUBLIC",
    "CREATE TEMP TABLE passing (n int)",
    "GRANT USAGE ON SCHEMA public TO pg_monitor",
    "CREATE PUBLICATION pub FOR TABLE public.t",
)
# Everything there is, by name, with who owns it and who may use it.
CATALOGUE = """
SELECT 'f', oid::regprocedure::text, proowner, prosrc, proacl::text FROM pg_proc
UNION ALL SELECT 'r', oid::regclass::text, relowner, relkind::text, relacl::text FROM pg_class
    WHERE relnamespace NOT IN (SELECT oid FROM pg_namespace WHERE nspname ~ '^pg_(toast_)?temp')
UNION ALL SELECT 't', oid::text, typowner, typname, typacl::text FROM pg_type
    WHERE typnamespace NOT IN (SELECT oid FROM pg_namespace WHERE nspname ~ '^pg_(toast_)?temp')
UNION ALL SELECT 'o', oid::text, oprowner, oprname, '' FROM pg_operator
UNION ALL SELECT 'c', oid::text, 0, '', '' FROM pg_cast
UNION ALL SELECT 'x', extname, extowner, extversion, '' FROM pg_extension
UNION ALL SELECT 'n', nspname, nspowner, '', nspacl::text FROM pg_namespace
UNION ALL SELECT 'd', oid::text, defaclrole, '', defaclacl::text FROM pg_default_acl
UNION ALL SELECT 'l', lanname, lanowner, '', lanacl::text FROM pg_language
UNION ALL SELECT 'p', pubname, pubowner, '', '' FROM pg_publication
UNION ALL SELECT 'k', opcname, opcowner, '', '' FROM pg_opclass
UNION ALL SELECT 'a', attrelid::text || attname, 0, '', attacl::text FROM pg_attribute
    WHERE attacl IS NOT NULL
ORDER BY 1, 2, 4
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    "lent",
    [
        NEWEST,
        *(
            pytest.param(("postgres", each), marks=pytest.mark.nightly)
            for each in ("17", "16", "15")
        ),
    ],
    indirect=True,
)
def test_nothing_an_owner_made_is_touched(lent: Subject) -> None:
    """With every extension there is for him."""
    driver = lent.driver
    assert isinstance(driver, PostgreSQL)
    with session(lent) as connection:
        for name in driver.extensions()[lent.spec.engine_version]:
            connection.execute(f'CREATE EXTENSION IF NOT EXISTS "{name}" CASCADE'.encode())
        for statement in LEGITIMATE:
            connection.execute(statement.encode())
        before = connection.execute(CATALOGUE.encode()).fetchall()
        rotate(lent)
        assert connection.execute(CATALOGUE.encode()).fetchall() == before
    started = lent.site.log.stat().st_size
    start(lent)
    assert ask(lent, CATALOGUE) == before
    assert "ERROR" not in lent.site.log.read_text()[started:]


# As a cluster of an earlier version of ours has it.
GRANTED = (
    "DELETE FROM pg_init_privs WHERE objoid IN (SELECT oid FROM pg_proc WHERE proname = '{0}')",
    "UPDATE pg_proc SET proacl = NULL WHERE proname = '{0}'",
)
DENIED = """
SELECT p.proacl IS NOT DISTINCT FROM i.initprivs FROM pg_proc p
LEFT JOIN pg_init_privs i ON i.objoid = p.oid AND i.classoid = 'pg_proc'::regclass
WHERE p.proname = %s
"""
LARGE_RECORD = "SELECT pg_logical_emit_message(false, 'p', repeat('x', 1024))"


# By day what a superuser left.
@pytest.mark.nightly
@every_version_lent
def test_records_that_recovery_has_no_memory_for_are_nobodys(lent: Subject) -> None:
    for database in ("postgres", "template0", "template1", "app"):
        with session(lent, superuser(lent), "postgres") as connection:
            connection.execute(f"ALTER DATABASE {database} ALLOW_CONNECTIONS true".encode())
        with session(lent, superuser(lent), database) as connection:
            for statement in GRANTED:
                connection.execute(statement.format("pg_logical_emit_message").encode())
    with session(lent, superuser(lent), "postgres") as connection:
        connection.execute("ALTER DATABASE template0 ALLOW_CONNECTIONS false")
    ask(lent, LARGE_RECORD)
    start(lent)
    ask(lent, "CREATE DATABASE copied TEMPLATE template0")
    for database in ("postgres", "app", "copied"):
        with (
            session(lent, database=database) as connection,
            pytest.raises(psycopg.errors.InsufficientPrivilege),
        ):
            connection.execute(LARGE_RECORD.encode())
    # Dumps of them say nothing of it: elsewhere, their owner could not revoke it.
    with session(lent, superuser(lent)) as connection:
        told = connection.execute(DENIED, ["pg_logical_emit_message"]).fetchall()
    assert told == [(True,)] * len(told)
    assert told


@pytest.mark.nightly
@newest_lent
def test_extensions_nobody_is_offered_are_dropped(lent: Subject) -> None:
    with session(lent, superuser(lent)) as connection:
        connection.execute("CREATE EXTENSION dblink")
        connection.execute("CREATE EXTENSION postgres_fdw")
        connection.execute("CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw")
        connection.execute("CREATE EXTENSION pageinspect")
        connection.execute("CREATE VIEW public.pages AS SELECT get_raw_page('pg_authid', 0)")
        connection.execute("ALTER VIEW public.pages OWNER TO app")
        connection.execute("GRANT EXECUTE ON FUNCTION get_raw_page(text, int8) TO app")
    rotate(lent)
    assert ask(lent, "SELECT extname FROM pg_extension ORDER BY 1") == [
        ("pageinspect",),
        ("plpgsql",),
    ]
    assert ask(lent, "SELECT FROM pg_foreign_server") == []
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        ask(lent, "SELECT * FROM public.pages")


NATIVE = "LANGUAGE c AS '$libdir/dict_snowball', 'dsnowball_init'"
HIDDEN = (
    f"CREATE FUNCTION public.lib(text) RETURNS text {NATIVE}",
    "ALTER EXTENSION citext ADD FUNCTION public.lib(text)",
    "CREATE FUNCTION public.native(text) RETURNS text LANGUAGE internal AS 'pg_read_file_all'",
    "ALTER EXTENSION hstore ADD FUNCTION public.native(text)",
    "CREATE FUNCTION public.among(text) RETURNS text LANGUAGE internal AS 'pg_read_file_all'",
    "ALTER EXTENSION citext ADD FUNCTION public.among(text)",
)


# One of the sources of 16 comes without these extensions.
@pytest.mark.nightly
@pytest.mark.parametrize("lent", one_in(2, [NEWEST, ("postgres", "15")]), indirect=True)
def test_functions_added_to_an_extension_do_nothing(lent: Subject) -> None:
    ask(lent, "CREATE EXTENSION citext")
    ask(lent, "CREATE EXTENSION hstore")
    with session(lent, superuser(lent)) as connection:
        for statement in HIDDEN:
            connection.execute(statement.encode())
    rotate(lent)
    for name in ("lib", "native", "among"):
        assert value(lent, f"SELECT public.{name}('PG_VERSION')") is None
    assert value(lent, "SELECT 'A'::public.citext = 'a'::public.citext") is True


@pytest.mark.nightly
@every_version_lent
def test_tablespaces_are_dropped_or_nobodys(lent: Subject) -> None:
    with session(lent, superuser(lent)) as connection:
        connection.execute("SET allow_in_place_tablespaces = on")
        for name in ("unused", "used"):
            connection.execute(f"CREATE TABLESPACE {name} OWNER app LOCATION ''".encode())
            connection.execute(f"GRANT CREATE ON TABLESPACE {name} TO PUBLIC".encode())
    ask(lent, "CREATE TABLE kept TABLESPACE used AS SELECT 1 AS n")
    rotate(lent)
    assert ask(lent, "SELECT spcname FROM pg_tablespace WHERE oid >= 16384") == [("used",)]
    assert value(lent, "SELECT n FROM kept") == 1
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        ask(lent, "CREATE TABLE more (n int) TABLESPACE used")
