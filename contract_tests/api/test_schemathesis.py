"""Schemathesis with all its checks against every operation: right requests, and wrong ones."""

from copy import deepcopy
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

from contract_tests.api.harness import House
from contract_tests.api.rows import OPERATIONS, estate
from contract_tests.by_day import one_in
from specserver import Operation

SHORT, LONG = 2, 250
MODES = {"right": GenerationMode.POSITIVE, "wrong": GenerationMode.NEGATIVE}
# Rules that a document cannot say: a cursor that was given out, what plan and catalogue allow.
_BEYOND_SCHEMAS = {
    *("cursor", "quota", "future", "date-time", "engine"),
    *("range", "scope", "operation", "strength"),
}
_BY_POLICY = {
    *("instances.create", "instances.update", "branches.create", "orgs.create"),
    *("network.replace", "domains.create"),
    *("backups.create", "backups.restore", "backup_settings.update", "migrations.create"),
}
# What the caller has read before, and what has become of it since.
_OF_STATE = {412, 428}

every_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.id)
both_modes = pytest.mark.parametrize("mode", MODES)

load_all_checks()


@pytest.fixture(scope="module")
def schema(house: House) -> Any:
    """By mode: to draw names from the classes of characters in their pattern takes minutes."""
    document = schemathesis.openapi.from_asgi("/openapi.json", house.app).raw_schema
    return {name: _of_plain_names(house, document, mode) for name, mode in MODES.items()}


def _of_plain_names(house: House, document: Any, mode: GenerationMode) -> Any:
    """A part of the right names where requests are right, and none that is wrong by its pattern."""
    plain = deepcopy(document)
    name = plain["components"]["schemas"]["DisplayName"]
    name["pattern"] = "^[!-~]([ -~]{0,98}[!-~])?$"
    if mode is GenerationMode.NEGATIVE:
        del name["pattern"]
    loaded = schemathesis.openapi.from_dict(plain)
    loaded.app, loaded.location = house.app, "/openapi.json"
    return loaded


# PostgreSQL refuses what SQLite takes: NUL in text, numbers beyond a column.
# By day a sixth of the operations, each with one of the two modes (by_day.py): that what is wrong
# is refused, and what is right is done, is shown of each in test_bad_input.py and in the files of
# its area. The night draws for all of them what nobody thought of, at length.
@pytest.mark.parametrize("house", ["postgresql"], indirect=True)
@pytest.mark.parametrize("operation", one_in(6, OPERATIONS), ids=lambda one: one.id)
@both_modes
def test_every_answer_is_one_of_the_document(
    house: House, schema: Any, operation: Operation, mode: str
) -> None:
    _run(house, schema, operation, mode, SHORT)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@every_operation
@both_modes
def test_every_answer_is_one_of_the_document_at_length(
    house: House, schema: Any, operation: Operation, mode: str
) -> None:
    _run(house, schema, operation, mode, LONG)


def _run(house: House, schema: Any, operation: Operation, mode: str, examples: int) -> None:
    described = schema[mode][operation.path][operation.method]
    needs_instance = "{instance_id}" in operation.path
    here = estate(house) if needs_instance else None
    tenant = here.tenant if here else house.tenant()
    ids = here.ids if here else {"org_id": tenant.org_id, "project_id": tenant.project_id}

    @settings(
        max_examples=examples,
        # The same requests on every run: chance has its place in the nightly one.
        derandomize=examples == SHORT,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=described.as_strategy(generation_mode=MODES[mode]))
    def check(case: Any) -> None:
        if mode == "right":
            case.path_parameters.update(
                {name: ids[name] for name in case.path_parameters if name in ids}
            )
        if "wait_for" in (case.query or {}):
            case.query["timeout_s"] = 0
        # Sessions are revoked and passwords changed on the way, so each request has its own.
        token = house.session(tenant.owner.id, mfa=True)
        headers = {"Authorization": f"Bearer {token}"} if operation.security else {}
        response = case.call(headers=headers)
        case.validate_response(response, excluded_checks=_excluded(operation, response))

    try:
        check()
    except AssertionError:
        raise
    except Exception as error:
        if mode == "wrong" and type(error).__name__ == "Unsatisfiable":
            pytest.skip("nothing about it can be wrong")
        raise


def _excluded(operation: Operation, response: Any) -> list[Any]:
    """Right by the schema, and refused by a rule that no schema can say."""
    acceptance = CHECKS.get_by_names(["positive_data_acceptance"])[0]
    if response.status_code == 413:
        # A refusal too, which Schemathesis does not count as one.
        return list(CHECKS.get_by_names(["negative_data_rejection"]))
    if response.status_code in _OF_STATE:
        return [acceptance]
    if response.status_code != 422:
        return []
    problem = response.json()
    broken = {error["keyword"] for error in problem.get("errors", ())}
    # Among hundreds of requests some Idempotency-Key is drawn twice.
    beyond = broken <= _BEYOND_SCHEMAS or problem["code"] == "idempotency_key_reused"
    if operation.id in _BY_POLICY or beyond:
        return [acceptance]
    return []
