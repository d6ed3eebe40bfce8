"""`menagerie query` and `connect` on every engine of a whole installation, by the command."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clients.cli import native
from clients.credentials import Credential
from clients.errors import ClientError, QueryFailed
from clients.sessions import Session
from contract_tests.clients.servers import Authority
from contract_tests.end_to_end.command_line import DONE_S, CommandLine
from contract_tests.end_to_end.installation import Installation
from contract_tests.end_to_end.test_engines import Instance, refuse_missing

ROOT = Path(__file__).resolve().parents[2]
SQL = ("postgres", "mariadb")
KEYS = ("redis", "valkey")
# By day MariaDB is asked in clients/ and through the gateway in engines/: it takes seconds to start
# in an installation. Redis and Valkey are spoken to in one way.
BY_DAY = ("postgres", "redis")
ENGINES = [
    each if each in BY_DAY else pytest.param(each, marks=pytest.mark.nightly)
    for each in (*SQL, *KEYS)
]
SQL_ENGINES = ENGINES[:2]
ECHO = {"postgres": "SELECT $1::text AS said", "mariadb": "SELECT ? AS said"} | dict.fromkeys(
    KEYS, "ECHO ?"
)


@pytest.fixture(scope="module")
def menagerie(installation: Installation) -> CommandLine:
    return CommandLine(installation)


@pytest.mark.nightly
@pytest.mark.parametrize("engine", ENGINES)
def test_query_runs_a_statement_with_values(menagerie: CommandLine, engine: str) -> None:
    name = menagerie.instance(engine)
    done = menagerie.run("query", name, ECHO[engine], "--param", "it's 5; -- ?", "-o", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["rows"] == [["it's 5; -- ?"]]
    assert (found["row_count"], found["truncated"]) == (1, False)
    assert found["columns"] == [{"redis": "reply", "valkey": "reply"}.get(engine, "said")]


VALUES = {
    "postgres": {
        "true": True,
        "9007199254740993": 9007199254740993,
        "1.50": "1.50",
        "'nan'::float8": "NaN",
        "DATE 'infinity'": "infinity",
        r"'\xaa00'::bytea": r"\xaa00",
        "ARRAY[1, NULL]": [1, None],
        """'{"a": [1]}'::jsonb""": {"a": [1]},
        "now() - now()": "00:00:00",
        "NULL": None,
    },
    "mariadb": {
        "true": 1,
        "9007199254740993": 9007199254740993,
        "1.50": "1.50",
        "1e0": 1.0,
        "DATE '2026-01-31'": "2026-01-31",
        "x'aa00'": "0xaa00",
        "'ü'": "ü",
        "NULL": None,
    },
}


@pytest.mark.parametrize("engine", SQL_ENGINES)
def test_values_are_json(menagerie: CommandLine, engine: str) -> None:
    expected = VALUES[engine]
    found = menagerie.rows(menagerie.instance(engine), f"SELECT {', '.join(expected)}")
    assert dict(zip(expected, found["rows"][0], strict=True)) == expected
    assert len(found["column_types"]) == len(expected)


@pytest.mark.nightly
def test_a_type_made_in_the_database_has_its_name(menagerie: CommandLine) -> None:
    name = menagerie.instance("postgres")
    made = "CREATE TYPE mood AS ENUM ('calm'); SELECT 'calm'::mood AS now"
    assert menagerie.rows(name, made)["column_types"] == ["mood"]


NUMBERS = {
    "postgres": "SELECT n FROM generate_series(1, 20000) AS n",
    "mariadb": "SELECT seq FROM seq_1_to_20000",
}


@pytest.mark.parametrize("engine", SQL_ENGINES)
def test_answers_are_cut_and_what_they_did_stays(menagerie: CommandLine, engine: str) -> None:
    name = menagerie.instance(engine)
    with menagerie.session(name) as session:
        found = session.query(NUMBERS[engine])
        assert (len(found.rows), found.truncated) == (10_000, True)
        session.query("CREATE TABLE many (n INTEGER)")
        written = menagerie.rows(name, f"INSERT INTO many {NUMBERS[engine]} RETURNING n")
        assert (len(written["rows"]), written["truncated"]) == (10_000, True)
        assert session.query("SELECT count(*) FROM many").rows == [[20_000]]


def test_a_replys_map_is_a_table(menagerie: CommandLine) -> None:
    name = menagerie.instance("redis")
    with menagerie.session(name) as session:
        session.query("HSET duck legs 2 sound 'quack quack'")
    done = menagerie.here("query", name, "HGETALL duck", "-o", "csv")
    assert done.stdout == "field,value\nlegs,2\nsound,quack quack\n"


WRONG = {
    "postgres": ("SELECT * FROM nope", 'relation "nope" does not exist'),
    "mariadb": ("SELECT * FROM nope", "Table 'app.nope' doesn't exist (1146)"),
    "redis": ("LRANGE nope", "wrong number of arguments for 'lrange' command"),
    "valkey": ("CONFIG GET dir", "no permissions to run the 'config|get' command"),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_an_error_is_the_engines_own_words(menagerie: CommandLine, engine: str) -> None:
    statement, words = WRONG[engine]
    done = menagerie.here("query", menagerie.instance(engine), statement)
    assert (done.returncode, words in done.stderr) == (6, True), done.stderr


def keep(menagerie: CommandLine, engine: str) -> tuple[Path, dict[str, Any], str]:
    """The file of credentials, what is in it, and the key of this engine's, which is there."""
    path = menagerie.config / "menagerie" / "credentials.json"
    asked = False
    while True:
        kept = json.loads(path.read_text()) if path.exists() else {}
        for key, one in kept.items():
            if one["host"].startswith(f"{engine}-"):
                return path, kept, key
        assert not asked, kept
        menagerie.rows(menagerie.instance(engine), ECHO[engine], "--param", "kept")
        asked = True


