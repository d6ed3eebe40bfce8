"""Owns what the tests of the search service share: a running process."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import meilisearch
import pytest
import uvicorn

from contract_tests.search.process import MASTER, Service, running
from contract_tests.service_process import until
from instance_services.search.callers import MasterKeys
from instance_services.search.search_app import make_app


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
    """The service in this process and on a port, which is what the client can speak to."""
    home = tmp_path_factory.mktemp("client")
    (home / "keys.json").write_text(json.dumps([MASTER]))
    (home / "data").mkdir()
    app = make_app(home / "data", MasterKeys(home / "keys.json"))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, lifespan="on"))
    thread = threading.Thread(target=server.run)
    thread.start()
    until(lambda: server.started, "the server to start")
    port = server.servers[0].sockets[0].getsockname()[1]
    yield meilisearch.Client(f"http://127.0.0.1:{port}", MASTER)
    server.should_exit = True
    thread.join(30)
