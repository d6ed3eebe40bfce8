"""What the console runs, on real engines: values, bounds, limits of time, and nothing undone."""

import asyncio
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
import structlog

from cell.console import runs, tables, worker
from cell.console.runs import Run
from cell.console.service import has_console
from cell.console.table import CHARACTERS_MAX, NOTE_CHARACTERS_MAX, RunLimits
from cell.console.target import Target
from cell.engines import DRIVERS
from cell.engines.driver import RestoresLogins
from cell.engines.postgres import scram
from cell.runtime import relay
from cell.runtime.host import Host
from contract_tests.cell.rig import until
from contract_tests.engines.conftest import Subject
from control.policy.catalogue import ENGINES

# The console speaks to each version of PostgreSQL in one way: the older has its turn at night.
CONSOLES = [
    *("duckdb", "postgres", "mariadb", "mysql"),
    pytest.param(("postgres", "15"), marks=pytest.mark.nightly),
]
with_console = pytest.mark.parametrize("subject", CONSOLES, ids=str, indirect=True)
with_shared = pytest.mark.parametrize("shared", CONSOLES, ids=str, indirect=True)
on_postgres = pytest.mark.parametrize("lent", [("postgres", None)], indirect=True)
on_mariadb = pytest.mark.parametrize("subject", ["mariadb"], indirect=True)

SERIES = {
    "duckdb": "SELECT range AS n FROM range({})",
    "postgres": "SELECT n FROM generate_series(0, {} - 1) n",
    "mariadb": "SELECT seq - 1 AS n FROM seq_1_to_{}",
    "mysql": "WITH RECURSIVE s(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n < {} - 1)"
    " SELECT n FROM s",
}
SLEEPS = {
    "duckdb": "SELECT sum(hash(i) % 7) FROM range(1000000000000) t(i)",
    "postgres": "SELECT pg_sleep(300)",
    "mariadb": "SELECT SLEEP(300)",
    "mysql": "SELECT SLEEP(300)",
}


def place(subject: Subject) -> Target:
    socket = str(subject.driver.socket(subject.site))
    return Target(subject.driver.protocol, socket, subject.login.username, subject.login.password)


def perform(subject: Subject, sql: str, **limits: Any) -> dict[str, Any]:
    """What the process of a run answers, without the process, most of whose work is to begin."""
    return worker._answer(place(subject), sql, RunLimits(**limits))


def perform_apart(subject: Subject, sql: str, **limits: Any) -> dict[str, Any]:
    """As the cell does, in a process that is ended when its time is over."""
    run = Run(place(subject), RunLimits(**limits))
    return dict(subject.run(run.answer(sql)))


def value(subject: Subject, sql: str) -> str | None:
    answer = perform(subject, sql)
    assert "error" not in answer, answer
    found: str | None = answer["rows"][0][0]
    return found


def ends(subject: Subject, count: str) -> None:
    """The engine has been told, and comes to it long before the statement would end by itself."""
    until(lambda: value(subject, count) == "0", "the statement has ended")


def test_the_catalogue_says_which_engines_have_a_console(host: Host) -> None:
    drivers = [make(host) for make in DRIVERS]
    having = {driver.engine for driver in drivers if has_console(driver.engine, driver.protocol)}
    assert having == {name for name, each in ENGINES.items() if "console" in each.features}


@with_console
def test_a_run_shows_the_last_statement_within_bounds(running: Subject) -> None:
    answer = perform_apart(running, "SELECT 42 AS n, 'tea, é' AS word, NULL AS nothing;")
    assert [column["name"] for column in answer["columns"]] == ["n", "word", "nothing"]
    assert answer["columns"][0]["numeric"]
    assert not answer["columns"][1]["numeric"]
    assert answer["rows"] == [["42", "tea, é", None]]
    assert not answer["truncated"]

    series = SERIES[running.spec.engine]
    many = perform(running, series.format(900), rows=10)
    assert ([row[0] for row in many["rows"]], many["truncated"]) == (list("0123456789"), True)
    assert not perform(running, series.format(10), rows=10)["truncated"]

    made = "CREATE TABLE kept (n INTEGER); INSERT INTO kept VALUES (1), (2); SELECT 'last' AS it"
    assert perform(running, made)["rows"] == [["last"]]
    changed = perform(running, "UPDATE kept SET n = n + 10")
    assert (changed["columns"], changed["changed"]) == ([], 2)
    assert value(running, "SELECT sum(n) FROM kept") == "23"
    assert "nowhere" in perform(running, "SELECT * FROM nowhere")["error"]

    long = perform_apart(running, "SELECT repeat('x', 150000) AS a, 'y' AS b")
    assert len(long["rows"][0][0]) == 100_000
    assert long["cut"]
    # Neither a transaction nor a setting goes on from one run to the next.
    open_ = perform(running, "BEGIN; INSERT INTO kept VALUES (1000)")
    assert "error" not in open_
    assert value(running, "SELECT count(*) FROM kept") == "2"