def spoil(menagerie: CommandLine, engine: str) -> Callable[[], bool]:
    """Makes the kept password a wrong one; answers whether it has been renewed since."""
    path, kept, mine = keep(menagerie, engine)
    kept[mine] |= {"password": "wrong"}
    path.write_text(json.dumps(kept))
    return lambda: json.loads(path.read_text())[mine]["password"] != "wrong"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_refused_credential_is_fetched_anew(menagerie: CommandLine, engine: str) -> None:
    is_renewed = spoil(menagerie, engine)
    assert menagerie.rows(menagerie.instance(engine), ECHO[engine], "--param", "x")["row_count"]
    assert is_renewed()


SPOKEN = {
    "postgres": "SELECT current_database() || '!' AS said;\n",
    "mariadb": "SELECT CONCAT(DATABASE(), '!') AS said;\n",
    "redis": "SET said app!\nGET said\n",
    "valkey": "SET said app!\nGET said\n",
}


@pytest.mark.parametrize("engine", ENGINES)
def test_connect_starts_the_engines_own_client(menagerie: CommandLine, engine: str) -> None:
    if native.find(engine) is None:
        pytest.skip(f"{native.wanted(engine)} is not installed")
    # Clients cannot ask for another password, so the kept one is tried before.
    is_renewed = spoil(menagerie, engine)
    done = menagerie.run("connect", menagerie.instance(engine), typed=SPOKEN[engine])
    assert (done.returncode, "app!" in done.stdout) == (0, True), done.stderr
    assert is_renewed()


