"""Holds what survives a crash, and what a full database or a lost engine does."""

import contextlib
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from contract_tests.duckdb.process import Service, running


def test_kill_9_loses_no_committed_row(own_service: Service) -> None:
    service = own_service
    service.query("CREATE TABLE written (i INTEGER)")
    acknowledged: list[int] = []
    for crash in range(2):
        enough = threading.Event()

        arguments = (service, crash * 100_000, acknowledged, enough)
        writer = threading.Thread(target=_write, args=arguments)
        writer.start()
        assert enough.wait(90)
        service.end(signal.SIGKILL)
        writer.join(30)
        service.start()
        found = {row[0] for row in service.rows("FROM written")}
        # One more may be there than was acknowledged, per crash: written, and the answer lost.
        assert set(acknowledged) <= found
        assert len(found) <= len(acknowledged) + crash + 1


def _write(service: Service, first: int, acknowledged: list[int], enough: threading.Event) -> None:
    """Inserts one number after the other until the service is gone."""
    with service.client() as client:
        for i in range(first, first + 100_000):
            sql = {"sql": "INSERT INTO written VALUES (?)", "params": [i]}
            try:
                assert client.post("/query", json=sql).status_code == 200
            except httpx.TransportError:
                return
            acknowledged.append(i)
            if i == first + 20:
                enough.set()


# The service as it is, but for the refusal of what is known to break an engine.
UNGUARDED = """
from instance_services.duckdb.refusals import Refusals
Refusals.check = lambda self, statement, sql: None
from instance_services.duckdb.__main__ import main
raise SystemExit(main())
"""


@pytest.fixture
def unguarded(tmp_path: Path) -> Iterator[Service]:
    with running(tmp_path, program=("-c", UNGUARDED)) as started:
        yield started


@pytest.mark.nightly
def test_a_lost_engine_ends_the_process_and_a_restart_heals(unguarded: Service) -> None:
    service = unguarded
    service.query("CREATE TABLE healed AS SELECT 42 AS i")
    sql = "CHECKPOINT system"
    # Refused or already gone: which of the two is a matter of milliseconds.
    with service.client() as client, contextlib.suppress(httpx.TransportError):
        told = client.post("/query", json={"sql": sql}).text
        assert "because of an internal error" in told
        # Of the machine nothing is told: no stack, no path, no address.
        assert not re.search("Stack|0x|/|INTERNAL", told)
        assert client.post("/query", json={"sql": "SELECT 1"}).status_code == 503
    assert service.process is not None
    assert service.process.wait(30) == 70
    assert "Stack Trace" not in service.log.read_text()
    service.start()
    assert service.rows("FROM healed") == [[42]]


@pytest.mark.nightly
def test_a_full_database_refuses_growth_and_can_be_emptied(tmp_path: Path) -> None:
    with running(tmp_path, "--storage-bytes", "3000000") as service:
        service.query("CREATE TABLE filled (s VARCHAR)")
        fill = "INSERT INTO filled SELECT hash(random() + i)::VARCHAR FROM range(100000) t(i)"
        answers = [service.post(fill) for _ in range(5)]
        assert answers[0].status_code == 200
        assert answers[-1].status_code == 400
        assert "storage is full" in answers[-1].json()["error"]
        growing = ("CREATE TABLE more (i INTEGER)", "UPDATE filled SET s = 'x'")
        for sql in (*growing, f"EXPLAIN ANALYZE {fill}"):
            assert "storage is full" in service.error(sql)
        assert service.rows("SELECT count(*) > 0 FROM filled") == [[True]]
        service.query("DROP TABLE filled")
        service.query("CHECKPOINT")
        service.query("CREATE TABLE more (i INTEGER)")