@pytest.mark.nightly
@pytest.mark.parametrize("shared", ["postgres"], ids=str, indirect=True)
def test_errors_and_notices_of_any_length_are_cut(shared: Subject) -> None:
    """They are code's of the user's, and the cell reads them whole."""
    long = perform_apart(shared, "DO $$ BEGIN RAISE EXCEPTION '%', repeat('x', 10000000); END $$")
    assert len(long["error"]) == CHARACTERS_MAX
    noted = perform_apart(shared, "DO $$ BEGIN RAISE NOTICE '%', repeat('x', 10000000); END $$")
    assert [len(note) for note in noted["notes"]] == [NOTE_CHARACTERS_MAX]


@with_console
def test_tables_are_listed_with_their_columns(running: Subject) -> None:
    protocol = running.driver.protocol
    usual = tables.USUAL_SCHEMAS[protocol]
    if protocol == "mysql":
        perform(running, "CREATE DATABASE aside; CREATE TABLE aside.first (n INTEGER)")
    else:
        perform(running, "CREATE SCHEMA aside; CREATE TABLE aside.first (n INTEGER)")
    perform(running, "CREATE TABLE teapots (litres INTEGER, colour VARCHAR(20))")
    perform(running, "CREATE VIEW blue AS SELECT litres FROM teapots")
    found = tables.listed(perform(running, tables.STATEMENTS[protocol]), protocol)
    assert [schema["name"] for schema in found["schemas"]] == [usual, "aside"]
    blue, teapots = found["schemas"][0]["tables"]
    assert (blue["name"], blue["kind"], teapots["kind"]) == ("blue", "view", "table")
    assert [column["name"] for column in teapots["columns"]] == ["litres", "colour"]
    kinds = [column["type"].lower() for column in teapots["columns"]]
    assert kinds[0].startswith("int")
    assert "char" in kinds[1]
    first = tables.listed(perform(running, tables.STATEMENTS[protocol], rows=1), protocol)
    assert first["truncated"]
    assert tables.listed({"error": "no"}, protocol) == {"error": "no"}


@with_shared
def test_time_and_memory_have_an_end(shared: Subject) -> None:
    sleep = SLEEPS[shared.spec.engine]
    late = perform_apart(shared, sleep, seconds=1.5)
    assert "exceeded the console's time limit" in late["error"]
    # The engine has ended it too: it answers another at once, where statements take turns.
    assert "error" not in perform(shared, "SELECT 1")

    async def stopped() -> dict[str, Any]:
        run = Run(place(shared), RunLimits())
        answer = asyncio.ensure_future(run.answer(sleep))
        await asyncio.sleep(1)
        run.stop()
        return await answer

    told = shared.run(stopped())["error"]
    assert told == "the statement was stopped", shared.site.log.read_text()[-2000:]

    large = perform_apart(shared, "SELECT repeat('x', 200000000) AS text")
    if "error" not in large:
        # What the engine itself does not make, or makes as NULL, is no danger.
        assert large["cut"] or large["rows"] == [[None]]
    assert "error" not in perform(shared, "SELECT 1")


