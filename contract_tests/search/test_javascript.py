"""Owns the promise that Meilisearch's own JavaScript client works, unmodified."""

import json
import subprocess
from pathlib import Path

import meilisearch
import pytest

from contract_tests.clients.node_packages import node_modules
from contract_tests.search.process import MASTER

WALK = Path(__file__).with_name("walk.mjs")


@pytest.mark.nightly
def test_the_javascript_client_does_its_work(client: meilisearch.Client) -> None:
    done = subprocess.run(
        ["node", WALK, node_modules(), client.config.url, MASTER],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "healthy": True,
        "added": "succeeded",
        "typo": [3],
        "synonym": [1],
        "sorted": [3, 2],
        "facets": {"genre": {"Adventure": 1, "Romance": 2}},
        "facetHits": [{"value": "Romance", "count": 2}],
        "details": ["words", "typo", "proximity", "attributeRank", "wordPosition", "exactness"],
        "near": [1, 3, 2],
        "similar": [3],
        "several": [[2], [1]],
        "merged": [1, 2],
        "batch": 1,
        "documents": 3,
        "missing": "index_not_found",
        "deleted": "succeeded",
    }
