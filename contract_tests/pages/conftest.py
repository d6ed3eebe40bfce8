"""A house whose pages are tried: one for all tests of a file."""

import logging
from collections.abc import Iterator

import pytest
import structlog

from contract_tests.api.harness import House
from contract_tests.databases import Databases
from contract_tests.pages.browsing import Browser


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    yield
    structlog.configure(**before)


@pytest.fixture(scope="module")
def house(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with House(databases.migrated("sqlite"), tmp_path_factory.mktemp("house")) as made:
        made.names.start()
        yield made


@pytest.fixture
def browser(house: House) -> Browser:
    return Browser(house)