@pytest.mark.nightly
@pytest.mark.parametrize("engine", ENGINES)
def test_connect_is_a_small_client_where_there_is_none(
    menagerie: CommandLine, engine: str, tmp_path: Path
) -> None:
    name = menagerie.instance(engine)
    more = "CREATE TABLE IF NOT EXISTS\n ducks (n INTEGER);\n\\d\n\\d ducks\nnope;\n"
    typed = SPOKEN[engine] + (more if engine in SQL else "nope\n") + "\\?\n\\q\nnever"
    done = menagerie.run("connect", name, typed=typed, PATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "app!" in done.stdout
    assert ("is_nullable" in done.stdout) == (engine in SQL)
    assert "is not on the PATH" in done.stderr
    assert "error: " in done.stderr
    assert "never" not in done.stderr


SLEEPS = {
    "postgres": (
        "SELECT pg_sleep(600);",
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'",
    ),
    "mariadb": (
        "SELECT SLEEP(600);",
        "SELECT count(*) FROM information_schema.processlist WHERE state = 'User sleep'",
    ),
}


@pytest.mark.nightly
@pytest.mark.parametrize("engine", SQL_ENGINES)
def test_an_interrupt_stops_the_statement_in_the_server(
    menagerie: CommandLine, engine: str, tmp_path: Path
) -> None:
    name = menagerie.instance(engine)
    sleep, running = SLEEPS[engine]
    process = menagerie.start("connect", name, PATH=str(tmp_path))
    assert process.stdin is not None
    process.stdin.write(sleep + "\n")
    process.stdin.flush()
    try:
        with menagerie.session(name) as session:
            wait_for_count(session, running, 1)
            process.send_signal(signal.SIGINT)
            wait_for_count(session, running, 0)
        out, err = process.communicate("SELECT 'still here' AS t;\n", timeout=DONE_S)
    finally:
        process.kill()
    assert (process.returncode, "still here" in out) == (0, True), err
    assert "failed" not in err
    assert "interrupted" in err


def wait_for_count(session: Session, statement: str, count: int) -> None:
    deadline = time.monotonic() + DONE_S / 2
    while session.query(statement).rows != [[count]]:
        assert time.monotonic() < deadline, statement
        time.sleep(0.05)


@pytest.mark.nightly
@pytest.mark.parametrize("engine", ENGINES)
def test_another_authority_is_not_trusted(
    menagerie: CommandLine, engine: str, tmp_path: Path
) -> None:
    name = menagerie.instance(engine)
    keep(menagerie, engine)
    nobody = str(Authority(tmp_path, "nobody.example.com").ca_file)
    done = menagerie.here("query", name, "PING", MENAGERIE_CA_FILE=nobody)
    assert (done.returncode, "certificate verify failed" in done.stderr) == (1, True), done.stderr
    if native.find(engine) is None:
        pytest.skip(f"{native.wanted(engine)} is not installed")
    done = menagerie.run("connect", name, typed=SPOKEN[engine], MENAGERIE_CA_FILE=nobody)
    # redis-cli ends with 0 whatever happened.
    assert ("certificate" in done.stderr, "app!" in done.stdout) == (True, False), done.stderr


@pytest.mark.parametrize("engine", ENGINES)
def test_the_line_for_a_shell_works_as_pasted(menagerie: CommandLine, engine: str) -> None:
    name = menagerie.instance(engine)
    shown = json.loads(menagerie.here("credentials", name, "-o", "json").stdout)
    statement = SPOKEN[engine].splitlines()[0].rstrip(";").replace("app!", "'app!'")
    line = native.shell_line(
        engine, Credential.parse(shown), menagerie.installation.endpoints["ca_file"], statement
    )
    assert line is not None
    program = line.split()[1]
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    done = subprocess.run(
        ["bash", "-c", line],
        env={**os.environ, "PASSWORD": shown["password"]},
        capture_output=True,
        text=True,
        timeout=DONE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "app!" in done.stdout or "OK" in done.stdout


@pytest.mark.nightly
def test_the_first_page_works_as_pasted(menagerie: CommandLine, tmp_path: Path) -> None:
    refuse_missing(menagerie.installation, "postgres")
    if shutil.which("psql") is None:
        pytest.skip("psql is not installed")
    page = (ROOT / "README.md").read_text()
    section = page.split("## Create a PostgreSQL database")[1].split("\n## ")[0]
    lines = [line.strip() for line in section.splitlines() if line.startswith("    ")]
    commands = Path(sys.executable).parent
    (tmp_path / ".menagerie").symlink_to(menagerie.installation.home)
    done = subprocess.run(
        ["bash", "-e", "-c", "\n".join(lines).replace(".venv/bin/", f"{commands}/")],
        env={**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DONE_S,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert "Donald |    2" in done.stdout


@pytest.mark.nightly
@pytest.mark.parametrize("engine", ENGINES)
def test_demo_walks_with_every_engine(menagerie: CommandLine, engine: str) -> None:
    refuse_missing(menagerie.installation, engine)
    done = menagerie.run("demo", "--engine", engine)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert "elephant" in done.stdout
    assert "5400" in done.stdout


CUTS = {
    "postgres": ("SELECT pg_terminate_backend(pg_backend_pid())", "SELECT 1"),
    "mariadb": ("KILL CONNECTION_ID()", "SELECT 1"),
    "redis": ("QUIT", "INCR cuts"),
}


@pytest.mark.nightly
@pytest.mark.parametrize("engine", CUTS)
def test_a_session_in_python_goes_on_after_it_was_cut_off(
    menagerie: CommandLine, engine: str
) -> None:
    cut, after = CUTS[engine]
    with menagerie.endpoint(menagerie.instance(engine)) as endpoint:
        with endpoint.session() as session:
            with contextlib.suppress(ClientError):
                session.query(cut)
            assert session.query(after).rows == [[1]]
            wrong = replace(session.credential, password="wrong")
        with endpoint.session(wrong) as refused:
            with pytest.raises(QueryFailed) as raised:
                refused.query(after)
            assert raised.value.status == 401


# The gateway says it in each protocol (contract_tests/gateway): by day one client shows it.
@pytest.mark.parametrize(
    "engine",
    ["postgres", *(pytest.param(each, marks=pytest.mark.nightly) for each in ("mariadb", "redis"))],
)
def test_a_paused_instance_says_so(menagerie: CommandLine, engine: str) -> None:
    name = menagerie.instance(engine)
    with menagerie.endpoint(name) as endpoint:
        instance = Instance(menagerie.installation, endpoint.instance["id"])
    instance.act("pause", "paused")
    done = menagerie.here("query", name, ECHO[engine], "--param", "x")
    instance.act("resume", "running")
    assert (done.returncode, "nstance is paused" in done.stderr) == (1, True), done.stderr
    assert "hint" not in done.stderr


def test_an_order_that_cannot_be_filled_says_why(menagerie: CommandLine) -> None:
    done = menagerie.here("instances", "create", "--engine", "weaviate", "--size", "f0")
    assert (done.returncode, "not available yet" in done.stderr) == (6, True), done.stderr
    assert menagerie.here("demo", "--engine", "mysql").returncode in {0, 2}
