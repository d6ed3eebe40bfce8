"""Who may use a queue by the functions of the data API, tried by each role with SET ROLE."""

from typing import Any

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege

from contract_tests.by_day import one_in
from contract_tests.cell.queues.test_queues import Queues, make
from contract_tests.cell.rig import Rig

ROLES = ("anon", "authenticated", "service_role")
FUNCTIONS = {
    "send": "SELECT pgmq_public.send(%(queue)s, '{\"by\": 1}')",
    "send_batch": "SELECT pgmq_public.send_batch(%(queue)s, ARRAY['{}', '{}']::jsonb[], 0)",
    "read": "SELECT * FROM pgmq_public.read(%(queue)s, 30, 2)",
    "pop": "SELECT * FROM pgmq_public.pop(%(queue)s)",
    "archive": "SELECT pgmq_public.archive(%(queue)s, 1)",
    "delete": "SELECT pgmq_public.delete(%(queue)s, 2)",
}
FORBIDDEN = (
    "SELECT pgmq.create('theirs')",
    "SELECT pgmq.drop_queue('guarded')",
    "SELECT pgmq.purge_queue('guarded')",
    "SELECT pgmq.send('guarded', '{}')",
    "SELECT pgmq.read('guarded', 0, 1)",
    "SELECT pgmq.set_vt('guarded', 1, 0)",
    "SELECT * FROM pgmq.list_queues()",
    "SELECT * FROM pgmq.metrics_all()",
    "SELECT * FROM pgmq.meta",
    "SELECT * FROM pgmq.q_guarded",
    "SELECT * FROM pgmq.a_guarded",
    "INSERT INTO pgmq.q_guarded (vt, message) VALUES (now(), '{}')",
    "SELECT nextval('pgmq.q_guarded_msg_id_seq')",
    "SELECT * FROM menagerie_queues.access",
    "SELECT * FROM menagerie_queues.answers",
    "SELECT menagerie_queues.check_access('guarded')",
    "CREATE FUNCTION pgmq_public.send() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE TABLE pgmq.q_more ()",
)
NO_QUEUES = (
    "never", "GUARDED", "guarded ", "", "meta", "q_guarded", "guarded'; SELECT 1; --", "guarded--",
    'guarded"', "%I", "pgmq.q_guarded", None,
)  # fmt: skip


@pytest.fixture(scope="module")
def queues(shared_rig: Rig) -> Queues:
    made = make(shared_rig)
    made.make("guarded")
    return made


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("function", one_in(2, FUNCTIONS))
def test_who_is_listed_may_and_nobody_else(queues: Queues, role: str, function: str) -> None:
    name = queues.make(f"{function}_{role}")
    statement = FUNCTIONS[function].encode()
    with queues.session(role) as session:
        queues.permit(name, *(each for each in ROLES if each != role))
        with pytest.raises(InsufficientPrivilege, match=f"permission denied for queue {name}"):
            session.execute(statement, {"queue": name})
        queues.permit(name, role)
        session.execute(statement, {"queue": name})
        queues.permit(name)
        with pytest.raises(InsufficientPrivilege):
            session.execute(statement, {"queue": name})


def test_the_functions_do_what_they_say(queues: Queues) -> None:
    name = queues.make("working")
    with queues.session("service_role") as worker:

        def ask(statement: str) -> list[tuple[Any, ...]]:
            return worker.execute(statement.encode()).fetchall()

        assert ask("SELECT pgmq_public.send('working', '{\"n\": 1}')") == [(1,)]
        batch = "ARRAY['{\"n\": 2}', '{\"n\": 3}', '{\"n\": 4}']::jsonb[]"
        assert ask(f"SELECT pgmq_public.send_batch('working', {batch})") == [(2,), (3,), (4,)]
        read = ask("SELECT msg_id, message FROM pgmq_public.read('working', 60, 2)")
        assert read == [(1, {"n": 1}), (2, {"n": 2})]
        assert ask("SELECT msg_id FROM pgmq_public.pop('working')") == [(3,)]
        assert ask("SELECT pgmq_public.archive('working', 1)") == [(True,)]
        assert ask("SELECT pgmq_public.delete('working', 2)") == [(True,)]
        assert ask("SELECT pgmq_public.delete('working', 2)") == [(False,)]
        ask("SELECT pgmq_public.send('working', '{\"n\": 5}', 3600)")
        assert [
            each[0] for each in ask("SELECT msg_id FROM pgmq_public.read('working', 0, 9)")
        ] == [4]
    assert queues.list()[name]["total_messages"] == 5


