"""Whatever is sent to the queues of a cell, the answer is one their document names."""

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.core.parameters import ParameterLocation

from contract_tests import drawn
from contract_tests.by_day import one_in
from contract_tests.cell import test_document
from contract_tests.cell.queues.test_queues import Queues, make
from contract_tests.cell.rig import Rig
from contract_tests.cell.test_document import Caller, Estate
from instance_services.queues.service import DOCUMENT
from specserver.written import read

schema = schemathesis.openapi.from_dict(read(DOCUMENT))
# Names that are taken and queues that are not there are no fault of a request's form.
schema.config.checks.positive_data_acceptance.expected_statuses = ["2xx", "404", "409", "422"]
_caller = Caller()
schema.auth.set_from_requests(_caller)
_COMMON: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "database": None,
}
_DEEP = settings(max_examples=500, **_COMMON)


@pytest.fixture(scope="module")
def queues(shared_rig: Rig) -> Queues:
    made = make(shared_rig)
    made.make("there")
    return made


@pytest.fixture(scope="module")
def estate(shared_rig: Rig) -> Iterator[Estate]:
    with test_document._loop() as loop:
        serving = test_document._serve(shared_rig.socket)
        server = asyncio.run_coroutine_threadsafe(serving, loop).result(20)
        _caller.rig = shared_rig
        yield Estate(shared_rig, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        loop.call_soon_threadsafe(server.close)


@pytest.mark.parametrize("operation", one_in(2, drawn.operations(schema)), ids=drawn.name_of)
def test_every_answer_is_one_the_document_names(
    operation: Any, estate: Estate, queues: Queues
) -> None:
    drawn.ask_a_few(operation, partial(_ask, estate=estate, queues=queues))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@schema.parametrize()
@_DEEP
def test_every_answer_at_length(case: Any, estate: Estate, queues: Queues) -> None:
    _ask(case, estate, queues)


def _ask(case: Any, estate: Estate, queues: Queues) -> None:
    if not case.meta.is_negative_at(ParameterLocation.PATH):
        case.path_parameters["instance_id"] = queues.instance_id
        if "queue_name" in case.path_parameters and case.operation.method.upper() != "DELETE":
            case.path_parameters["queue_name"] = "there"
    estate.begin_operation(case)
    estate.validate(case)
