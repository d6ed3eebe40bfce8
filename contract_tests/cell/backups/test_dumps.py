"""Dumps by one-time URLs: of each engine its own form, whole or visibly broken off."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import httpx
import psycopg
import pytest

from clients import postgres_tools
from contract_tests.cell.backups.backup_calls import left_beside
from contract_tests.cell.backups.test_backups import Hosted, hosted
from contract_tests.cell.rig import Rig, until

ENGINES = [
    "duckdb",
    "mariadb",
    "postgres",
    pytest.param("redis", marks=pytest.mark.nightly),
    "valkey",
]
# What nothing makes smaller: more than all that is between the tool and a client.
LARGE = (
    "CREATE TABLE large (t bytea)",
    """INSERT INTO large SELECT string_agg(decode(md5(random()::text), 'hex'), '')
    FROM generate_series(1, 800000) AS n GROUP BY n % 80""",
)
MakeRig = Callable[..., Rig]


def got(rig: Rig, instance_id: str, action: str, **claims: Any) -> httpx.Response:
    with rig.client() as http:
        return http.get(f"/v1/{action}/{rig.token(instance_id, action, name='sales', **claims)}")


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def holders(rig: Rig, instance_id: str) -> list[dict[str, str]]:
    found = rig.get("/v1/instances").json()["items"]
    return next(list(each["access"]) for each in found if each["instance_id"] == instance_id)


@pytest.fixture(scope="module")
def postgres(shared_rig: Rig) -> Hosted:
    made = hosted(shared_rig, "postgres")
    made.make_table()
    return made


def connected(source: Hosted, database: str = "app") -> psycopg.Connection[Any]:
    login = source.login
    return psycopg.connect(
        host=str(source.site.run),
        user=login.username,
        password=login.password,
        dbname=database,
        autocommit=True,
    )


def sql(source: Hosted, *statements: str, database: str = "app") -> None:
    with connected(source, database) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def restored(archive: bytes, tmp_path: Path, major: str) -> str:
    """As SQL."""
    file = tmp_path / "archive"
    file.write_bytes(archive)
    tool = postgres_tools.fitting("pg_restore", int(major)).path
    words = [str(tool), "--file=-", str(file)]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


@pytest.mark.timeout(300)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_dump_has_everything_in_the_engines_own_form(
    shared_rig: Rig, engine: str, tmp_path: Path
) -> None:
    source = hosted(shared_rig, engine)
    source.make_table()
    source.write(1, 2, 77)
    answer = got(shared_rig, source.instance_id, "dump")
    assert answer.status_code == 200, answer.text
    name = answer.headers["content-disposition"].removeprefix("attachment; filename=")
    suffix = name.strip('"').removeprefix("sales.")
    content = answer.content
    match suffix:
        case "dump":
            assert "77" in restored(content, tmp_path, source.version)
        case "sql":
            assert b"77" in content
            assert b"Dump completed" in content
        case "rdb":
            assert content.startswith((b"REDIS0", b"VALKEY"))
            assert b"numbers" in content
        case "duckdb":
            file = tmp_path / "dumped.duckdb"
            file.write_bytes(content)
            with duckdb.connect(str(file), read_only=True) as connection:
                assert connection.sql("FROM numbers ORDER BY n").fetchall() == [(1,), (2,), (77,)]
        case _:
            pytest.fail(name)
    assert left_beside(shared_rig, source.instance_id) == set()


@pytest.mark.nightly
def test_another_database_is_dumped_by_its_name_and_nothing_else(
    postgres: Hosted, tmp_path: Path
) -> None:
    rig, instance_id = postgres.rig, postgres.instance_id
    hostile = "x' host=example.com dbname=app; --version"
    sql(postgres, f'CREATE DATABASE "{hostile}"')
    sql(postgres, "CREATE TABLE only_here (n int)", database=hostile)
    dumped = got(rig, instance_id, "dump", database=hostile)
    assert dumped.status_code == 200, dumped.text
    assert "only_here" in restored(dumped.content, tmp_path, postgres.version)
    for name in ("none", "dbname=app", "postgresql://app@/app", "--help", "app; DROP"):
        refused = got(rig, instance_id, "dump", database=name)
        assert code(refused) == (409, "conflict"), refused.text
        assert "does not exist" in refused.json()["detail"]
        assert "/" not in refused.json()["detail"].replace("//app@/app", "")


def test_a_dump_has_no_more_rights_than_the_owner(postgres: Hosted) -> None:
    sql(
        postgres,
        "CREATE TABLE guarded (n int)",
        "CREATE POLICY looks ON guarded USING (n > 0)",
        "ALTER TABLE guarded ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE guarded FORCE ROW LEVEL SECURITY",
    )
    refused = got(postgres.rig, postgres.instance_id, "dump")
    # An administrator would see more; and nothing is left out without a word.
    assert code(refused) == (409, "conflict")
    assert "row-level security policy" in refused.json()["detail"]
    sql(postgres, "DROP TABLE guarded")
    assert got(postgres.rig, postgres.instance_id, "dump").status_code == 200


@pytest.mark.nightly
def test_a_dump_that_fails_in_its_middle_is_broken_off(postgres: Hosted) -> None:
    rig, instance_id = postgres.rig, postgres.instance_id
    sql(postgres, *LARGE)
    token = rig.token(instance_id, "dump", holder="key_a")
    path = f"/v1/instances/{instance_id}/actions/end-access"
    with rig.client() as http, http.stream("GET", f"/v1/dump/{token}") as answer:
        assert answer.status_code == 200
        chunks = answer.iter_raw(1000)
        next(chunks)
        assert holders(rig, instance_id) == [{"holder": "key_a", "kind": "data"}]
        assert code(http.get(f"/v1/dump/{token}")) == (410, "used")
        assert rig.act("POST", path, {"holders": ["key_a"]}).status_code == 204
        assert holders(rig, instance_id) == []
        with pytest.raises(httpx.RemoteProtocolError):
            for _ in chunks:
                pass
    until(lambda: dumping(postgres) == 0, "the engine's session has ended")
    log = postgres.site.log.read_text()
    assert "the dump was broken off: the access of whoever requested it has ended" in log
    sql(postgres, "DROP TABLE large")


def dumping(source: Hosted) -> int:
    query = b"SELECT count(*) FROM pg_stat_activity WHERE application_name = 'menagerie dump'"
    with connected(source) as connection:
        row = connection.execute(query).fetchone()
        assert row is not None
        return int(row[0])


@pytest.mark.nightly
def test_a_dump_takes_no_longer_than_it_may(make_rig: MakeRig) -> None:
    rig = make_rig(dump_timeout_s=2)
    source = hosted(rig, "postgres")
    sql(source, *LARGE)
    broken_off(source, lambda: None)
    assert "the dump was broken off: it took longer than 2 s" in source.site.log.read_text()


def broken_off(source: Hosted, end: Callable[[], object]) -> None:
    token = source.rig.token(source.instance_id, "dump")
    with source.rig.client() as http, http.stream("GET", f"/v1/dump/{token}") as answer:
        assert answer.status_code == 200
        end()
        until(lambda: dumping(source) == 0, "the engine has ended it")
        with pytest.raises(httpx.RemoteProtocolError):
            answer.read()


@pytest.mark.nightly
def test_a_rotation_ends_dumps(postgres: Hosted) -> None:
    sql(postgres, *LARGE)
    broken_off(postgres, lambda: postgres.rig.rotate(postgres.instance_id))
    sql(postgres, "DROP TABLE large")


@pytest.mark.nightly
def test_a_client_that_goes_away_ends_its_dump(postgres: Hosted) -> None:
    rig = postgres.rig
    sql(postgres, *LARGE)
    for _ in range(3):
        token = rig.token(postgres.instance_id, "dump")
        with rig.client() as http, http.stream("GET", f"/v1/dump/{token}") as answer:
            assert answer.status_code == 200
        until(lambda: dumping(postgres) == 0, "the engine has ended it")
    sql(postgres, "DROP TABLE large")
