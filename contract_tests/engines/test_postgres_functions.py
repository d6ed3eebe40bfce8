"""Functions of PostgreSQL itself that a superuser changed are as in a new cluster again."""

import pytest

from cell.engines.driver import EngineError
from contract_tests.engines.conftest import Subject
from contract_tests.engines.postgres_sessions import (
    ask,
    every_version_lent,
    newest_lent,
    session,
    superuser,
    value,
)
from contract_tests.engines.test_postgres_leftovers import rotate, start

EVERYTHING = "SELECT md5(string_agg(p::text, ';' ORDER BY oid)) FROM pg_proc p WHERE oid < 12000"
CHANGED = (
    # Of another language; one whose body is a tree; and what decides as whom it runs.
    """CREATE OR REPLACE FUNCTION pg_catalog.lower(text) RETURNS text LANGUAGE plpgsql IMMUTABLE
    AS $$ BEGIN CREATE ROLE again SUPERUSER; RETURN 'evil'; END $$""",
    """CREATE OR REPLACE FUNCTION pg_catalog.lpad(text, integer) RETURNS text LANGUAGE sql
    IMMUTABLE AS 'SELECT ''evil''::text'""",
    """CREATE OR REPLACE FUNCTION pg_catalog.upper(text) RETURNS text LANGUAGE internal
    IMMUTABLE STRICT AS 'pg_read_file_all'""",
    "ALTER FUNCTION pg_catalog.initcap(text) SECURITY DEFINER SET work_mem = '64kB'",
    "ALTER FUNCTION pg_catalog.md5(text) OWNER TO app",
    "ALTER FUNCTION pg_catalog.repeat(text, integer) RENAME TO again",
)


def _digests(subject: Subject) -> set[str]:
    found = set()
    for database in ("app", "postgres", "template1", "copied"):
        with session(subject, superuser(subject), database) as connection:
            found.update(connection.execute(EVERYTHING.encode()).fetchall())
    return {digest for (digest,) in found}


@pytest.mark.nightly
@every_version_lent
def test_changed_functions_of_the_server_are_restored(lent: Subject) -> None:
    ask(lent, "CREATE DATABASE copied")
    (before,) = _digests(lent)
    for database in ("app", "template1", "copied"):
        with session(lent, superuser(lent), database) as connection:
            connection.execute("SET allow_system_table_mods = on")
            for statement in CHANGED:
                connection.execute(statement.encode())
    assert _digests(lent) != {before}
    rotate(lent)
    assert _digests(lent) == {before}
    assert value(lent, "SELECT lpad('x', 3) || upper('x') || repeat('x', 2)") == "  xXxx"
    assert value(lent, "SELECT count(*) FROM pg_cast WHERE casttarget = 194") == 0


# Slow for what it adds by day.
@pytest.mark.nightly
@newest_lent
def test_a_server_without_one_of_its_functions_is_refused(lent: Subject) -> None:
    with session(lent, superuser(lent)) as connection:
        connection.execute("SET allow_system_table_mods = on")
        connection.execute("DELETE FROM pg_proc WHERE proname = 'initcap'")
    with pytest.raises(EngineError, match=r"changed in the database app .* restore a backup"):
        rotate(lent)
    with pytest.raises(EngineError, match="changed in the database app"):
        start(lent)