@pytest.mark.parametrize("role", ROLES)
def test_nothing_else_of_pgmq_is_reachable(queues: Queues, role: str) -> None:
    with queues.session(role) as session:
        for statement in FORBIDDEN:
            with pytest.raises(InsufficientPrivilege):
                session.execute(statement.encode())


@pytest.mark.parametrize("function", FUNCTIONS)
def test_other_names_lead_nowhere(queues: Queues, function: str) -> None:
    with queues.session("service_role") as session:
        for name in NO_QUEUES:
            with pytest.raises(InsufficientPrivilege):
                session.execute(FUNCTIONS[function].encode(), {"queue": name})


def test_what_a_caller_puts_in_the_way_is_not_run(queues: Queues) -> None:
    """A function of the caller's, found before the system's own, would run as the owner."""
    queues.make("straight")
    with queues.session() as owner:
        owner.execute("CREATE SCHEMA IF NOT EXISTS theirs AUTHORIZATION service_role")
        owner.execute("GRANT TEMPORARY ON DATABASE app TO service_role")
    with queues.session("service_role") as session:
        session.execute(
            "CREATE FUNCTION theirs.format(text, VARIADIC text[]) RETURNS text LANGUAGE plpgsql"
            " AS $$ BEGIN RAISE 'run as %', current_user; END $$"
        )
        session.execute(
            "CREATE FUNCTION theirs.lower(text) RETURNS text LANGUAGE plpgsql"
            " AS $$ BEGIN RAISE 'run as %', current_user; END $$"
        )
        session.execute("CREATE TEMPORARY TABLE pg_roles (oid oid, rolname text)")
        session.execute("SET search_path = theirs, pg_temp, pg_catalog")
        for statement in FUNCTIONS.values():
            session.execute(statement.encode(), {"queue": "straight"})


def test_a_member_acts_as_its_group_and_a_stranger_as_nobody(queues: Queues) -> None:
    name = queues.make("grouped")
    with queues.session() as owner:
        server = owner.info.server_version
        if server < 160000:
            pytest.skip("owners of this version make no roles")
        owner.execute("CREATE ROLE worker")
        owner.execute("CREATE ROLE stranger")
        owner.execute("GRANT service_role TO worker")
        owner.execute("SET ROLE worker")
        assert owner.execute("SELECT pgmq_public.send(%s, '{}')", [name]).fetchall() == [(1,)]
        owner.execute("RESET ROLE")
        owner.execute("SET ROLE stranger")
        with pytest.raises(InsufficientPrivilege):
            owner.execute("SELECT pgmq_public.send(%s, '{}')", [name])


def test_a_queue_made_with_sql_has_the_default_roles(queues: Queues) -> None:
    with queues.session() as owner:
        owner.execute("SELECT pgmq.create('by_sql')")
        owner.execute("SELECT pgmq.create('By-SQL-2')")
        listed = queues.list()
        assert listed["by_sql"]["data_api_roles"] == ["service_role"]
        assert listed["By-SQL-2"]["depth"] == 0
        queues.permit("by_sql", "anon")
        owner.execute("SELECT pgmq.drop_queue('by_sql')")
        owner.execute("SELECT pgmq.create('by_sql')")
    assert queues.list()["by_sql"]["data_api_roles"] == ["service_role"], "rights go with a queue"
    assert queues.send("by_sql", {}) == [1]
    assert queues.act("POST", body={"name": "by_sql", "unlogged": False}).status_code == 409


