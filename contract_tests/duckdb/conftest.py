"""Owns what the tests of the DuckDB service share: a running process, and a bare session."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from contract_tests.duckdb.process import Service, running
from instance_services.duckdb import session as sessions
from instance_services.duckdb.allowance import Allowance
from instance_services.duckdb.database import EngineLimits, open_database
from instance_services.duckdb.reference import Reference
from instance_services.duckdb.session import Session


@pytest.fixture(scope="session", autouse=True)
def _one_reference() -> Iterator[None]:
    """A process of the service has one; to make one for each session here is half of the CPU."""
    made = Reference()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sessions, "Reference", lambda: made)
        yield


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One process for the tests of a module; each makes tables of its own."""
    with running(tmp_path_factory.mktemp("duckdb")) as started:
        yield started


@pytest.fixture
def own_service(tmp_path: Path) -> Iterator[Service]:
    """A process for tests that end it or fill it."""
    with running(tmp_path) as started:
        yield started


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """The way through the engine without HTTP, where thousands of statements are run."""
    home = tmp_path_factory.mktemp("session")
    database, spill = home / "database.duckdb", home / "temp"
    connection = open_database(database, spill, EngineLimits(memory_bytes=400_000_000, threads=1))
    yield Session(connection, Allowance(database, spill, None))
    connection.close()
