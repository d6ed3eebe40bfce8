"""Holds promise 42 for this service: whatever is sent, the answer is one the document names."""

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, settings
from requests.auth import HTTPBasicAuth
from schemathesis.specs.openapi.checks import positive_data_acceptance

from contract_tests import drawn
from contract_tests.duckdb.process import PASSWORD, digest
from contract_tests.service_process import until
from instance_services.duckdb.database import EngineLimits
from instance_services.duckdb.engine import SerialExecutor
from instance_services.duckdb.service import DOCUMENT, make_app
from instance_services.duckdb.turns import QueryTurns
from instance_services.duckdb.users import Users
from specserver.written import read

TIMEOUT_S = 60
_DOCUMENT = read(DOCUMENT)
schema = schemathesis.openapi.from_dict(_DOCUMENT)
schema.auth.set_from_requests(HTTPBasicAuth("app", PASSWORD))
_refused = schema.config.checks.negative_data_rejection
# What is wrong by having too much of something may be too large, too, which is told first.
_refused.expected_statuses = [*_refused.expected_statuses, "413"]


@pytest.fixture(scope="module")
def base_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The service in this process and on a port, which is what schemathesis can speak to."""
    home = tmp_path_factory.mktemp("document")
    (home / "users.json").write_text('{"app": ["' + digest(PASSWORD) + '"]}')
    limits = EngineLimits(memory_bytes=400_000_000, threads=1)
    turns = QueryTurns()
    engine = SerialExecutor(turns, home / "database.duckdb", home / "temp", limits)
    app = make_app(engine, Users(home / "users.json"))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, lifespan="on"))
    thread = threading.Thread(target=lambda: turns.run(server.serve()))
    thread.start()
    until(lambda: server.started, "the server to start")
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(30)


def _call(case: Any, base_url: str) -> None:
    # A body may be all that the document asks, and its SQL still be wrong.
    case.call_and_validate(
        base_url=base_url, timeout=TIMEOUT_S, excluded_checks=[positive_data_acceptance]
    )


_SETTINGS = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("operation", drawn.operations(schema), ids=drawn.name_of)
def test_every_answer_is_one_the_document_names(operation: Any, base_url: str) -> None:
    drawn.ask_a_few(operation, partial(_call, base_url=base_url), examples=6)


@pytest.mark.nightly
@schema.parametrize()
@settings(_SETTINGS, max_examples=1000)
def test_every_answer_is_one_the_document_names_at_length(case: Any, base_url: str) -> None:
    _call(case, base_url)


def test_examples_of_the_document_are_answered_as_they_say(base_url: str) -> None:
    content = _DOCUMENT["paths"]["/query"]["post"]
    asked = content["requestBody"]["content"]["application/json"]["examples"]
    told = content["responses"]["200"]["content"]["application/json"]["examples"]
    with httpx.Client(base_url=base_url, auth=("app", PASSWORD)) as client:

        def answer(body: Any) -> dict[str, Any]:
            response = client.post("/query", json=body)
            assert response.status_code == 200, response.text
            return {k: v for k, v in response.json().items() if k != "elapsed_ms"}

        answer({"sql": "CREATE TABLE products (name VARCHAR, price DECIMAL(8,2))"})
        for example in ("insert", "select"):
            expected = told[example]["value"]
            expected.pop("elapsed_ms")
            if example == "select":
                answer({"sql": "INSERT INTO products VALUES ('coffee', 8)"})
            assert answer(asked[example]["value"]) == expected


def test_the_document_has_no_part_that_is_not_served() -> None:
    assert set(_DOCUMENT["paths"]) == {"/query", "/version", "/statistics", "/health"}
    assert Path(DOCUMENT).name == "openapi.yaml"
