"""Standard answers follow from what an operation declares; by hand they are refused."""

import copy
from typing import Any

import pytest

from contract_tests.specserver.calling import minimal
from specserver import Document, DocumentInvalid
from specserver.document import METHODS
from specserver.standard import TABLE

PREFIX = "#/components/responses/"
RULES = [
    ({}, "422"),
    ({"body": True}, "400"),
    ({"content": True}, "406"),
    ({"security": True}, "401"),
    ({"security": "key"}, "403"),
    ({"path": True}, "404"),
    ({"method": ["POST"], "path": "org_id"}, "409"),
    ({"header": "If-Match"}, "412"),
    ({"query": "limit"}, "416"),
    ({"x-guard": {"kind": ["dog", "wall"]}}, "418"),
    ({"x-slow": True}, "504"),
]
SCHEMES = {"key": {"type": "http", "scheme": "bearer"}, "user": {"type": "http", "scheme": "basic"}}


def document(operation: dict[str, Any], method: str = "get", **more: Any) -> dict[str, Any]:
    made = minimal({"responses": {"204": {"description": "Done."}}, **operation}, method=method)
    made["components"] = {
        "securitySchemes": SCHEMES,
        "responses": {f"R{status}": {"description": f"It is {status}."} for _, status in RULES},
    }
    answers = [
        {"when": when, "responses": {status: {"$ref": f"{PREFIX}R{status}"}}}
        for when, status in RULES
    ]
    return {**made, TABLE: {"answers": answers}, **more}


def operation(made: dict[str, Any]) -> dict[str, Any]:
    raw = Document.load(made, checked=True).raw
    assert TABLE not in raw
    item = next(iter(raw["paths"].values()))
    found: dict[str, Any] = next(item[method] for method in METHODS if method in item)
    return found


def parameter(name: str, place: str) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": {}}


JSON: dict[str, Any] = {"application/json": {"schema": {}}}


@pytest.mark.parametrize(
    ("declared", "method", "follows"),
    [
        ({}, "get", []),
        ({"requestBody": {"content": JSON}}, "get", ["400"]),
        ({"responses": {"200": {"description": "It.", "content": JSON}}}, "get", ["406"]),
        ({"security": [{"user": []}]}, "get", ["401"]),
        ({"security": [{"user": []}, {"key": []}]}, "get", ["401", "403"]),
        ({"parameters": [parameter("goat_id", "path")]}, "post", ["404"]),
        ({"parameters": [parameter("org_id", "path")]}, "get", ["404"]),
        ({"parameters": [parameter("org_id", "path")]}, "post", ["404", "409"]),
        ({"parameters": [parameter("If-Match", "header")]}, "get", ["412"]),
        ({"parameters": [parameter("limit", "query")]}, "get", ["416"]),
        ({"x-guard": {"kind": "dog", "name": "Rex"}}, "get", ["418"]),
        ({"x-guard": {"kind": "cat"}}, "get", []),
        ({"x-guard": True}, "get", []),
        ({"x-slow": False}, "get", ["504"]),
    ],
)
def test_each_condition(declared: dict[str, Any], method: str, follows: list[str]) -> None:
    answered = operation(document(declared, method))["responses"]
    assert sorted({*answered} - {"200", "204"}) == sorted([*follows, "422"])
    assert list(answered) == sorted(answered)


def test_parameters_of_the_path_and_references_count() -> None:
    made = document({"parameters": [{"$ref": "#/components/parameters/Match"}]})
    made["components"]["parameters"] = {"Match": parameter("If-Match", "header")}
    next(iter(made["paths"].values()))["parameters"] = [parameter("goat_id", "path")]
    assert {"404", "412"} < set(operation(made)["responses"])


def test_the_security_of_the_document_counts_unless_the_operation_has_its_own() -> None:
    assert "403" in operation(document({}, security=[{"key": []}]))["responses"]
    assert "401" not in operation(document({"security": []}, security=[{"key": []}]))["responses"]


def test_reasons_follow_each_other_and_the_particular_one_is_first() -> None:
    own = {"$ref": f"{PREFIX}R422", "description": "The goat is too wide."}
    responses = {"204": {"description": "Done."}, "422": own}
    made = document({"responses": responses, "x-guard": {"kind": "dog"}})
    for reason in ("The {x-guard.kind}\n barks.", None, "The {x-guard.kind}\n barks."):
        answer = {"$ref": f"{PREFIX}R422"} | ({"description": reason} if reason else {})
        made[TABLE]["answers"].append({"when": {}, "responses": {"422": answer}})
    answer = operation(made)["responses"]["422"]
    assert answer == {
        "$ref": f"{PREFIX}R422",
        "description": "The goat is too wide. It is 422. The dog barks.",
    }


def test_headers_are_those_of_every_response_and_of_successes() -> None:
    made = document({"responses": {status: {"description": "It."} for status in ("200", "300")}})
    made[TABLE]["headers"] = {"X-Id": {"schema": {"type": "string"}}}
    made[TABLE]["answers"].append({"when": {}, "headers": {"ETag": {"schema": {}}}})
    answered = operation(made)["responses"]
    assert set(answered["200"]["headers"]) == {"X-Id", "ETag"}
    assert set(answered["300"]["headers"]) == {"X-Id"}
    shared = Document.load(made, checked=True).raw["components"]["responses"]
    assert set(shared["R404"]["headers"]) == {"X-Id"}


@pytest.mark.parametrize(
    "by_hand",
    [
        {"$ref": f"{PREFIX}R422"},
        {"$ref": f"{PREFIX}R404", "description": "It is not there."},
        {"description": "It is wrong."},
    ],
)
def test_by_hand_they_are_refused(by_hand: dict[str, Any]) -> None:
    with pytest.raises(DocumentInvalid, match="its 422 is standard: leave it out"):
        operation(document({"responses": {"422": by_hand}}))


def test_nothing_is_changed_in_what_is_given_nor_twice() -> None:
    made = document({"security": [{"key": []}]})
    before = copy.deepcopy(made)
    once = Document.load(made, checked=True).raw
    assert made == before
    assert Document.load(once, checked=True).raw == once
