"""Logins that a tenant prepares, or bends, so that a rotation gives him more than it should."""

import psycopg
import pytest

from cell.engines.driver import EngineError, Login
from contract_tests.engines.conftest import Subject
from contract_tests.engines.postgres_sessions import (
    ask,
    every_version_lent,
    newest_lent,
    session,
    superuser,
)

# The marks of our logins that a tenant can make himself.
PREPARED = (
    "CREATE ROLE app_2 LOGIN PASSWORD 'known to the former holder'",
    "COMMENT ON ROLE app_2 IS 'login of a credential'",
    "ALTER ROLE app_2 SET role = 'app'",
    "CREATE ROLE stranger LOGIN PASSWORD 'known to the former holder'",
    "GRANT app_2 TO stranger WITH ADMIN OPTION",
    "CREATE ROLE app_3 LOGIN PASSWORD 'known to the former holder' IN ROLE app_2",
    "COMMENT ON ROLE app_3 IS 'login of a credential'",
)
# What the holder of a former credential tries on those that follow.
TAKING = (
    "ALTER ROLE app_2 PASSWORD 'mine'",
    "ALTER ROLE app_2 NOLOGIN",
    "ALTER ROLE app_2 VALID UNTIL '2000-01-01'",
    "ALTER ROLE app_2 CONNECTION LIMIT 0",
    "ALTER ROLE app_2 RENAME TO mine",
    "ALTER ROLE app_2 SET role = 'none'",
    "DROP ROLE app_2",
    "COMMENT ON ROLE app_2 IS 'mine'",
    "GRANT app_2 TO app",
    "GRANT app_2 TO stranger",
    "GRANT app TO stranger",
    "GRANT app TO stranger WITH ADMIN OPTION",
    "REVOKE app FROM app_2",
    "CREATE ROLE another IN ROLE app",
    "CREATE ROLE another ROLE app_2 IN ROLE app",
    "SET ROLE app_2",
    "SET SESSION AUTHORIZATION app_2",
    "ALTER ROLE menagerie SET role = 'app'",
    "ALTER ROLE menagerie IN DATABASE app SET role = 'app'",
    "ALTER DATABASE postgres SET role = 'app'",
    "CREATE ROLE pg_mine",
)
# Each is a setting of his database, and would keep us from working in it or bend what we do there.
SETTINGS = (
    "search_path = public",
    "transaction_timeout = '1ms'",
    "idle_session_timeout = '1ms'",
    "statement_timeout = '1ms'",
    "default_transaction_read_only = on",
    "role = 'stranger'",
    "quote_all_identifiers = on",
    "transform_null_equals = on",
    "local_preload_libraries = 'nothing'",
)
BENT = (
    "CREATE ROLE stranger LOGIN CREATEROLE",
    "GRANT app, app_2 TO stranger WITH ADMIN OPTION",
    "CREATE ROLE another LOGIN",
    "SET ROLE stranger",
    "GRANT app, app_2 TO another",
    "RESET ROLE",
    "GRANT menagerie TO another",
    "ALTER ROLE app_2 SUPERUSER CREATEROLE",
)
MEMBERS = """
SELECT r.rolname, m.rolname FROM pg_auth_members
JOIN pg_roles r ON r.oid = roleid JOIN pg_roles m ON m.oid = member
WHERE r.rolname ~ '^app(_[0-9]+)?$' OR r.rolname = 'menagerie' ORDER BY 1, 2
"""
FORMER = "known to the former holder"


def prepare(running: Subject) -> None:
    with session(running) as connection:
        for statement in PREPARED:
            connection.execute(statement.encode())


@pytest.mark.nightly
@newest_lent
def test_a_login_that_was_prepared_is_not_adopted(lent: Subject) -> None:
    prepare(lent)
    for _ in range(2):
        new = lent.new_login()
        lent.accept(new, lent.login)
        assert lent.works(new)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            ask(lent, f"ALTER ROLE {new.username} PASSWORD 'mine'")
        assert not lent.works(Login(new.username, FORMER))
        assert lent.works(new)
        lent.accept(new)
        lent.login = new
    assert ask(lent, MEMBERS) == [("app", "app_0"), ("app", "app_3")]


@pytest.mark.nightly
@newest_lent
def test_a_tenants_role_in_the_place_of_a_login_is_renamed(lent: Subject) -> None:
    prepare(lent)
    with session(lent) as connection:
        connection.execute("CREATE TABLE t (n int)")
        connection.execute("GRANT SELECT ON t TO app_2")
    lent.accept(new := lent.new_login())
    found = ask(lent, "SELECT rolname FROM pg_roles WHERE rolname ~ '^app_2_'", new)
    assert len(found) == 1
    # He has not lost it, nor what it may do.
    with session(lent, Login(found[0][0], FORMER)) as connection:
        connection.execute("RESET ROLE")
        connection.execute("SELECT * FROM t")


