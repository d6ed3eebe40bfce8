"""Owns the proof that parameters are read by their schemas, and that nothing else gets through."""

import json
from typing import Any
from urllib.parse import quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract_tests.specserver.calling import minimal, served
from specserver import DocumentInvalid
from specserver.binding import argument_name
from specserver.parameters import Parameter, read_query
from specserver.validation import Schemas


def parameter(schema: Any, place: str = "query", **more: Any) -> Parameter:
    return Parameter({"name": "p", "in": place, "schema": schema, **more}, Schemas({}))


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "integer"}, "-12", -12),
        ({"type": "number"}, "1.5e3", 1500.0),
        ({"type": "number"}, "7", 7),
        ({"type": "boolean"}, "true", True),
        ({"type": "string"}, "", ""),
        ({"type": ["integer", "null"]}, "null", None),
        ({"type": ["integer", "string"]}, "x1", "x1"),
        ({"type": ["string", "integer"]}, "1", 1),
        ({"anyOf": [{"type": "integer"}, {"const": "all", "type": "string"}]}, "all", "all"),
        ({}, "anything", "anything"),
    ],
)
def test_reads_a_text_by_its_schema(schema: Any, text: str, value: Any) -> None:
    assert parameter(schema).read([text]) == (value, [])


@pytest.mark.parametrize(
    ("schema", "text", "message"),
    [
        ({"type": "integer"}, "1.0", "must be an integer"),
        ({"type": "integer"}, "", "must be an integer"),
        ({"type": "integer"}, "٣", "must be an integer"),
        ({"type": "integer"}, " 1", "must be an integer"),
        ({"type": "integer"}, "0x1", "must be an integer"),
        ({"type": "integer"}, "9" * 5000, "must be an integer"),
        ({"type": "number"}, "NaN", "must be a number"),
        ({"type": "number"}, "Infinity", "must be a number"),
        ({"type": "boolean"}, "yes", "must be true or false"),
        ({"type": ["integer", "null"]}, "x", "must be an integer or null"),
        ({"type": "integer", "minimum": 3}, "2", "must be at least 3"),
        ({"type": "string", "format": "date"}, "x", "must be a date such as 2026-01-31"),
    ],
)
def test_refuses_what_is_not_of_the_type(schema: Any, text: str, message: str) -> None:
    _, violations = parameter(schema).read([text])
    assert [(v["parameter"], v["message"]) for v in violations] == [("p", message)]


def test_a_single_value_given_twice_is_refused() -> None:
    _, violations = parameter({"type": "string"}).read(["a", "b"])
    assert violations[0]["message"] == "must be given once"


@pytest.mark.parametrize(
    ("more", "texts"),
    [
        ({}, ["1", "2"]),
        ({"explode": False}, ["1,2"]),
    ],
)
def test_reads_arrays(more: dict[str, Any], texts: list[str]) -> None:
    array = {"type": "array", "items": {"type": "integer"}}
    assert parameter(array, **more).read(texts) == ([1, 2], [])


@pytest.mark.parametrize(
    "form",
    [
        {"style": "pipeDelimited", "schema": {"type": "array"}},
        {"style": "deepObject", "schema": {"type": "object"}},
        {"schema": {"oneOf": [{"type": "object"}, {"type": "string"}]}},
        {"content": {"application/json": {"schema": {"type": "array"}}}},
    ],
)
def test_a_form_that_is_not_read_is_refused_at_the_start(form: dict[str, Any]) -> None:
    with pytest.raises(DocumentInvalid, match=r"thing\.do: parameter p "):
        served(minimal({"parameters": [{"name": "p", "in": "query", **form}]}), lambda p: p)


def test_a_list_in_a_header_may_have_spaces() -> None:
    array = {"type": "array", "items": {"type": "string"}}
    assert parameter(array, "header").read(["a, b ,c"]) == (["a", "b", "c"], [])


@pytest.mark.parametrize(
    ("name", "python"),
    [
        ("Idempotency-Key", "idempotency_key"),
        ("pageSize", "page_size"),
        ("X-Org", "x_org"),
        ("filter[name]", "filter_name"),
        ("2fa", "_2fa"),
    ],
)
def test_names_are_python_names(name: str, python: str) -> None:
    assert argument_name(name) == python


pairs = st.lists(st.tuples(st.text(min_size=1), st.text()), max_size=6)


@given(pairs)
def test_any_text_survives_a_query_string(given_pairs: list[tuple[str, str]]) -> None:
    try:
        query = "&".join(f"{quote_plus(name)}={quote_plus(text)}" for name, text in given_pairs)
    except UnicodeEncodeError:
        return
    expected: dict[str, list[str]] = {}
    for name, text in given_pairs:
        expected.setdefault(name, []).append(text)
    assert read_query(query.encode()) == expected


@pytest.mark.parametrize("blank", ["+", "%20", "%2b"])
def test_a_plus_is_a_blank_unless_it_is_escaped(blank: str) -> None:
    """Also where nothing else of the query string is escaped."""
    meant = {"%2b": "+"}.get(blank, " ")
    assert read_query(f"a{blank}b=c{blank}d&e=f".encode()) == {
        f"a{meant}b": [f"c{meant}d"],
        "e": ["f"],
    }


@given(st.binary(max_size=40))
def test_no_query_string_is_too_strange_to_read(raw: bytes) -> None:
    assert all(name is not None for name in read_query(raw))


json_leaves = st.one_of(
    st.integers(-(10**15), 10**15),
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
)


@given(json_leaves)
def test_numbers_and_booleans_are_read_as_json_has_them(value: Any) -> None:
    kind = {bool: "boolean", int: "integer", float: "number"}[type(value)]
    assert parameter({"type": kind}).read([json.dumps(value)]) == (value, [])


@given(st.text())
def test_an_integer_is_what_json_calls_one(text: str) -> None:
    value, violations = parameter({"type": "integer"}).read([text])
    try:
        expected = json.loads(text) if text == text.strip() else None
    except ValueError:
        expected = None
    if violations:
        assert type(expected) is not int
    else:
        assert value == expected
