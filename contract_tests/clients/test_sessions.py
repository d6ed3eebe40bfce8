"""Sessions and native clients without an engine: words, values, options, and who is trusted."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from clients import errors
from clients.cli import native
from clients.cli.dialects import DIALECTS
from clients.credentials import Credential
from clients.sessions import ENGINES, open_session
from clients.sessions.resp import words
from clients.sessions.session import ROWS_MAX, Answer, jsonable
from clients.transport import Authorities
from contract_tests.clients.conftest import Cli
from contract_tests.clients.stand_in import ControlPlane

LOCAL = Credential(
    "app", "s3cret", "mariadb-1.local.localhost", 13306, "mysql://app:s3cret@mariadb-1:13306/app"
)
FAR = Credential(
    "app_2", "s3cret", "db-1.eu.example.com", 5432, "postgresql://app_2:s3cret@db-1:5432/app?x=y"
)


@pytest.mark.parametrize(
    ("command", "params", "expected"),
    [
        ("GET key", [], ["GET", "key"]),
        ("SET 'a b' \"c\"", [], ["SET", "a b", "c"]),
        ("SET ? ?", ["it's", 7], ["SET", "it's", "7"]),
        ("SET k ?", [{"a": [True]}], ["SET", "k", '{"a": [true]}']),
        ("KEYS ?", [], ["KEYS", "?"]),
    ],
)
def test_the_words_of_a_command(command: str, params: list[Any], expected: list[str]) -> None:
    assert words(command, params) == expected


@pytest.mark.parametrize(
    ("command", "params", "said"),
    [
        ("", [], "the command is empty"),
        ("GET 'a", [], "No closing quotation"),
        ("GET ?", [1, 2], "more values"),
        ("SET ? ?", [1], "more `?`"),
        ("subscribe news", [], "SUBSCRIBE does not end by itself"),
    ],
)
def test_what_is_no_command(command: str, params: list[Any], said: str) -> None:
    with pytest.raises(errors.QueryFailed, match=said.replace("?", r"\?")) as raised:
        words(command, params)
    assert raised.value.status == 400


def test_values_that_json_lacks_are_text() -> None:
    found = jsonable([float("nan"), float("-inf"), b"\xaa\x00", {b"k": (1, 2.5)}, None, True])
    assert found == ["NaN", "-Infinity", "0xaa00", {"0x6b": [1, 2.5]}, None, True]


def test_rows_over_the_most_are_dropped() -> None:
    answer = Answer(["n"], ["INT"])
    for number in range(ROWS_MAX + 5):
        answer.add([number])
    result = answer.result(0.001)
    assert (result.row_count, len(result.rows), result.truncated) == (ROWS_MAX, ROWS_MAX, True)


def test_the_database_is_the_uris() -> None:
    assert (LOCAL.database, FAR.database) == ("app", "app")
    bare = Credential("app", "s3cret", "h", 1, "https://app:s3cret@h:1")
    assert bare.database == ""


def test_every_engine_with_a_session_has_a_dialect() -> None:
    assert ENGINES.keys() == DIALECTS.keys()
    with pytest.raises(errors.ConfigurationError, match="weaviate"):
        open_session("weaviate", LOCAL, Authorities())


@pytest.mark.parametrize("engine", ["postgres", "mariadb", "valkey"])
def test_a_port_where_nobody_listens_is_a_failed_connection(engine: str, nowhere: str) -> None:
    port = int(nowhere.rpartition(":")[2])
    credential = Credential("app", "s3cret", "x.local.localhost", port, "x://app@x/0")
    with (
        open_session(engine, credential, Authorities()) as session,
        pytest.raises(errors.ConnectionFailed) as raised,
    ):
        session.query("PING")
    assert "s3cret" not in str(raised.value)


def test_a_certificate_of_another_authority_is_refused(plane: ControlPlane) -> None:
    # The stand-in speaks HTTPS only; what is tried here is who is trusted before that.
    credential = Credential(
        "app", "s3cret", "x.local.localhost", plane.cell.port, "rediss://app@x/0"
    )
    with (
        open_session("valkey", credential, Authorities()) as session,
        pytest.raises(errors.ConnectionFailed, match="certificate verify failed"),
    ):
        session.query("PING")


def test_mariadb_verifies_all_it_can() -> None:
    options = native.mysql_options(LOCAL, "/ca.pem", is_mariadb=True)
    assert "--user=app@mariadb-1" in options
    assert {"--host=127.0.0.1", "--ssl-ca=/ca.pem", "--database=app"} <= set(options)
    far = native.mysql_options(FAR, "/ca.pem", is_mariadb=True)
    assert {"--host=db-1.eu.example.com", "--ssl-verify-server-cert"} <= set(far)
    assert "--ssl-mode=VERIFY_IDENTITY" in native.mysql_options(FAR, "/ca", is_mariadb=False)
    assert "--ssl-mode=VERIFY_CA" in native.mysql_options(LOCAL, "/ca", is_mariadb=False)


@pytest.mark.parametrize("engine", ["postgres", "mariadb", "mysql", "redis", "valkey"])
def test_lines_for_a_shell_hold_no_password(engine: str) -> None:
    line = native.shell_line(engine, LOCAL, "/ca.pem", "SELECT 'it''s'")
    assert "s3cret" not in line
    assert "/ca.pem" in line
    assert "$PASSWORD" in line
    assert shlex.split(line)


def test_one_file_holds_the_systems_authorities_and_ours(tmp_path: Path) -> None:
    ours = tmp_path / "ours.pem"
    ours.write_text("OURS")
    with Authorities(str(ours), None).as_file() as path:
        assert Path(path).read_text().count("OURS") == 1
    assert not Path(path).exists()
    missing = Authorities(str(tmp_path / "missing.pem"), None)
    with pytest.raises(errors.ConfigurationError), missing.as_file():
        pass


def test_an_instance_that_is_away_is_exit_code_1(home: Path, plane: ControlPlane, cli: Cli) -> None:
    plane.world.add("pg", engine="postgres")
    ran = cli("query", "pg", "SELECT 1")
    assert (ran.code, "cannot reach" in ran.err) == (1, True), ran.err
