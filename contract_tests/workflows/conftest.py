"""A stage for workflow tests, on each dialect."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from contract_tests import published
from contract_tests.databases import DIALECTS, Databases
from contract_tests.workflows.stage import Stage


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """These tests break things thousands of times, and the log would tell of each."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


@pytest.fixture(autouse=True, scope="module")
def _events_are_described() -> Iterator[None]:
    with published.checked():
        yield


@pytest.fixture
def stage(database_url: str, tmp_path: Path) -> Iterator[Stage]:
    made = Stage(database_url, tmp_path / "cell.db")
    yield made
    made.close()


@pytest.fixture(scope="module", params=DIALECTS)
def one_stage(
    request: pytest.FixtureRequest, databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    """For a whole module, where every test brings an instance of its own."""
    made = Stage(
        databases.migrated(str(request.param)), tmp_path_factory.mktemp("cell") / "cell.db"
    )
    yield made
    made.close()
