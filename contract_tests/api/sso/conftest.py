"""Providers of OpenID Connect that tests of sign-ins ask."""

from collections.abc import Iterator

import pytest

from contract_tests.sso_provider import SsoProvider


@pytest.fixture
def provider() -> Iterator[SsoProvider]:
    made = SsoProvider()
    yield made
    made.close()
