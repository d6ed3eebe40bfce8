"""Owns the run of Schemathesis, with all its checks, against the sample API."""

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.core.parameters import ParameterLocation

from contract_tests import drawn
from contract_tests.specserver.calling import TOKEN, bakery

schema = schemathesis.openapi.from_asgi("/openapi.json", bakery())
_COMMON: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "database": None,
}
_DEEP = settings(max_examples=1000, **_COMMON)


def validate(case: "schemathesis.Case[Any]") -> None:
    headers = case.meta and case.meta.components.get(ParameterLocation.HEADER)
    if headers and headers.mode.is_negative:
        # It is the missing token that is to be noticed; with ours there may be nothing wrong.
        case.call_and_validate()
    else:
        case.call_and_validate(headers={"Authorization": f"Bearer {TOKEN}"})


@pytest.mark.parametrize("operation", drawn.operations(schema), ids=drawn.name_of)
def test_no_generated_request_finds_a_fault(operation: Any) -> None:
    drawn.ask_a_few(operation, validate, examples=6)


@pytest.mark.nightly
@schema.parametrize()
@_DEEP
def test_no_generated_request_finds_a_fault_in_a_thousand(case: "schemathesis.Case[Any]") -> None:
    validate(case)
