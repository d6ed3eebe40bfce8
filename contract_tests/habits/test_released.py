"""What was released stays: each change that would break a program is told, and no other."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tools import released

Document = dict[str, Any]
PATH = "/v1/things"
BEFORE: Document = {
    "paths": {
        PATH: {
            "get": {
                "operationId": "things.list",
                "parameters": [
                    {"in": "query", "name": "kind", "schema": {"enum": ["a", "b"]}},
                    {"$ref": "#/components/parameters/Limit"},
                ],
                "responses": {
                    "200": {
                        "content": {
                            "application/json": {"schema": {"$ref": "#/components/schemas/Page"}}
                        }
                    },
                    "404": {},
                },
            },
            "post": {
                "operationId": "things.create",
                "requestBody": {
                    "content": {
                        "application/json": {"schema": {"$ref": "#/components/schemas/Order"}}
                    }
                },
                "responses": {"201": {}, "202": {}},
            },
        }
    },
    "webhooks": {
        "thing.made.v1": {
            "post": {
                "requestBody": {
                    "content": {
                        "application/json": {"schema": {"$ref": "#/components/schemas/Made"}}
                    }
                }
            }
        }
    },
    "components": {
        "parameters": {"Limit": {"in": "query", "name": "limit", "schema": {"type": "integer"}}},
        "schemas": {
            "Page": {
                "type": "object",
                "required": ["items"],
                "properties": {
                    "items": {"type": "array", "items": {"$ref": "#/components/schemas/Thing"}}
                },
            },
            "Thing": {
                "type": "object",
                "required": ["name", "status"],
                "properties": {
                    "name": {"type": "string"},
                    "status": {"type": "string", "enum": ["made", "gone"]},
                    "size": {"oneOf": [{"type": "integer"}, {"type": "null"}]},
                    "parts": {"type": "array", "items": {"$ref": "#/components/schemas/Thing"}},
                },
            },
            "Order": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": ["string", "null"]},
                    "plan": {"type": "string", "enum": ["s", "m"]},
                },
            },
            "Made": {
                "allOf": [
                    {
                        "type": "object",
                        "required": ["id", "data"],
                        "properties": {"id": {"type": "string"}, "data": {"type": "object"}},
                    }
                ],
                "properties": {
                    "data": {
                        "type": "object",
                        "required": ["by"],
                        "properties": {"by": {"type": "string"}, "at": {"type": "string"}},
                    }
                },
            },
        },
    },
}
LIST, CREATE, EVENT = f"GET {PATH}", f"POST {PATH}", "the event thing.made.v1"


def schema(now: Document, name: str) -> Document:
    found: Document = now["components"]["schemas"][name]
    return found


def data(now: Document) -> Document:
    found: Document = schema(now, "Made")["properties"]["data"]
    return found


def parameters(now: Document) -> list[Document]:
    found: list[Document] = now["paths"][PATH]["get"]["parameters"]
    return found


NEW = {"in": "query", "name": "new", "schema": {}, "required": True}
BREAKS: list[tuple[Callable[[Document], object], str]] = [
    (lambda now: now["paths"].pop(PATH), f"{LIST} was removed"),
    (lambda now: now["paths"][PATH].pop("post"), f"{CREATE} was removed"),
    (
        lambda now: now["paths"][PATH]["get"].update(operationId="things.all"),
        f"{LIST} is now things.all: clients and commands have its name",
    ),
    (
        lambda now: parameters(now).pop(1),
        f"{LIST}: the parameter limit was removed, and is refused where it is sent",
    ),
    (lambda now: parameters(now).append(NEW), f"{LIST}: the new parameter new is required"),
    (
        lambda now: parameters(now)[0].update(required=True),
        f"{LIST}: the parameter kind is now required",
    ),
    (
        lambda now: parameters(now)[0]["schema"].update(enum=["a"]),
        f"{LIST}: the parameter kind can no longer be 'b'",
    ),
    (
        lambda now: now["paths"][PATH]["post"]["requestBody"].update(required=True),
        f"{CREATE}: a body is now required",
    ),
    (
        lambda now: schema(now, "Order")["required"].append("plan"),
        f"{CREATE}: the body: plan is now required",
    ),
    (
        lambda now: schema(now, "Order")["properties"].pop("plan"),
        f"{CREATE}: the body: plan was removed, and is refused where it is sent",
    ),
    (
        lambda now: schema(now, "Order")["properties"]["name"].update(type="string"),
        f"{CREATE}: the body: name can no longer be null",
    ),
    (
        lambda now: schema(now, "Order")["properties"]["name"].update(enum=["x"]),
        f"{CREATE}: the body: name can now be only 'x'",
    ),
    (
        lambda now: now["paths"][PATH]["post"]["responses"].pop("202"),
        f"{CREATE}: the response 202 was removed",
    ),
    (
        lambda now: now["paths"][PATH]["get"]["responses"]["200"].update(content={"text/csv": {}}),
        f"{LIST}: the response 200 is no longer application/json",
    ),
    (
        lambda now: schema(now, "Thing")["properties"].pop("size"),
        f"{LIST}: the response 200: items: items: size was removed",
    ),
    (
        lambda now: schema(now, "Thing")["required"].remove("name"),
        f"{LIST}: the response 200: items: items: name may now be left out",
    ),
    (
        lambda now: schema(now, "Thing")["properties"]["name"].update(type=["string", "null"]),
        f"{LIST}: the response 200: items: items: name can now be null, and was string",
    ),
    (
        lambda now: schema(now, "Thing")["properties"]["status"].update(enum=["made"]),
        f"{LIST}: the response 200: items: items: status can no longer be 'gone'",
    ),
    (lambda now: now["webhooks"].clear(), f"{EVENT} was removed"),
    (lambda now: data(now)["properties"].pop("at"), f"{EVENT}: data: at was removed"),
    (lambda now: data(now)["required"].clear(), f"{EVENT}: data: by may now be left out"),
    (
        lambda now: data(now)["properties"]["by"].update(type="integer"),
        f"{EVENT}: data: by can now be integer, and was string",
    ),
    (
        lambda now: schema(now, "Made")["allOf"][0]["required"].remove("id"),
        f"{EVENT}: id may now be left out",
    ),
]


@pytest.mark.parametrize(("change", "told"), BREAKS, ids=[told for _, told in BREAKS])
def test_what_would_break_a_program_is_told(
    change: Callable[[Document], object], told: str
) -> None:
    now = copy.deepcopy(BEFORE)
    change(now)
    assert told in released.broken(BEFORE, now)


def test_what_is_added_breaks_nothing() -> None:
    now = copy.deepcopy(BEFORE)
    now["paths"]["/v1/more"] = now["paths"][PATH]
    now["webhooks"]["thing.made.v2"] = now["webhooks"]["thing.made.v1"]
    parameters(now).append({"in": "query", "name": "new", "schema": {}})
    parameters(now)[0]["schema"]["enum"].append("c")
    schema(now, "Order")["properties"]["new"] = {"type": "string"}
    schema(now, "Order")["required"].clear()
    schema(now, "Thing")["properties"]["new"] = {"type": "string"}
    schema(now, "Thing")["required"].append("size")
    schema(now, "Thing")["properties"]["status"]["enum"].append("lost")
    data(now)["properties"]["new"] = {"type": "string"}
    now["paths"][PATH]["get"]["responses"].pop("404")
    assert released.broken(BEFORE, now) == []


def test_the_record_is_read_as_it_was_written() -> None:
    document = released.current()
    assert released.broken(document, document) == []
    before = released.recorded()
    assert set(before) == {"paths", "webhooks", "components"}
    assert before["webhooks"]