@pytest.mark.parametrize("said", [b"nonsense", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"])
def test_an_answer_that_breaks_off_is_no_traceback(
    tmp_path: Path, said: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    async def broken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        writer.write(said)
        writer.close()

    async def asked() -> dict[str, Any]:
        path = tmp_path / "engine.sock"
        async with await asyncio.start_unix_server(broken, path):
            run = Run(Target("https", str(path), "app", "secret"), RunLimits())
            return await run.answer("SELECT 1")

    with structlog.testing.capture_logs() as lines:
        assert "not responding" in asyncio.run(asked())["error"]
    assert capfd.readouterr().err == ""
    assert [line["event"] for line in lines] == ["cell.console_worker_failed"]


@pytest.mark.nightly
@with_shared
def test_a_link_in_the_place_of_the_socket_is_not_followed(shared: Subject) -> None:
    real = shared.driver.socket(shared.site).outside
    link = shared.site.directory / real.name
    link.symlink_to(real)
    there = place(shared)
    run = Run(Target(there.protocol, str(link), there.username, there.password), RunLimits())
    assert shared.run(run.answer("SELECT 1"))["error"] == "the engine is not responding"


@pytest.mark.nightly
@on_postgres
def test_postgresql_undoes_nothing_for_an_answer_that_is_cut(lent: Subject) -> None:
    perform(lent, "CREATE TABLE kept (n INTEGER)")
    insert = "INSERT INTO kept SELECT generate_series(1, 3000) RETURNING n"
    assert perform(lent, insert)["truncated"]
    assert value(lent, "SELECT count(*) FROM kept") == "3000"
    deleting = "WITH gone AS (DELETE FROM kept RETURNING n) SELECT n FROM gone"
    assert perform(lent, deleting)["truncated"]
    assert value(lent, "SELECT count(*) FROM kept") == "0"
    # By a function, too; what only reads is made as far as it is shown.
    writes = "INSERT INTO kept VALUES (x) RETURNING n"
    perform(lent, f"CREATE FUNCTION keep(x INTEGER) RETURNS INTEGER LANGUAGE sql AS '{writes}'")
    kept = perform(lent, "SELECT keep(n) FROM generate_series(1, 3000) n")
    assert (kept["truncated"], value(lent, "SELECT count(*) FROM kept")) == (True, "3000")
    assert perform(lent, "SELECT generate_series(1, 1000000000000000)")["truncated"]
    both = perform(lent, "SELECT 1; SELECT 2 AS two")
    assert both["rows"] == [["2"]]
    assert perform(lent, "/* a */ -- b\n SELECT 3 -- c")["rows"] == [["3"]]
    assert perform(lent, "SELECT 1 / 0")["error"].startswith("ERROR:  division by zero")
    assert "LINE 1: SELEC 1" in perform(lent, "SELEC 1")["error"]
    assert perform(lent, "DO $$ BEGIN RAISE NOTICE 'hello'; END $$")["notes"] == ["NOTICE: hello"]
    for copy in ("COPY kept FROM STDIN", "COPY kept TO STDOUT"):
        assert "COPY" in perform(lent, copy)["error"]
    assert "NUL" in perform(lent, "SELECT '\0'")["error"]
    assert perform(lent, "BEGIN; SELECT 1")["notes"]
    sleeping = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sl' || 'eep%'"
    perform_apart(lent, "SELECT pg_sleep(300)", seconds=1.5)
    ends(lent, sleeping)


@pytest.mark.nightly
@pytest.mark.parametrize("shared", ["postgres"], ids=str, indirect=True)
def test_nobody_works_out_more_iterations_for_the_console(shared: Subject) -> None:
    """An owner can ask a client for any number of them, and libpq works them all out."""
    password = shared.login.password
    assert value(shared, "SELECT 1") == "1"
    verifier = scram.verifier(password, iterations=2 * relay.ITERATIONS)
    perform(shared, f"ALTER ROLE {shared.login.username} PASSWORD '{verifier}'")
    assert "changed with SQL" in perform(shared, "SELECT 1")["error"]
    assert isinstance(shared.driver, RestoresLogins)
    shared.run(shared.driver.restore_logins(shared.site))
    assert value(shared, "SELECT 1") == "1"


@pytest.mark.nightly
def test_a_worker_that_hears_no_signal_ends_by_its_cpu_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python hears them between its own instructions, and not while a library works in C."""
    deaf = """if True:
        import hashlib
        from cell.console import worker
        worker.LEAVE_WITHIN_S = 0.0
        worker._answer = lambda *_: hashlib.pbkdf2_hmac("sha256", b"x", b"y", 2**31 - 1)
        worker.main()"""
    monkeypatch.setattr(runs, "COMMAND", (sys.executable, "-P", "-c", deaf))
    path = tmp_path / "engine.sock"
    with socket.socket(socket.AF_UNIX) as engine, structlog.testing.capture_logs() as lines:
        engine.bind(str(path))
        run = Run(Target("postgres", str(path), "app", "secret"), RunLimits(seconds=0.5))
        assert asyncio.run(run.answer("SELECT 1"))["error"] == "the statement was stopped"
    assert [line["status"] for line in lines] == [-signal.SIGXCPU]


@on_mariadb
def test_mariadb_undoes_nothing_and_reads_no_file_of_the_cell(running: Subject) -> None:
    perform(running, "CREATE TABLE kept (n INTEGER)")
    insert = "INSERT INTO kept SELECT seq FROM seq_1_to_3000 RETURNING n"
    assert perform(running, insert)["truncated"]
    assert value(running, "SELECT count(*) FROM kept") == "3000"
    assert perform(running, "SELECT n FROM kept LIMIT 2000")["truncated"]
    assert perform(running, "SELECT UNHEX('00ff') AS bytes")["rows"] == [["0x00ff"]]
    read = "LOAD DATA LOCAL INFILE '/etc/hostname' INTO TABLE kept"
    assert "ERROR" in perform_apart(running, read)["error"]
    assert perform(running, "BEGIN; INSERT INTO kept VALUES (1)")["notes"]
    perform_apart(running, "SELECT SLEEP(300)", seconds=1.5)
    running_now = (
        "SELECT count(*) FROM information_schema.processlist WHERE info LIKE 'SELECT SLE%'"
    )
    ends(running, running_now)
    assert perform(running, "DROP DATABASE app").get("error") is None
    assert value(running, "SELECT 1") == "1"
