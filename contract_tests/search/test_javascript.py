"""Owns the promise that Meilisearch's own JavaScript client works, unmodified."""

import meilisearch
import pytest

from contract_tests.search.javascript import SEEN, walked
from contract_tests.search.process import MASTER


@pytest.mark.nightly
def test_the_javascript_client_does_its_work(client: meilisearch.Client) -> None:
    assert walked(client.config.url, MASTER) == SEEN
