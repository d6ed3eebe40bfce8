"""A stage for tests of deliveries, on each dialect, and what they deliver with."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from contract_tests import published
from contract_tests.delivery.outbox import Outbox


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    """These tests break things, and the log would tell of each."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


@pytest.fixture(autouse=True, scope="module")
def _events_are_described() -> Iterator[None]:
    with published.checked():
        yield


@pytest.fixture
def outbox(database_url: str, tmp_path: Path) -> Iterator[Outbox]:
    made = Outbox(database_url, tmp_path / "cell.db")
    yield made
    made.close()