@pytest.mark.nightly
def test_a_pgmq_of_the_owners_own_is_used(shared_rig: Rig) -> None:
    from pgmq.install import get_embedded_install_sql  # noqa: PLC0415 - slow to import

    queues = make(shared_rig)
    with queues.session() as owner:
        owner.execute(get_embedded_install_sql().encode())
        owner.execute("SELECT pgmq.create('earlier'), pgmq.send('earlier', '{}')")
    assert queues.list()["earlier"]["depth"] == 1


@pytest.mark.nightly
def test_a_schema_that_is_no_pgmq_is_left_alone(shared_rig: Rig) -> None:
    queues = make(shared_rig)
    with queues.session() as owner:
        owner.execute("CREATE SCHEMA pgmq")
        refused = shared_rig.get(queues.path)
        assert refused.status_code == 409
        assert "schema pgmq" in refused.json()["detail"]
        owner.execute("DROP SCHEMA pgmq")
    assert queues.list() == {}


def test_code_of_the_owners_gets_no_more_rights_by_queues(queues: Queues) -> None:
    """Whatever the owner puts behind a queue runs as the owner when the service uses it."""
    queues.make("trapped")
    with queues.session() as owner:
        owner.execute("CREATE TABLE public.caught (who text, super text)")
        owner.execute(
            "CREATE FUNCTION public.catch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " INSERT INTO public.caught SELECT session_user, rolsuper::text FROM pg_roles"
            " WHERE rolname = session_user; RETURN NEW; END $$"
        )
        owner.execute(
            "CREATE TRIGGER catch BEFORE INSERT ON pgmq.q_trapped"
            " FOR EACH ROW EXECUTE FUNCTION public.catch()"
        )
        queues.send("trapped", {})
        caught = owner.execute("SELECT * FROM public.caught").fetchall()
    assert caught == [("app_0", "false")]


@pytest.mark.nightly
@pytest.mark.parametrize("version", ["15", "16"])
def test_older_servers_have_the_same_rights(shared_rig: Rig, version: str) -> None:
    """In version 15 owners cannot make roles themselves, and are given them."""
    queues = make(shared_rig, version)
    name = queues.make("older")
    with queues.session("anon") as session:
        with pytest.raises(InsufficientPrivilege):
            session.execute("SELECT pgmq_public.send('older', '{}')")
        queues.permit(name, "anon")
        session.execute("SELECT pgmq_public.send('older', '{}')")
    with pytest.raises(psycopg.Error), queues.session("menagerie"):
        pass


@pytest.mark.nightly
def test_nobody_logs_in_as_a_role_of_the_data_api(shared_rig: Rig) -> None:
    """A former holder who could would read what is sent later."""
    queues = make(shared_rig)
    if queues.session().info.server_version < 160_000:
        pytest.skip("owners make no roles before version 16")
    with queues.session() as owner:
        owner.execute("CREATE ROLE service_role LOGIN PASSWORD 's'")
        with logged_in(owner) as former:
            queues.make("first")
            with pytest.raises(psycopg.OperationalError):
                former.execute("SELECT 1")
        with pytest.raises(psycopg.OperationalError, match="authentication failed"):
            logged_in(owner).close()
        owner.execute("ALTER ROLE service_role LOGIN PASSWORD 's'")
    queues.rig.rotate(queues.instance_id)
    with (
        queues.session() as owner,
        pytest.raises(psycopg.OperationalError, match="authentication failed"),
    ):
        logged_in(owner).close()


def logged_in(owner: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    return psycopg.connect(
        host=owner.info.host, dbname="app", autocommit=True, user="service_role", password="s"
    )
