"""`menagerie dump` and `load`: a database out of one instance and into another, by the command."""

import json
import secrets
import stat
import subprocess
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from contract_tests.end_to_end.command_line import CommandLine
from contract_tests.end_to_end.installation import Installation, order

NIGHTLY = pytest.mark.nightly
# Newer than any client that is on the machine.
NEWEST, OTHER = "18", "17"
CONTENT = """
CREATE EXTENSION hstore; CREATE EXTENSION pg_trgm;
CREATE SCHEMA shop;
CREATE TABLE shop.ducks (n integer PRIMARY KEY, name text, more hstore);
INSERT INTO shop.ducks
    SELECT n, 'dück ' || n || E'\\t\\\\.\\n', 'a=>1' FROM generate_series(1, 9000) n;
CREATE INDEX ON shop.ducks USING gin (name gin_trgm_ops);
CREATE FUNCTION shop.twice(n integer) RETURNS integer LANGUAGE sql AS 'SELECT n * 2';
CREATE VIEW shop.named AS SELECT name FROM shop.ducks WHERE shop.twice(n) > 10;
"""
SUM = "SELECT count(*), md5(string_agg(d::text, '' ORDER BY n)) FROM shop.ducks d"


class Farm:
    """Instances of several versions, the first with content."""

    def __init__(self, installation: Installation) -> None:
        self.command = CommandLine(installation)
        self.full = self.instance(NEWEST)
        self.rows(self.full, CONTENT)
        self.sum = self.rows(self.full, SUM)

    @cached_property
    def other(self) -> str:
        """Each test leaves in it nothing that is in the way of another."""
        return self.instance(NEWEST)

    def instance(self, version: str) -> str:
        made = order(self.command.installation, engine="postgres", engine_version=version)
        return str(made["name"])

    def rows(self, name: str, statement: str) -> Any:
        with self.command.session(name) as session:
            return session.query(statement).rows

    def here(self, *argv: object) -> subprocess.CompletedProcess[str]:
        return self.command.here(*map(str, argv))

    # Where the words of PostgreSQL's own program are looked at, or its surroundings set.
    def run(self, *argv: object, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.command.run(*map(str, argv), **environment)


@pytest.fixture(scope="module")
def farm(installation: Installation) -> Farm:
    with installation.api() as api:
        offered = {each["id"]: each for each in api.get("/v1/engines").json()}["postgres"]
    if not {NEWEST, OTHER} <= set(offered["versions"]):
        pytest.skip(f"the cell has PostgreSQL {offered['versions']}")
    assert offered["default_version"] == NEWEST
    assert "vector" in offered["extensions"][NEWEST]
    assert "pgcrypto" in offered["extensions"][OTHER]
    return Farm(installation)


# By day the copy itself: engines/test_contract.py.
@pytest.mark.nightly
def test_an_archive_goes_from_one_instance_to_another(farm: Farm, tmp_path: Path) -> None:
    file = tmp_path / "full.dump"
    # Settings of the user's own for libpq must not lead elsewhere.
    done = farm.run("dump", farm.full, file, PGHOST="nowhere", PGSSLMODE="require")
    assert done.returncode == 0, done.stderr
    assert (done.stdout, "wrote" in done.stderr) == ("", True)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_bytes().startswith(b"PGDMP")
    assert list(tmp_path.iterdir()) == [file]
    target = farm.other
    done = farm.here("load", target, file)
    assert done.returncode == 0, done.stderr
    assert farm.rows(target, SUM) == farm.sum
    # All or nothing: what is there is in the way, and nothing of it changes.
    farm.rows(target, "DELETE FROM shop.ducks WHERE n = 1")
    done = farm.run("load", target, file)
    assert (done.returncode, "already exists" in done.stderr) == (1, True), done.stderr
    assert "pg_restore ended with status 1" in done.stderr
    assert farm.rows(target, "SELECT count(*) FROM shop.ducks") == [[8999]]
    assert "Traceback" not in done.stderr
    done = farm.here("load", target, file, "--clean", "--yes")
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert farm.rows(target, SUM) == farm.sum
    farm.rows(target, "DROP SCHEMA shop CASCADE; DROP EXTENSION hstore, pg_trgm")


@NIGHTLY
def test_sql_goes_through_a_pipe_and_into_an_older_version(farm: Farm) -> None:
    done = farm.run("dump", farm.full, "-")
    assert done.returncode == 0, done.stderr
    assert "CREATE TABLE shop.ducks" in done.stdout
    target = farm.instance(OTHER)
    older = done.stdout.replace("SET transaction_timeout = 0;\n", "")
    loaded = farm.command.run("load", target, "-", typed=older)
    assert loaded.returncode == 0, loaded.stderr
    assert farm.rows(target, SUM) == farm.sum
    half = "CREATE TABLE half (n int);\nSELECT 1/0;\n"
    loaded = farm.command.run("load", target, "-", typed=half)
    assert (loaded.returncode, "division by zero" in loaded.stderr) == (1, True), loaded.stderr
    assert farm.rows(target, "SELECT to_regclass('half')") == [[None]]


@pytest.mark.nightly
def test_sql_runs_nothing_on_the_machine_that_loads_it(farm: Farm, tmp_path: Path) -> None:
    """Not even a dump of a hostile database: what its names hold is quoted, or refused."""
    hostile = farm.other
    # Short, as a name in PostgreSQL is.
    planted = Path(f"/tmp/{secrets.token_hex(8)}")
    name = f"a\n\\! touch {planted}\nb"
    farm.rows(hostile, f'CREATE TABLE "{name}" (n int); COMMENT ON TABLE "{name}" IS $${name}$$')
    assert farm.here("dump", hostile, tmp_path / "a.sql").returncode == 0
    dumped = (tmp_path / "a.sql").read_text()
    assert dumped.count("\\restrict") == dumped.count("\\unrestrict") == 1
    farm.rows(hostile, f'DROP TABLE "{name}"')
    done = farm.here("load", hostile, tmp_path / "a.sql")
    assert done.returncode == 0, done.stderr
    assert farm.rows(hostile, "SELECT relname FROM pg_class WHERE relname LIKE 'a%b'") == [[name]]
    key = dumped.partition("\\restrict ")[2].partition("\n")[0]
    lifting = f"\\restrict {key}\n\\unrestrict {key}\n\\! touch {planted}\nSELECT 1;\n"
    piping = f"SELECT 1 \\g |touch {planted}\n"
    for text in (lifting, f"\\! touch {planted}\n", piping):
        (tmp_path / "b.sql").write_text(text)
        done = farm.run("load", hostile, tmp_path / "b.sql")
        assert (done.returncode, "restrict" in done.stderr) == (1, True), done.stderr
    assert not planted.exists()
    done = farm.here("load", hostile, tmp_path / "b.sql", "--psql-commands")
    assert done.returncode == 0, done.stderr
    planted.unlink()


@pytest.mark.nightly
def test_a_file_is_not_replaced_unless_told(farm: Farm, tmp_path: Path) -> None:
    file = tmp_path / "a.sql"
    file.write_text("mine")
    done = farm.here("dump", farm.full, file)
    assert (done.returncode, "--force overwrites it" in done.stderr) == (2, True), done.stderr
    assert file.read_text() == "mine"
    assert farm.here("dump", farm.full, file, "--force").returncode == 0
    assert "CREATE TABLE shop.ducks" in file.read_text()
    done = farm.here("dump", farm.full, tmp_path / "none" / "a.dump")
    assert (done.returncode, "its folder does not exist" in done.stderr) == (2, True), done.stderr
    done = farm.here("load", farm.full, tmp_path / "none")
    assert (done.returncode, "No such file" in done.stderr) == (2, True), done.stderr


@NIGHTLY
def test_a_dump_that_fails_leaves_no_file(farm: Farm, tmp_path: Path) -> None:
    broken = farm.other
    farm.rows(broken, "CREATE TABLE t AS SELECT 1 AS n; REVOKE ALL ON t FROM app; SELECT 1")
    farm.rows(
        broken, "ALTER TABLE t ENABLE ROW LEVEL SECURITY; ALTER TABLE t FORCE ROW LEVEL SECURITY"
    )
    try:
        done = farm.here("dump", broken, tmp_path / "a.dump")
    finally:
        farm.rows(broken, "DROP TABLE t")
    assert (done.returncode, "pg_dump ended with status 1" in done.stderr) == (1, True), done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("engine", "suffix"), [("valkey", "rdb"), pytest.param("duckdb", "duckdb", marks=NIGHTLY)]
)
def test_the_cell_dumps_other_engines(
    farm: Farm, tmp_path: Path, engine: str, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = str(order(farm.command.installation, engine=engine)["name"])
    monkeypatch.chdir(tmp_path)
    done = farm.here("dump", made)
    assert done.returncode == 0, done.stderr
    file = tmp_path / f"{made}.{suffix}"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [file]
    content = file.read_bytes()
    assert content.startswith((b"REDIS", b"VALKEY")) or content[8:12] == b"DUCK"
    done = farm.here("dump", made, "--format", "plain", "other")
    assert (done.returncode, "for PostgreSQL only" in done.stderr) == (2, True), done.stderr
    done = farm.here("load", made, "/dev/null")
    assert done.returncode == 2, done.stderr
    assert f"load does not support {engine}; branch the instance" in done.stderr


def test_a_backup_is_downloaded(farm: Farm, tmp_path: Path) -> None:
    made = str(order(farm.command.installation, engine="valkey")["name"])
    done = farm.here("backups", "create", made, "--wait", "--output", "json")
    backup = json.loads(done.stdout)["id"]
    file = tmp_path / "backup.tar.zst"
    done = farm.here("backups", "download", made, backup, file)
    assert done.returncode == 0, done.stderr
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_bytes().startswith(b"\x28\xb5\x2f\xfd")
    done = farm.here("backups", "download", made, f"{backup[:-4]}0000", tmp_path / "none")
    assert (done.returncode, "not found" in done.stderr) == (4, True), done.stderr
    assert list(tmp_path.iterdir()) == [file]
