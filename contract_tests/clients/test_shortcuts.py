"""query, connect, credentials, logs, login, logout, demo and completion, as a person uses them."""

import io
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.cli import command_context
from clients.cli.native import command_line
from clients.credentials import Credential, CredentialFile
from clients.profiles import Profile, Profiles, resolve
from contract_tests.clients.conftest import Cli
from contract_tests.clients.stand_in import ROOT, ControlPlane, host_of

COUNT = "SELECT count(*) AS n FROM range(7)"


@pytest.fixture
def sales(home: Path, plane: ControlPlane) -> str:
    return str(plane.world.add("sales")["id"])


def kept_file(home: Path) -> Path:
    return home / "config" / "menagerie" / "credentials.json"


@pytest.mark.parametrize(
    ("engine", "word"), [("meilisearch", "credentials"), ("mongodb", "connect")]
)
def test_of_an_engine_without_statements_it_is_said_what_to_use(
    engine: str, word: str, sales: str, plane: ControlPlane, cli: Cli
) -> None:
    plane.world.instances[sales]["engine"] = engine
    ran = cli("query", "sales", "x")
    assert (ran.code, ran.out) == (2, "")
    assert f"does not support {engine}; use `menagerie {word} sales`" in ran.err


def test_query_reveals_once_and_keeps_the_credential_private(
    sales: str, home: Path, plane: ControlPlane, cli: Cli
) -> None:
    ran = cli("query", "sales", COUNT)
    assert (ran.code, "7" in ran.out) == (0, True), ran.err
    assert cli("query", sales, COUNT, "-o", "csv").out == "n\r\n7\r\n"
    assert len(plane.asked("POST", "/reveal")) == 1
    path = kept_file(home)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(json.loads(path.read_text())) == [f"{plane.base_url}#{sales}"]


def test_no_store_keeps_nothing(sales: str, home: Path, plane: ControlPlane, cli: Cli) -> None:
    for _ in range(2):
        assert cli("query", "sales", COUNT, "--no-store").code == 0
    assert len(plane.asked("POST", "/reveal")) == 2
    assert not kept_file(home).exists()


def test_a_refused_credential_is_fetched_anew(sales: str, plane: ControlPlane, cli: Cli) -> None:
    cli("query", "sales", COUNT)
    plane.cell.passwords[host_of(sales)] = "rotated-elsewhere"
    assert cli("query", "sales", COUNT).code == 0
    assert len(plane.asked("POST", "/reveal")) == 2


def test_parameters_are_json_or_text(sales: str, cli: Cli) -> None:
    ran = cli(
        "query",
        "sales",
        "SELECT ? + 1 AS n, ? AS t",
        "--param",
        "41",
        "--param",
        "it's",
        "-o",
        "json",
    )
    assert json.loads(ran.out)["rows"] == [[42, "it's"]]


