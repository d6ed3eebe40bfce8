"""Owns the proof that what cannot be served is refused at start-up, with the reason."""

from pathlib import Path
from typing import Any

import pytest

from contract_tests.specserver.calling import DOCUMENT, HANDLERS, call, minimal, package, served
from specserver import App, Document, DocumentInvalid, HandlerMismatchError
from specserver.connexion_seam import ResolverError


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"openapi": "3.0.3"}, "3.1 is served"),
        ({"openapi": None}, "3.1 is served"),
        ({"info": {}}, "invalid at"),
        ({"paths": {"/a": {"get": {"operationId": "a.b", "responses": 3}}}}, "invalid at"),
        ({"paths": {"/a": {"get": {"responses": {"200": {"description": ""}}}}}}, "operationId"),
    ],
)
def test_an_invalid_document_is_refused(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(DocumentInvalid, match=reason):
        App(minimal({}) | change, handlers=package(do=lambda: None))


@pytest.mark.parametrize("reference", ["#/components/schemas/Ghost", "other.yaml#/a"])
def test_a_reference_must_lead_somewhere_in_the_document(reference: str) -> None:
    content = {"application/json": {"schema": {"$ref": reference}}}
    with pytest.raises((DocumentInvalid, ValueError, LookupError)):
        served(minimal({"requestBody": {"content": content}}, method="post"), lambda body: body)


def test_operation_ids_are_unique() -> None:
    document = minimal({})
    document["paths"]["/other"] = document["paths"]["/thing"]
    with pytest.raises(DocumentInvalid):
        App(document, handlers=package(do=lambda: None))


def test_two_parameters_may_not_share_a_python_name() -> None:
    twins = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in ("a-b", "a_b")]
    with pytest.raises(DocumentInvalid, match="both called a_b"):
        served(minimal({"parameters": twins}), lambda a_b: a_b)


def test_every_operation_needs_its_handler() -> None:
    with pytest.raises(ResolverError):
        App(minimal({}), handlers=package(other=lambda: None))
    with pytest.raises(ResolverError, match="no_such_package"):
        App(minimal({}), handlers="no_such_package")
    with pytest.raises(ResolverError, match="names no function"):
        App(minimal({}), handlers=package(do=3))  # type: ignore[arg-type]


def test_a_module_may_be_in_one_folder_of_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("__init__", "toys/__init__", "toys/thing", "tools/__init__"):
        place = tmp_path / "specserver_folders" / f"{module}.py"
        place.parent.mkdir(exist_ok=True)
        place.write_text("def do():\n    return __name__\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    app = App(minimal({}), handlers="specserver_folders")
    assert call(app, "GET", "/thing").json() == "specserver_folders.toys.thing"
    (tmp_path / "specserver_folders" / "tools" / "thing.py").touch()
    with pytest.raises(ResolverError, match=r"of specserver_folders.tools.thing or of specserver"):
        App(minimal({}), handlers="specserver_folders")


def test_a_handler_may_not_ask_for_what_the_document_does_not_give() -> None:
    def handler(thing_id: str) -> str:
        return thing_id

    with pytest.raises(HandlerMismatchError, match="asks for thing_id"):
        served(minimal({}), handler)


def test_with_a_boundary_only_leading_arguments_may_be_unknown() -> None:
    parameters = [{"name": "limit", "in": "query", "schema": {"type": "integer"}}]

    def misplaced(limit: int, call: Any) -> Any:
        return limit, call

    def keyword_only(*, call: Any) -> Any:
        return call

    for handler in (misplaced, keyword_only):
        with pytest.raises(HandlerMismatchError, match="asks for call"):
            served(minimal({"parameters": parameters}), handler, boundary=lambda e: e.invoke(1))


@pytest.mark.parametrize(
    ("operation_id", "function"),
    [("thing.list", "list_"), ("thing.list", "list"), ("thing.make-it", "make_it")],
)
def test_operation_ids_find_their_functions(operation_id: str, function: str) -> None:
    document = minimal({"operationId": operation_id})
    app = App(document, handlers=package(**{function: lambda: {"found": function}}))
    assert call(app, "GET", "/thing").json() == {"found": function}


def test_a_handler_that_takes_everything_gets_everything() -> None:
    parameters = [
        {"name": "X-Trace", "in": "header", "schema": {"type": "string"}},
        {"name": "theme", "in": "cookie", "schema": {"type": "string", "default": "dark"}},
        {"name": "from", "in": "query", "schema": {"type": "integer"}},
    ]
    content = {"application/json": {"schema": {"properties": {"a": {"default": [1]}}}}}
    document = minimal(
        {"parameters": parameters, "requestBody": {"content": content}}, method="post"
    )
    app = served(document, lambda **everything: everything)
    headers = {"x-trace": "t", "content-type": "application/json"}
    answer = call(app, "POST", "/thing?from=3", headers=headers, content=b"{}")
    expected = {"x_trace": "t", "theme": "dark", "from": 3, "body": {"a": [1]}}
    assert answer.json() == expected


def test_an_optional_argument_is_none_or_the_handlers_own_default() -> None:
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "integer"}} for name in ("a", "b")
    ]
    app = served(minimal({"parameters": parameters}), lambda a, b=7: [a, b])
    assert call(app, "GET", "/thing").json() == [None, 7]


def test_yaml_is_read_as_json_would_be(tmp_path: Path) -> None:
    text = DOCUMENT.read_text().replace("version: 1.0.0", "version: 2026-01-01\n  x-on: [on, no]")
    path = tmp_path / "openapi.yaml"
    path.write_text(
        text.replace("{title: Bakery,", "{title: '{{ Bakery }}',").replace(
            "version: 2026-01-01\n  x-on: [on, no]", "version: 2026-01-01, x-on: [on, no, true]"
        )
    )
    info = Document.load(path)["info"]
    assert info["version"] == "2026-01-01"
    assert info["x-on"] == ["on", "no", True]
    assert info["title"] == "{{ Bakery }}"


def test_references_are_followed_and_loops_left_alone() -> None:
    app = App(DOCUMENT, handlers=HANDLERS, security={"key": lambda _token: None})
    body = app.operations["loaves.bake"].document["requestBody"]
    schema = body["content"]["application/json"]["schema"]
    assert schema["properties"]["grams"]["minimum"] == 50
    assert schema["properties"]["slices"]["properties"]["next"] == {
        "$ref": "#/components/schemas/Slice"
    }


def test_operations_say_what_the_document_says() -> None:
    app = App(DOCUMENT, handlers=HANDLERS, security={"key": lambda _token: None})
    operation = app.operations["loaves.list"]
    assert (operation.method, operation.path, operation.tag) == ("GET", "/loaves", "Loaves")
    assert operation.security == [{"key": []}]
    assert operation.extension("authorize") == {"permission": "loaves:read"}
    assert operation.extension("absent", 3) == 3


def test_a_document_checked_before_is_not_held_to_openapi_again() -> None:
    Document.load(minimal({"info": {}}), checked=True)
    with pytest.raises(DocumentInvalid, match="invalid at"):
        Document.load(minimal({"info": {}}))


def test_apps_may_share_a_document_that_was_loaded_once() -> None:
    document = Document.load(minimal({}))
    one, other = (served(document, lambda said=said: said) for said in ("one", "other"))
    assert one.document is other.document is document
    assert [call(app, "GET", "/thing").json() for app in (one, other)] == ["one", "other"]