# By day a login that was prepared, which is the worst of it.
@pytest.mark.nightly
@newest_lent
def test_foreign_members_of_a_login_are_removed(lent: Subject) -> None:
    """However they came to be there."""
    lent.accept(second := lent.new_login(), lent.login)
    with session(lent, superuser(lent)) as connection:
        for statement in BENT:
            connection.execute(statement.encode())
    lent.accept(second, lent.login)
    assert ask(lent, MEMBERS) == [("app", "app_0"), ("app", "app_2")]
    found = ask(lent, "SELECT rolsuper, rolvaliduntil::text FROM pg_roles WHERE rolname = 'app_2'")
    assert [str(each) for each in found[0]] == ["False", "infinity"]


# By day a login that was prepared, which is the worst of it.
@pytest.mark.nightly
@newest_lent
def test_a_former_login_ends_only_once_the_new_one_works(lent: Subject) -> None:
    lent.accept(second := lent.new_login())
    broken = Login("app_3", "not the password that the server gets")
    with session(lent, superuser(lent)) as connection:
        # Something is wrong with it that nobody thought of.
        connection.execute("CREATE ROLE app_3")
        connection.execute("GRANT app TO app_3")
        connection.execute("CREATE DATABASE elsewhere")
        connection.execute("REVOKE CONNECT ON DATABASE postgres FROM PUBLIC")
        connection.execute("GRANT CONNECT ON DATABASE postgres TO app_2")
    with pytest.raises(EngineError, match="login"):
        lent.accept(broken)
    assert lent.works(second)


@pytest.mark.nightly
@every_version_lent
def test_nobody_takes_a_login_from_who_has_it(lent: Subject) -> None:
    lent.accept(lent.new_login(), lent.login)
    if lent.spec.engine_version != "15":
        ask(lent, "CREATE ROLE stranger")
    else:
        with session(lent, superuser(lent)) as connection:
            connection.execute("CREATE ROLE stranger")
    for statement in TAKING:
        with session(lent) as connection, pytest.raises(psycopg.Error) as caught:
            connection.execute(statement.encode())
        assert not isinstance(caught.value, psycopg.OperationalError), (statement, caught.value)
    assert ask(lent, MEMBERS) == [("app", "app_0"), ("app", "app_2")]


@pytest.mark.nightly
@newest_lent
def test_settings_of_his_database_do_not_keep_us_from_ending_a_login(lent: Subject) -> None:
    lent.accept(second := lent.new_login(), lent.login)
    with session(lent, second) as connection:
        connection.execute("CREATE ROLE stranger")
        connection.execute("CREATE SCHEMA own")
        connection.execute("GRANT CREATE ON SCHEMA own TO app_2")
        connection.execute("SET ROLE NONE")
        connection.execute("CREATE TABLE own.strayed (n int)")
        connection.execute("RESET ROLE")
        connection.execute("REVOKE CREATE ON SCHEMA own FROM app_2")
        for setting in SETTINGS:
            connection.execute(f"ALTER DATABASE app SET {setting}".encode())
    lent.accept(third := lent.new_login())
    assert lent.works(third)
    with session(lent, superuser(lent), "postgres") as connection:
        found = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = 'app_2'")
        assert found.fetchone() is None


@pytest.mark.nightly
@newest_lent
def test_a_branch_of_what_was_prepared_has_no_more(lent: Subject) -> None:
    """The roles of where the data comes from are there, and none of them is one of ours."""
    prepare(lent)
    with session(lent, superuser(lent)) as connection:
        connection.execute("ALTER DATABASE app SET transaction_timeout = '1ms'")
    folder = lent.site.directory / "copied"
    lent.run(lent.driver.snapshot(lent.site, lent.process, lent.login, folder))
    lent.stop()
    lent.run(lent.driver.restore(lent.site, folder))
    lent.start()
    lent.accept(new := lent.new_login())
    assert lent.works(new)
    assert not lent.works(Login("app_2", FORMER))


@pytest.mark.nightly
@every_version_lent
def test_rights_that_no_owner_can_give_are_taken_away(lent: Subject) -> None:
    """However they were come by."""
    with session(lent, superuser(lent), "postgres") as connection:
        connection.execute("CREATE ROLE mighty LOGIN SUPERUSER REPLICATION BYPASSRLS PASSWORD 'p'")
        connection.execute("CREATE ROLE reader LOGIN PASSWORD 'p'")
        connection.execute("GRANT pg_execute_server_program TO reader, app")
        connection.execute("ALTER ROLE app SUPERUSER")
    with session(lent, Login("mighty", "p"), "postgres") as theirs:
        lent.accept(lent.login)
        with pytest.raises(psycopg.OperationalError):
            theirs.execute("SELECT 1")
    found = "SELECT rolname FROM pg_roles WHERE rolsuper OR rolreplication OR rolbypassrls"
    assert ask(lent, found) == [("menagerie",)]
    may = "pg_has_role('reader', 'pg_execute_server_program', 'member')"
    checks = f"""SELECT rolcanlogin, {may}, {may.replace("reader", "app")},
        pg_has_role('app', 'pg_monitor', 'member') FROM pg_roles WHERE rolname = 'mighty'"""
    assert ask(lent, checks) == [(False, False, False, True)]
    makes = ask(lent, "SELECT rolcreaterole FROM pg_roles WHERE rolname = 'app'")
    assert makes == [(lent.spec.engine_version != "15",)]
