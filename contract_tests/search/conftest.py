"""Owns what the tests of the search service share: a running process."""

from collections.abc import Iterator
from pathlib import Path

import meilisearch
import pytest

from contract_tests.search.on_port import on_port
from contract_tests.search.process import MASTER, Service, running


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One process for the tests of a module; each makes indexes of its own."""
    with running(tmp_path_factory.mktemp("search")) as started:
        yield started


@pytest.fixture
def own_service(tmp_path: Path) -> Iterator[Service]:
    """A process for tests that end it or fill it."""
    with running(tmp_path) as started:
        yield started


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[meilisearch.Client]:
    with on_port(tmp_path_factory.mktemp("client"), MASTER) as address:
        yield meilisearch.Client(address, MASTER)
