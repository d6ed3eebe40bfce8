"""Members that nobody may see again are known by the document, at any depth, and are left out."""

from typing import Any

from control.boundary import secret_members

SECRET = {"type": "string", "writeOnly": True}
SHOWN_ONCE = {"type": "string", "x-secret": True}
OPEN = {"type": "string"}


def message(schema: dict[str, Any]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def test_of_a_request_they_are_what_is_only_written() -> None:
    assert secret_members.names_of({}) == frozenset()
    assert secret_members.names_of({"requestBody": {}}) == frozenset()
    schema = of(
        password=SECRET,
        name=OPEN,
        account=of(code=SECRET, email=OPEN),
        rows={"type": "array", "items": of(pin=SECRET)},
        token=SHOWN_ONCE,
    )
    for keyword in ("allOf", "anyOf", "oneOf"):
        schema[keyword] = [of(**{f"of_{keyword}": SECRET}), of(other=OPEN)]
    names = secret_members.names_of({"requestBody": message(schema)})
    assert names == {"password", "code", "pin", "of_allOf", "of_anyOf", "of_oneOf"}


def test_of_responses_they_are_what_is_shown_once() -> None:
    assert secret_members.answered_by({}) == frozenset()
    operation = {
        "requestBody": message(of(sent=SHOWN_ONCE)),
        "responses": {
            "201": message(of(token=SHOWN_ONCE, id=OPEN, password=SECRET)),
            "202": message({"type": "array", "items": of(url=SHOWN_ONCE)}),
            "204": {},
            "default": message({}),
            "4XX": {"content": {"text/plain": {}}},
        },
    }
    assert secret_members.answered_by(operation) == {"token", "url"}


def test_they_are_found_and_left_out_at_any_depth() -> None:
    secret = frozenset({"password", "code", "pin"})
    value = {
        "name": "password",
        "password": "p",
        "account": {"code": 1, "email": "e"},
        "rows": [{"pin": 2, "n": 3}, "code"],
        "pair": ({"pin": 4}, 5),
    }
    assert secret_members.found(secret, value) == {"password", "code", "pin"}
    assert secret_members.found(secret, ["pin", {"rows": [{"pin": 1}]}]) == {"pin"}
    assert secret_members.found(secret, "pin") == set()
    left = {
        "name": "password",
        "account": {"email": "e"},
        "rows": [{"n": 3}, "code"],
        "pair": [{}, 5],
    }
    assert secret_members.without(secret, value) == left
    assert secret_members.without(secret, None) is None
    assert value["password"] == "p"
