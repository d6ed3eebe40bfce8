"""The walk through the API with Meilisearch's own JavaScript client, and what it is to see."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final

from contract_tests.clients.node_packages import node_modules

WALK: Final = Path(__file__).with_name("walk.mjs")
# Node.js asks the system, which knows no names below localhost.
LOOPBACK: Final = Path(__file__).with_name("loopback.cjs")
SEEN: Final = {
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
    "byKey": [2],
    "byToken": [1],
    "refused": "invalid_api_key",
    "missing": "index_not_found",
    "deleted": "succeeded",
}


def walked(address: str, key: str, ca_file: str | None = None) -> Any:
    """What was seen at the address; of a server with TLS its authority is told to Node.js."""
    surroundings = dict(os.environ)
    if ca_file is not None:
        surroundings["NODE_EXTRA_CA_CERTS"] = ca_file
    done = subprocess.run(
        ["node", "--require", LOOPBACK, WALK, node_modules(), address, key],
        env=surroundings,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
