"""Owns what becomes of data that another release has written."""

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from contract_tests.search.process import Service
from instance_services.search import databases

RELEASED = {
    databases.TASKS: ["18d2481465ad48cd"],
    databases.DATA: ["496f9749f183be30"],
}
"""Digests of the steps, in order."""


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def set_version(path: Path, version: int) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")


@pytest.mark.parametrize("name", [databases.TASKS, databases.DATA])
def test_data_of_a_later_release_are_left_alone(own_service: Service, name: str) -> None:
    service, path = own_service, own_service.data / name
    service.done("POST", "/indexes/books/documents", [{"id": 1}])
    service.kill()
    set_version(path, 99)
    with pytest.raises(AssertionError):
        service.start()
    assert service.process is not None
    assert service.process.wait(10) == 1
    told = service.log.read_text()
    assert f"{name} has tables of version 99, and this release knows those up to 1" in told
    assert "Traceback" not in told
    assert version_of(path) == 99
    set_version(path, 1)
    service.start()
    assert service.ask("GET", "/indexes/books/documents/1") == {"id": 1}


def test_data_from_before_versions_are_taken_over(own_service: Service) -> None:
    service = own_service
    service.done("POST", "/indexes/books/documents", [{"id": 1}])
    service.kill()
    for name in (databases.TASKS, databases.DATA):
        set_version(service.data / name, 0)
    service.start()
    assert service.ask("GET", "/indexes/books/documents/1") == {"id": 1}
    assert [version_of(service.data / name) for name in (databases.TASKS, databases.DATA)] == [1, 1]


def test_a_step_is_done_as_a_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    databases.make(tmp_path)
    first = databases._STEPS[databases.DATA]
    broken = "CREATE TABLE halves (number INTEGER); INSERT INTO nowhere VALUES (1);"
    monkeypatch.setitem(databases._STEPS, databases.DATA, (*first, broken))
    with pytest.raises(sqlite3.OperationalError):
        databases.make(tmp_path)
    path = tmp_path / databases.DATA
    assert version_of(path) == 1
    whole = "CREATE TABLE halves (number INTEGER); INSERT INTO halves VALUES (1);"
    monkeypatch.setitem(databases._STEPS, databases.DATA, (*first, whole))
    databases.make(tmp_path)
    databases.make(tmp_path)
    assert version_of(path) == 2
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT number FROM halves").fetchall() == [(1,)]


@pytest.mark.parametrize("name", [databases.TASKS, databases.DATA])
def test_a_released_step_stays_as_it_is(name: str) -> None:
    """Files that had it already would never have what is changed: add a step, and its digest."""
    found = [hashlib.sha256(step.encode()).hexdigest()[:16] for step in databases._STEPS[name]]
    assert found == RELEASED[name]
