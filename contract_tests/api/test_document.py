"""The document's lint: our documents pass it, and every rule of it can fail."""

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contract_tests.api.rows import DOCUMENT
from contract_tests.by_day import one_in
from tools.lint_document import faults

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    ROOT / "openapi.yaml",
    ROOT / "cell" / "openapi.yaml",
    ROOT / "instance_services" / "duckdb" / "openapi.yaml",
]
PAUSE = "/v1/orgs/{org_id}/instances/{instance_id}/actions/pause"
PROJECTS = "/v1/orgs/{org_id}/projects"
Spoil = Callable[[dict[str, Any]], object]


# `make check` lints them too.
@pytest.mark.nightly
@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_our_documents_are_in_order(path: Path) -> None:
    assert [str(fault) for fault in faults(path)] == []


def pause(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["paths"][PAUSE]["post"]
    return found


def create(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["paths"][PROJECTS]["post"]
    return found


def schema(document: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = document["components"]["schemas"][name]
    return found


SPOILED: dict[str, Spoil] = {
    "x-confirm: say what is lost": lambda d: d["paths"][PAUSE.replace("pause", "erase")][
        "post"
    ].pop("x-confirm"),
    "x-confirm-reason does not say why": lambda d: pause(d).update({"x-confirm": "none"}),
    "x-wait: say the operation": lambda d: pause(d).update({"x-wait": {"until": {}}}),
    "x-wait: there is no operation": lambda d: pause(d).update(
        {"x-wait": {"operation": "dice.roll", "until": {"rolled": 6}}}
    ),
    "x-confirm: write sentences": lambda d: pause(d).update({"x-confirm": True}),
    "write the operationId as noun.verb": lambda d: pause(d).update(operationId="pause"),
    "it needs the one of its module": lambda d: pause(d).update(tags=["Instances", "Me"]),
    "its operationId begins with projects": lambda d: pause(d).update(tags=["Projects"]),
    "describe the tag": lambda d: d["tags"].clear(),
    "say in a summary": lambda d: pause(d).pop("summary"),
    "a summary has 60 characters": lambda d: pause(d).update(summary="Pause it."),
    "say in a description": lambda d: pause(d).pop("description"),
    "describe the parameter limit": lambda d: d["components"]["parameters"]["Limit"].pop(
        "description"
    ),
    "describe the response 404": lambda d: d["components"]["responses"]["NotFound"].update(
        description=""
    ),
    "give an example of the request": lambda d: create(d)["requestBody"]["content"][
        "application/json"
    ].pop("example"),
    "breaks its schema: /name": lambda d: create(d)["requestBody"]["content"]["application/json"][
        "example"
    ].update(name=""),
    "say what a 404 looks like": lambda d: d["components"]["responses"]["NotFound"].pop("content"),
    "unevaluatedProperties: false": lambda d: schema(d, "ProjectCreate").pop(
        "unevaluatedProperties"
    ),
    "of its request is open": lambda d: schema(d, "MaintenanceWindow").pop("unevaluatedProperties"),
    "spell out what is required in the body of its request": lambda d: schema(
        d, "ProjectCreate"
    ).pop("required"),
    "spell out what is required in the body of its 201": lambda d: schema(d, "Project").pop(
        "required"
    ),
    "which it has not": lambda d: schema(d, "Project")["required"].append("colour"),
    "a list is a page": lambda d: d["paths"][PROJECTS]["get"]["responses"]["200"]["content"][
        "application/json"
    ].update(schema={"type": "array"}, example=[]),
    "a page has items and next_cursor": lambda d: schema(d, "ProjectPage")["required"].pop(),
    "with limit and cursor, both": lambda d: d["paths"][PROJECTS]["get"]["parameters"].pop(),
    "a moment is a Timestamp": lambda d: schema(d, "Project")["properties"].update(
        created_at={"type": "string"}
    ),
    "a size is in whole Bytes": lambda d: schema(d, "Bytes").update(type="number"),
    "money is UsdCents": lambda d: schema(d, "UsdCents").update(type="number"),
    "an id has the pattern of its kind": lambda d: schema(d, "ProjectId").pop("pattern"),
    "say in x-allowed": lambda d: schema(d, "Slug").pop("x-allowed"),
    "the body/name/propertyNames has a pattern: say in x-allowed": lambda d: schema(
        d, "ProjectCreate"
    )["properties"].update(name={"type": "object", "propertyNames": {"pattern": "^[a-z]+$"}}),
    "make it a DisplayName": lambda d: schema(d, "ProjectCreate")["properties"].update(
        name={"type": "string", "minLength": 1}
    ),
    "is used nowhere": lambda d: d["components"]["schemas"].update(Forgotten={"type": "string"}),
    "x-authorize is missing": lambda d: pause(d).pop("x-authorize"),
    "say x-audit": lambda d: d["paths"]["/v1/me"]["get"].pop("x-audit"),
    "x-audit-reason does not say why": lambda d: d["paths"]["/v1/me"]["get"].pop("x-audit-reason"),
    "x-rate-limit is 'often'": lambda d: pause(d).update({"x-rate-limit": "often"}),
    "anyone may call it: x-max-body-bytes": lambda d: d["paths"]["/v1/sessions"]["post"].pop(
        "x-max-body-bytes"
    ),
    "say x-events": lambda d: pause(d).pop("x-events"),
    "webhooks does not describe: instance.slept.v1": lambda d: pause(d).update(
        {"x-events": ["instance.slept.v1"]}
    ),
    "say whether the scope is org or team": lambda d: create(d)["x-authorize"].pop("scope"),
    "it is for user sessions": lambda d: create(d)["x-authorize"].update(session="user"),
    "x-authorize {session: user}": lambda d: create(d).update(security=[{"dev_user": []}]),
    "is a application/problem+json": lambda d: d["components"]["responses"]["Conflict"].update(
        content={"application/json": {"example": {}}}
    ),
    "password is a secret: make it writeOnly": lambda d: schema(d, "Password").pop("writeOnly"),
    "secret of its answer is a secret: x-secret": lambda d: schema(d, "TotpEnrolment")[
        "properties"
    ]["secret"].pop("x-secret"),
    "a POST takes Idempotency-Key": lambda d: pause(d)["parameters"].remove(
        {"$ref": "#/components/parameters/IdempotencyKey"}
    ),
    "carries X-Request-Id": lambda d: d["x-standard"]["headers"].pop("X-Request-Id"),
    "it destroys data, widens access": lambda d: d["paths"][PAUSE.replace("pause", "erase")][
        "post"
    ]["x-authorize"].pop("assurance"),
    "widens access or hands out credentials": lambda d: d["paths"]["/v1/orgs/{org_id}/api-keys"][
        "post"
    ]["x-authorize"].pop("assurance"),
    "hands out credentials: x-authorize": lambda d: d["paths"][
        "/v1/orgs/{org_id}/instances/{instance_id}/network"
    ]["put"]["x-authorize"].pop("assurance"),
    "x-assurance-reason says why there is no": lambda d: d["paths"][
        PAUSE.replace("pause", "erase")
    ]["post"].update({"x-assurance-reason": "Never."}),
    "the licence is Apache-2.0": lambda d: d["info"].update(license={"name": "MIT"}),
}
NOT_FOUND = "#/components/responses/NotFound"
# With any of these there is no document to find other faults in.
UNREADABLE: dict[str, Spoil] = {
    "the document is invalid": lambda d: d["info"].pop("title"),
    "instances.pause: its 404 is standard": lambda d: pause(d)["responses"].update(
        {"404": {"description": "No.", "content": {"application/json": {"example": {}}}}}
    ),
    "its 412 is standard: leave it out": lambda d: pause(d)["responses"].update(
        {"412": {"$ref": "#/components/responses/PreconditionFailed"}}
    ),
    "its 409 is standard": lambda d: pause(d)["responses"].update(
        {"409": {"$ref": NOT_FOUND, "description": "It is not there."}}
    ),
    "the headers of its 202 are standard": lambda d: pause(d)["responses"]["202"].update(
        headers={"ETag": {"schema": {"type": "integer"}}}
    ),
    "x-standard: 412 is answered in two ways": lambda d: d["x-standard"]["answers"].append(
        {"when": {}, "responses": {"412": {"$ref": NOT_FOUND}}}
    ),
    "x-standard: cookie is unknown": lambda d: d["x-standard"]["answers"].append(
        {"when": {"cookie": "theme"}, "responses": {}}
    ),
}


# Several at once, as reading a document takes a second; neighbours in the table go apart.
GROUPS = [list(SPOILED)[start::4] for start in range(4)] + [[one] for one in UNREADABLE]


@pytest.mark.parametrize("messages", one_in(3, GROUPS), ids=lambda messages: messages[0])
def test_each_rule_names_what_breaks_it(tmp_path: Path, messages: list[str]) -> None:
    document = copy.deepcopy(DOCUMENT.written)
    for message in messages:
        (SPOILED | UNREADABLE)[message](document)
    spoiled = tmp_path / "openapi.yaml"
    # Which is YAML as well, and read in half the time.
    spoiled.write_text(json.dumps(document, ensure_ascii=False))
    found = [str(fault) for fault in faults(spoiled) if "characters; 110" not in str(fault)]
    assert [one for one in messages if not any(one in fault for fault in found)] == [], found[:20]


LAYOUT = {
    "write /v1/engines in paths of the root": (
        "openapi.yaml",
        "  /v1/engines:\n",
        "  /v1/motors:\n",
    ),
    "write instance.paused.v1 in webhooks of the root": (
        "openapi.yaml",
        "  instance.paused.v1:\n",
        "  instance.slept.v1:\n",
    ),
    "queues.list: its tag Engines is of catalogue, and not of data": (
        "openapi/data.yaml",
        "operationId: queues.list\n      tags: [Queues]",
        "operationId: queues.list\n      tags: [Engines]",
    ),
    "tags: Queues is in 0 groups": ("openapi.yaml", "Migrations, Queues]", "Migrations]"),
    "/v1/stray: describe it in the file of its area": (
        "openapi.yaml",
        "\nwebhooks:\n",
        "  /v1/stray: {}\n\nwebhooks:\n",
    ),
}


@pytest.mark.nightly
@pytest.mark.parametrize("messages", [list(LAYOUT)[:2], list(LAYOUT)[2:]], ids=len)
def test_what_is_in_the_wrong_file_is_named(tmp_path: Path, messages: list[str]) -> None:
    shutil.copy(ROOT / "openapi.yaml", tmp_path)
    shutil.copytree(ROOT / "openapi", tmp_path / "openapi")
    for message in messages:
        name, old, new = LAYOUT[message]
        text = (tmp_path / name).read_text()
        assert text.count(old) == 1
        (tmp_path / name).write_text(text.replace(old, new))
    found = [str(fault) for fault in faults(tmp_path / "openapi.yaml")]
    assert [one for one in messages if not any(one in fault for fault in found)] == [], found[:20]
