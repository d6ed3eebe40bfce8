"""What the owner of a PostgreSQL instance may do, and what no statement of his can."""

import psycopg
import pytest

from contract_tests.attacks.statements import fill, said
from contract_tests.engines.conftest import Subject
from contract_tests.engines.postgres_sessions import (
    ask,
    every_version_lent,
    every_version_shared,
    session,
    superuser,
    value,
)

ALLOWED = (
    "CREATE SCHEMA sales",
    "CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text)",
    "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
    "CREATE POLICY p ON t USING (true)",
    "CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN 1; END'",
    "CREATE DATABASE another",
    "CREATE PUBLICATION p FOR TABLE t",
    "SELECT pg_ls_waldir()",
    "SELECT query FROM pg_stat_activity",
    "SELECT pg_cancel_backend(0)",
    "ALTER DATABASE app SET work_mem = '8MB'",
    "ANALYZE",
    "DROP SCHEMA public CASCADE",
)
HOSTILE = [fill(statement) for statement in said("postgres", outcome="refused")]


@every_version_lent
def test_the_owner_can_do_what_owners_do(lent: Subject) -> None:
    with session(lent) as connection:
        for statement in ALLOWED:
            connection.execute(statement.encode())
    assert value(lent, "SELECT current_setting('is_superuser')") == "off"
    with session(lent, database="another") as connection:
        connection.execute("CREATE TABLE mine (n int)")


@every_version_shared
def test_hostile_statements_reach_nothing(shared: Subject) -> None:
    with session(shared, superuser(shared), "postgres") as other:
        other.execute("SELECT 1")
        for statement in HOSTILE:
            with session(shared) as connection, pytest.raises(psycopg.Error) as caught:
                connection.execute(statement.encode())
            assert not isinstance(caught.value, psycopg.OperationalError), (statement, caught.value)
        other.execute("SELECT 1")


@every_version_shared
def test_only_passwords_open_the_door(shared: Subject) -> None:
    for user, database in (("menagerie", "postgres"), ("app", "app"), ("root", "app")):
        for password in ("", "x"):
            with pytest.raises(psycopg.OperationalError, match="password"):
                psycopg.connect(
                    host=str(shared.site.run), user=user, password=password, dbname=database
                )
    # Nor is there a way in for those who would copy the whole cluster.
    with pytest.raises(psycopg.OperationalError, match=r"(?i)pg_hba|replication"):
        psycopg.connect(
            host=str(shared.site.run),
            user="app",
            password=shared.login.password,
            replication="database",
            dbname="app",
        )


@every_version_shared
def test_roles_the_owner_makes_are_his_and_never_more(shared: Subject) -> None:
    if shared.spec.engine_version == "15":
        # There, whoever makes roles may run programs on the server.
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            ask(shared, "CREATE ROLE reporting")
        return
    with session(shared) as connection:
        connection.execute("CREATE ROLE reporting LOGIN PASSWORD 'a long one of its own'")
        connection.execute("CREATE TABLE t (n int)")
        connection.execute("GRANT SELECT ON t TO reporting")
        connection.execute("SET ROLE reporting")
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (0,)
        connection.execute("RESET ROLE")
        for rights in ("SUPERUSER", "REPLICATION", "BYPASSRLS"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(f"ALTER ROLE reporting {rights}".encode())


@every_version_shared
def test_vectors_are_the_owners_to_use_where_the_source_has_them(shared: Subject) -> None:
    available = ask(shared, "SELECT 1 FROM pg_available_extensions WHERE name = 'vector'")
    if not available:
        pytest.skip("the source of this version has no pgvector")
    with session(shared) as connection:
        connection.execute("CREATE EXTENSION vector")
        connection.execute("CREATE TABLE items (at vector(3))")
        connection.execute("INSERT INTO items VALUES ('[1,2,3]'), ('[4,5,6]')")
        connection.execute("CREATE INDEX ON items USING hnsw (at vector_l2_ops)")
        found = connection.execute("SELECT at FROM items ORDER BY at <-> '[4,5,7]' LIMIT 1")
        assert found.fetchone() == ("[4,5,6]",)


@every_version_shared
def test_the_log_holds_no_statements(shared: Subject) -> None:
    secret = "a-password-that-must-not-be-written"
    for statement in (
        f"CREATE ROLE menagerie PASSWORD '{secret}'",
        f"ALTER ROLE nobody PASSWORD '{secret}'",
        f'SELECT 1/0 AS "{secret}"',
    ):
        with pytest.raises(psycopg.Error):
            ask(shared, statement)
    log = shared.site.log.read_text()
    assert secret not in log
    assert "SCRAM-SHA-256$" not in log
    assert "division by zero" in log
