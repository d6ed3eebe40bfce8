"""Schemathesis against the document of SCIM: whatever is asked, the answer is one of it."""

from typing import Any

import pytest
import schemathesis
import yaml
from schemathesis.checks import CHECKS, load_all_checks

from contract_tests import drawn
from contract_tests.api.harness import House
from contract_tests.api.sso.provider import Provider
from contract_tests.by_day import one_in
from menagerie import contract

LONG = 100
_RAW = yaml.safe_load(contract.scim_place().read_text())
# Its schemas leave bodies to the protocol, which refuses what they allow.
_NOT_SAID = ("positive_data_acceptance", "negative_data_rejection")

load_all_checks()
every_operation = pytest.mark.parametrize(
    "operation_id",
    one_in(4, [each["operationId"] for path in _RAW["paths"].values() for each in path.values()]),
)


@pytest.fixture(scope="module")
def operations(house: House) -> dict[str, Any]:
    loaded = schemathesis.openapi.from_dict(_RAW)
    loaded.app, loaded.location = house.app, "/openapi.json"
    return {drawn.name_of(each): each for each in drawn.operations(loaded)}


@every_operation
def test_every_answer_is_one_of_the_document(
    house: House, operations: dict[str, Any], operation_id: str
) -> None:
    run(house, operations[operation_id], 4)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@every_operation
def test_every_answer_is_one_of_the_document_at_length(
    house: House, operations: dict[str, Any], operation_id: str
) -> None:
    run(house, operations[operation_id], LONG)


def run(house: House, operation: Any, examples: int) -> None:
    provider = Provider(house)
    ids = {"Users": provider.user("ada")["id"], "Groups": provider.group("Data")["id"]}
    # To be asked who a token is has an answer of its own: 501.
    of_me = ("not_a_server_error",) if drawn.name_of(operation).startswith("me.") else ()
    left_out = list(CHECKS.get_by_names([*_NOT_SAID, *of_me]))

    def ask(case: Any) -> None:
        kind = case.path.split("/")[1]
        if kind in ids and "id" in (case.path_parameters or {}):
            case.path_parameters["id"] = ids[kind]
        response = case.call(headers={"Authorization": f"Bearer {provider.token}"})
        case.validate_response(response, excluded_checks=left_out)

    drawn.ask_a_few(operation, ask, examples)
