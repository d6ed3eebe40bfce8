"""Holds that a statement that wants too much memory fails, and the engine does not."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cell.engines.duckdb import memory_limits
from contract_tests.by_day import one_in
from contract_tests.duckdb import corpus
from contract_tests.duckdb.process import ANEW, Service, running

_SIZE_BYTES = 512 * 2**20
_GROUPS = Path("/sys/fs/cgroup")


@pytest.fixture(scope="module")
def smallest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with the limits of the smallest size, in a group that ends it beyond."""
    process_bytes, engine_bytes = memory_limits(_SIZE_BYTES)
    options = ["--memory-bytes", str(engine_bytes), "--process-bytes", str(process_bytes)]
    options += ["--temp-bytes", "1000000000", "--storage-bytes", "1000000000"]
    home = tmp_path_factory.mktemp("memory")
    with running(home, *options, program=ANEW) as service, _group() as group:
        assert service.process is not None
        if group is not None:
            (group / "cgroup.procs").write_text(str(service.process.pid))
        yield service
        service.end(9)


class _group:  # noqa: N801 - used as a function
    """A control group of the size's memory; None where none can be made here."""

    def __init__(self) -> None:
        is_v1 = (_GROUPS / "memory").is_dir()
        self._path = _GROUPS / ("memory" if is_v1 else "") / f"duckdb-{os.getpid()}"
        self._limit = "memory.limit_in_bytes" if is_v1 else "memory.max"

    def __enter__(self) -> Path | None:
        try:
            self._path.mkdir()
            (self._path / self._limit).write_text(str(_SIZE_BYTES))
        except OSError:
            return None
        return self._path

    def __exit__(self, *_: object) -> None:
        if self._path.exists():
            self._path.rmdir()


def _answers(service: Service) -> None:
    assert service.process is not None
    assert service.process.poll() is None
    assert service.rows("SELECT 1") == [[1]]


@pytest.mark.parametrize("sql", one_in(3, [sql for sql in corpus.HOGS if " t" not in sql]))
def test_a_statement_that_wants_too_much_memory_fails(smallest: Service, sql: str) -> None:
    assert smallest.error(sql).startswith("Out of Memory Error: the statement needs more memory")
    _answers(smallest)


@pytest.mark.nightly
def test_a_large_table_is_sorted_and_grouped_by_spilling(smallest: Service) -> None:
    smallest.query(corpus.FILL)
    for sql in corpus.LARGE:
        smallest.query(sql)
        _answers(smallest)
    for sql in corpus.HOGS:
        smallest.error(sql)
        _answers(smallest)
    assert smallest.rows("SELECT count(*) FROM t") == [[3_800_000]]


@pytest.mark.nightly
def test_an_answer_that_does_not_fit_beside_its_rows_fails(tmp_path: Path) -> None:
    process_bytes, engine_bytes = memory_limits(2**30)
    options = ["--memory-bytes", str(engine_bytes), "--process-bytes", str(process_bytes)]
    with running(tmp_path, *options, program=ANEW) as service:
        for length in (50_000_000, 90_000_000, 150_000_000, 200_000_000):
            sql = f"SELECT repeat('x', {length}), [repeat('x', {length})]"
            assert service.error(sql).startswith("Out of Memory Error")
            _answers(service)