def test_sql_comes_from_stdin_too(sales: str, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT 'from stdin' AS t"))
    assert "from stdin" in cli("query", "sales", "-").out


def test_a_sql_error_is_the_engines_own_words(sales: str, cli: Cli) -> None:
    ran = cli("query", "sales", "SELEC 1")
    assert ran.code == 6
    assert "syntax error" in ran.err
    assert cli("query", "missing", COUNT).code == 4


def test_other_engines_are_pointed_to_connect(home: Path, plane: ControlPlane, cli: Cli) -> None:
    plane.world.add("docs", engine="mongodb")
    ran = cli("query", "docs", COUNT)
    assert (ran.code, "menagerie connect docs" in ran.err) == (2, True)


def test_credentials_prints_them_with_a_line_for_each_client(
    sales: str, home: Path, plane: ControlPlane, cli: Cli
) -> None:
    ran = cli("credentials", "sales")
    password = plane.cell.passwords[host_of(sales)]
    record, _, lines = ran.out.partition("\ncurl\n")
    assert password in record
    # No argument of a program holds it, as others could see those.
    assert f"printf 'user = \"%s:%s\"' app {password} | curl" in lines
    assert f"--resolve {host_of(sales)}:{plane.cell.port}:127.0.0.1" in lines
    assert "import httpx" in lines
    only = cli("credentials", "sales", "--client", "curl").out
    assert only in lines
    refused = cli("credentials", "sales", "--client", "psql")
    assert (refused.code, "curl, httpx" in refused.err) == (2, True)
    assert not kept_file(home).exists()
    rotated = json.loads(cli("credentials", "sales", "--rotate", "--store", "-o", "json").out)
    assert rotated["password"] != password
    assert rotated["overlap_until"]
    stored = CredentialFile(kept_file(home)).get(plane.base_url, sales)
    assert stored is not None
    assert stored.password == rotated["password"]


def test_a_rotation_after_a_leak_leaves_no_overlap(
    sales: str, plane: ControlPlane, cli: Cli
) -> None:
    assert cli("credentials", "sales", "--rotate", "--overlap", "0").code == 0
    assert plane.seen[-1].body == {"overlap_s": 0}
    assert cli("credentials", "rotate", "sales", "--overlap-s", "60").code == 0
    assert plane.seen[-1].body == {"overlap_s": 60}
    assert cli("credentials", "sales", "--rotate").code == 0
    assert plane.seen[-1].body is None
    for wrong in (["--overlap", "0"], ["--rotate", "--overlap", "-1"]):
        assert cli("credentials", "sales", *wrong).code == 2


def test_credentials_reveal_is_the_api_operation(sales: str, cli: Cli) -> None:
    assert json.loads(cli("credentials", "reveal", "sales", "-o", "json").out)["url"].startswith(
        "https://cell."
    )


def test_logs_are_streamed_from_the_cell(sales: str, cli: Cli) -> None:
    assert cli("logs", "sales").out == "engine started\nready\n"


def test_a_log_without_a_line_is_said_to_be_empty(
    sales: str, plane: ControlPlane, cli: Cli
) -> None:
    plane.cell.engine_log = ""
    ran = cli("logs", "sales")
    assert (ran.code, ran.out) == (0, "")
    assert "sales has not logged anything" in ran.err


@pytest.mark.parametrize("answer", [{"url": "https://x/\x1b]0;owned"}, []])
def test_a_url_that_is_none_is_one_line(
    answer: object, sales: str, plane: ControlPlane, cli: Cli
) -> None:
    path = f"/v1/orgs/{plane.world.org_id}/instances/{sales}/logs"
    plane.script("GET", path, (200, {}, answer))
    ran = cli("logs", "sales")
    assert (ran.code, ran.out) == (1, "")
    assert "answered with something that is not a URL" in ran.err
    assert "Traceback" not in ran.err
    assert "\x1b" not in ran.err


def test_connect_is_a_small_client_for_duckdb(
    sales: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = iter(
        [
            "CREATE TABLE t AS",
            "SELECT 5 AS five;",
            "SELECT five",
            "FROM t;",
            "SELEC;",
            "\\d t",
            "\\q",
        ]
    )
    monkeypatch.setattr("builtins.input", lambda _: next(typed))
    ran = cli("connect", "sales")
    assert ran.code == 0, ran.err
    assert "five" in ran.out
    assert "5" in ran.out
    assert "INTEGER" in ran.out
    assert "error: Parser Error" in ran.err


def test_statements_may_come_through_a_pipe(
    sales: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT 1 AS one;\nSELECT 2 AS two"))
    ran = cli("connect", "sales")
    assert ran.code == 0
    assert [word for word in ran.out.split() if word.isalnum()] == ["one", "1", "two", "2"]


CREDENTIAL = Credential("ada", "s3cret", "pg-1.local.localhost", 5432, "postgres://ada:s3cret@pg-1")


@pytest.mark.parametrize("program", ["psql", "mariadb", "mysql", "valkey-cli", "redis-cli"])
def test_passwords_are_in_the_environment_and_never_among_arguments(program: str) -> None:
    arguments, environment = command_line(f"/usr/bin/{program}", CREDENTIAL, "/ca.pem")
    assert "s3cret" not in " ".join(arguments)
    assert "s3cret" in environment.values()
    assert "/ca.pem" in " ".join([*arguments, *environment.values()])


def test_connect_starts_the_engines_own_client(
    home: Path, plane: ControlPlane, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = plane.world.add("pg", engine="postgres")
    psql = home / "bin" / "psql"
    psql.parent.mkdir()
    psql.write_text(
        f'#!/bin/sh\nenv > {home}/environment\necho "$0 $@" > {home}/arguments\nexit 7\n'
    )
    psql.chmod(0o755)
    monkeypatch.setenv("PATH", f"{psql.parent}:{os.environ['PATH']}")
    assert cli("connect", "pg").code == 7
    environment = (home / "environment").read_text()
    password = plane.cell.passwords[host_of(instance["id"])]
    assert f"PGPASSWORD={password}\n" in environment
    assert "PGSSLMODE=verify-full\n" in environment
    assert "PGHOSTADDR=127.0.0.1\n" in environment
    assert password not in (home / "arguments").read_text()


def test_a_missing_client_is_named(
    home: Path, plane: ControlPlane, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane.world.add("docs", engine="mongodb")
    monkeypatch.setenv("PATH", str(home))
    ran = cli("connect", "docs")
    assert (ran.code, "mongosh" in ran.err) == (2, True)


def test_login_keeps_the_session_and_logout_takes_it_away(
    home: Path, plane: ControlPlane, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("correct-horse\n"))
    ran = cli("login", "--email", "ada@example.com", "--password-stdin", "--totp-code", "492039")
    assert ran.code == 0, ran.err
    assert "correct-horse" not in ran.out + ran.err
    assert resolve().session_token == "ms_fresh_mfa"
    assert resolve().api_key == plane.world.api_key
    assert plane.world.api_key not in Profiles.read().path.read_text()
    assert cli("logout").code == 0
    assert plane.asked("DELETE", "/sessions/current")[0].token == "Bearer ms_fresh_mfa"
    assert "ms_fresh" not in Profiles.read().path.read_text()


def test_login_says_which_session_there_was(
    home: Path, plane: ControlPlane, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that nobody who guesses at the account keeps its owner's device out."""
    monkeypatch.setattr("sys.stdin", io.StringIO("correct-horse\n" * 2))
    for expected in (f"Bearer {plane.world.session_token}", "Bearer ms_fresh"):
        assert cli("login", "--email", "ada@example.com", "--password-stdin").code == 0
        assert plane.asked("POST", "/sessions")[-1].token == expected


def test_a_wrong_password_is_exit_code_3(
    home: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("wrong\n"))
    assert cli("login", "--email", "ada@example.com", "--password-stdin").code == 3


def test_demo_walks_the_whole_way_and_leaves_nothing(
    home: Path, plane: ControlPlane, cli: Cli
) -> None:
    ran = cli("demo")
    assert ran.code == 0, ran.err
    for word in ("curl", "wait_for=running", "credentials/reveal", "elephant", "5400"):
        assert word in ran.out
    made = next(iter(plane.world.instances.values()))
    assert made["desired_status"] == "deleted"
    secrets = [plane.world.api_key, *plane.cell.passwords.values()]
    assert not [one for one in secrets if one in ran.out + ran.err]


def test_demo_refuses_an_engine_that_is_not_there(
    home: Path, plane: ControlPlane, cli: Cli
) -> None:
    ran = cli("demo", "--engine", "postgres")
    assert (ran.code, "a runtime for PostgreSQL" in ran.err) == (2, True)
    assert not plane.world.instances
    assert cli("demo", "--engine", "questdb").code == 2


def test_demo_keeps_on_demand(home: Path, plane: ControlPlane, cli: Cli) -> None:
    assert cli("demo", "--keep").code == 0
    assert next(iter(plane.world.instances.values()))["status"] == "running"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, folder: Path, cli: Cli) -> None:
    assert "_MENAGERIE_COMPLETE" in cli("completion", "show", shell).out
    assert cli("completion", "install", shell).code == 0
    installed = [path for path in folder.rglob("*menagerie*") if path.is_file()]
    assert any("_MENAGERIE_COMPLETE" in path.read_text() for path in installed)


@pytest.mark.nightly
def test_completion_knows_the_documents_commands(home: Path) -> None:
    program = "from menagerie.__main__ import main; main()"
    environment = {
        **os.environ,
        "_MENAGERIE_COMPLETE": "complete_bash",
        "COMP_CWORD": "2",
        "PYTHONPATH": str(ROOT),
    }
    for words, expected in (
        ("menagerie instances pa", "pause"),
        ("menagerie instances create --eng", "--engine"),
        ("menagerie instances create --engine pos", "postgres"),
        ("menagerie demo --engine val", "valkey"),
    ):
        environment |= {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.stdout.split() == [expected] or expected in done.stdout.split(), done.stderr


def test_org_and_project_may_be_set_by_their_slugs(
    sales: str, plane: ControlPlane, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MENAGERIE_ORG", "acme")
    monkeypatch.setenv("MENAGERIE_PROJECT", "main")
    assert cli("query", "sales", COUNT).code == 0
    assert cli("instances", "list").code == 0
    assert cli("demo").code == 0
    assert not [one for one in plane.seen if "acme" in one.path or "/main" in one.path]


def test_connect_reveals_once_and_renews_what_is_refused(
    sales: str, plane: ControlPlane, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def typed() -> Iterator[str]:
        yield "SELECT 1;"
        plane.cell.passwords[host_of(sales)] = "rotated-elsewhere"
        yield "SELECT 'after' AS t;"

    lines = typed()
    monkeypatch.setattr("builtins.input", lambda _: next(lines, "\\q"))
    ran = cli("connect", "sales", "--no-store")
    assert (ran.code, "after" in ran.out) == (0, True), ran.err
    assert len(plane.asked("POST", "/reveal")) == 2


def test_one_time_urls_and_passwords_are_not_logged(
    sales: str, plane: ControlPlane, cli: Cli, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("DEBUG"):
        assert cli("query", "sales", COUNT).code == 0
    jti = plane.cell.asked("GET", "")[0].path.rpartition(".")[2]
    for secret in (jti, plane.cell.passwords[host_of(sales)], plane.world.api_key):
        assert secret not in caplog.text


def test_tokens_in_the_open_are_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    token = {"api_key": "mk_live_x"}
    command_context._warn_of_plain_http(Profile(base_url="http://db.example.com", **token))
    assert "unencrypted to http://db.example.com" in capsys.readouterr().err
    command_context._warn_of_plain_http(Profile(base_url="https://db.example.com", **token))
    command_context._warn_of_plain_http(Profile(base_url="http://127.0.0.1:8080", **token))
    command_context._warn_of_plain_http(Profile(base_url="http://db.example.com"))
    assert capsys.readouterr().err == ""
