"""Providers of OpenID Connect that tests of sign-ins ask."""

from collections.abc import Iterator

import pytest

from contract_tests.api.conftest import Houses
from contract_tests.sso_provider import SsoProvider


@pytest.fixture(autouse=True)
def _each_test_begins_in_the_present(houses: Houses) -> None:
    """Providers sign by the clock of the machine, which no test moves."""
    houses.begin()


@pytest.fixture
def provider() -> Iterator[SsoProvider]:
    made = SsoProvider()
    yield made
    made.close()