def test_what_is_free_within_the_file_is_no_storage_that_is_used(tmp_path: Path) -> None:
    """A file becomes shorter only at its end, and deletions write what stays anew, behind that."""
    storage_bytes = 12_000_000
    with running(tmp_path, "--storage-bytes", str(storage_bytes)) as service:
        rows = "SELECT range AS i, hash(range) AS h, hash(range + 7) AS k FROM range(300000)"
        service.query(f"CREATE TABLE first AS {rows}")
        service.query(f"CREATE TABLE second AS {rows}; CHECKPOINT")
        size = service.database.stat().st_size
        assert size < storage_bytes
        for part in range(4):
            service.query(f"DELETE FROM second WHERE i % 8 = {part}; CHECKPOINT")
        service.query("DROP TABLE first; CHECKPOINT")
        assert service.database.stat().st_size > storage_bytes
        for _ in range(2):
            service.query("INSERT INTO second SELECT i, h + 1, k FROM second LIMIT 10000")
        # As much as is free, and no more.
        ((before,),) = service.rows("SELECT count(*) FROM second")
        refusals = [service.post(f"INSERT INTO second {rows}") for _ in range(4)]
        assert refusals[-1].status_code == 400
        assert "storage is full" in refusals[-1].json()["error"]
        assert service.rows("SELECT count(*) FROM second")[0][0] > before
        assert service.database.stat().st_size < 2 * storage_bytes


# Slow for what it adds by day.
@pytest.mark.nightly
def test_one_statement_that_outgrows_the_storage_is_stopped(tmp_path: Path) -> None:
    with running(tmp_path, "--storage-bytes", "3000000") as service:
        endless = "SELECT md5(i::VARCHAR) || md5((i + 1)::VARCHAR) FROM range(10000000000) t(i)"
        refusal = service.error(f"CREATE TABLE endless AS {endless}")
        assert "storage is full" in refusal
        assert service.rows("SHOW TABLES") == []


@pytest.mark.nightly
def test_what_a_query_spills_counts_as_storage(tmp_path: Path) -> None:
    limits = ("--storage-bytes", "40000000", "--temp-bytes", "1000000000")
    # Of two options the later counts.
    with running(tmp_path, *limits, "--memory-bytes", "100000000") as service:
        service.query(
            "CREATE TABLE kept AS SELECT md5(i::VARCHAR) AS s FROM range(1000000) t(i); CHECKPOINT"
        )
        kept_bytes = service.database.stat().st_size
        assert 10_000_000 < kept_bytes < 40_000_000
        sort = "SELECT s FROM (SELECT a.s || b.range AS s FROM kept a, range(5) b) ORDER BY s"
        assert "storage is full" in service.error(f"{sort} OFFSET 4999990")
        assert service.rows("SELECT count(*) FROM kept") == [[1_000_000]]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 6 MB, where this process may mount one."""
    command = ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(tmp_path)]
    if not shutil.which("mount") or subprocess.run(command, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


@pytest.mark.nightly
def test_a_full_disk_is_503_and_recovers_unaided(small_disk: Path) -> None:
    with running(small_disk) as service:
        service.query("CREATE TABLE kept AS SELECT 42 AS i; CREATE TABLE filler (s VARCHAR)")
        fill = "INSERT INTO filler SELECT hash(random() + i)::VARCHAR FROM range(20000) t(i)"
        rows = 0
        while (response := service.post(fill)).status_code == 200:
            rows += 20_000
        assert response.status_code == 503
        assert "No space left" in response.json()["error"]
        assert str(small_disk) not in response.text
        # What was acknowledged is there; what failed is not; reading goes on.
        assert service.rows("SELECT count(*) FROM filler") == [[rows]]
        command = ["mount", "-o", "remount,size=60m", str(small_disk)]
        subprocess.run(command, check=True)
        assert service.query(fill)["row_count"] == 20_000
        service.query("CHECKPOINT")
        service.end(signal.SIGKILL)
        service.start()
        assert service.rows("SELECT count(*) FROM filler") == [[rows + 20_000]]
        assert service.rows("FROM kept") == [[42]]


def test_what_a_killed_process_spilled_is_cleared_at_start(tmp_path: Path) -> None:
    spilled = tmp_path / "temp" / "duckdb_temp_storage_DEFAULT-0.tmp"
    spilled.parent.mkdir()
    spilled.write_bytes(b"spilled")
    with running(tmp_path):
        assert not spilled.exists()


def test_a_file_that_is_no_database_is_refused_at_start_and_left_alone(tmp_path: Path) -> None:
    content = b"x" * 20_000
    (tmp_path / "database.duckdb").write_bytes(content)
    with pytest.raises(AssertionError, match="not a valid DuckDB database file"), running(tmp_path):
        pass
    assert (tmp_path / "database.duckdb").read_bytes() == content
