"""Owns the proof that validation finds what JSON Schema says, and says it without repeating it."""

import time
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # it comes without types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specserver.validation import Schema, Schemas, escape

CANARY = "hunter2-canary"


@pytest.mark.parametrize(
    ("schema", "instance", "expected"),
    [
        ({"type": "integer"}, "1", [("", "type", "must be an integer")]),
        ({"type": ["integer", "null"]}, "1", [("", "type", "must be an integer or null")]),
        ({"required": ["a", "b/c"]}, {}, [("/a", "required"), ("/b~1c", "required")]),
        (
            {"properties": {"a": {}}, "additionalProperties": False},
            {"x": 1, "y~": 2},
            [("/x", "additionalProperties"), ("/y~0", "additionalProperties")],
        ),
        (
            {
                "type": "object",
                "properties": {"b": {}},
                "required": ["a"],
                "additionalProperties": False,
            },
            {"a": 1},
            [("/a", "additionalProperties", "is not a known member")],
        ),
        (
            {"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False},
            {"a": 1, "x": 1},
            [("/x", "unevaluatedProperties", "is not a known member")],
        ),
        ({"items": {"minimum": 3}}, [3, 1], [("/1", "minimum", "must be at least 3")]),
        ({"minLength": 1}, "", [("", "minLength", "must have at least 1 character")]),
        ({"enum": ["a", "b"]}, "c", [("", "enum", 'must be "a" or "b"')]),
        (
            {"enum": ["mysql", "redis", "postgres"]},
            "Postgresql",
            [("", "enum", 'must be "postgres", "mysql" or "redis"')],
        ),
        (
            {"pattern": "^[a-z]$", "x-allowed": "a letter"},
            "1",
            [("", "pattern", "must be a letter")],
        ),
        (
            {"pattern": "^[a-z]$"},
            "1",
            [("", "pattern", "does not have the required format; see the API document")],
        ),
        (
            {
                "properties": {
                    "tags": {"propertyNames": {"pattern": "^[a-z]+$", "x-allowed": "letters"}}
                }
            },
            {"tags": {"fine": 1, "Team/Key": 2, "~": 3}},
            [
                ("/tags/Team~1Key", "propertyNames", "its name must be letters"),
                ("/tags/~0", "propertyNames", "its name must be letters"),
            ],
        ),
        (
            {"propertyNames": {"maxLength": 3}},
            {"long": 1},
            [("/long", "propertyNames", "its name must have at most 3 characters")],
        ),
        (
            {"propertyNames": {"enum": ["read", "write"]}},
            {"wrote": 1},
            [("/wrote", "propertyNames", 'its name must be "write" or "read"')],
        ),
        ({"format": "hostname"}, "-", [("", "format", "must be a valid host name")]),
        ({"format": "date-time"}, "soon", [("", "format")]),
        ({"format": "uuid"}, "soon", [("", "format", "must be a UUID")]),
        ({"oneOf": [{"minimum": 1}, {"minimum": 2}]}, 3, [("", "oneOf")]),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 3, [("", "anyOf")]),
        (False, 3, [("", "falseSchema", "is not allowed")]),
    ],
)
def test_names_the_place_and_the_rule(
    schema: Any, instance: Any, expected: list[tuple[str, ...]]
) -> None:
    found = Schema(schema).violations(instance)
    assert len(found) == len(expected)
    for violation, (pointer, keyword, *words) in zip(found, expected, strict=True):
        assert (violation["pointer"], violation["keyword"]) == (pointer, keyword)
        assert words in ([], [violation["message"]])


def test_the_branch_that_was_meant_speaks_for_a_union() -> None:
    def shape(kind: str, member: str) -> dict[str, Any]:
        kinds = {"kind": {"const": kind}, member: {"type": "integer"}}
        return {"type": "object", "required": ["kind", member], "properties": kinds}

    union = Schema({"oneOf": [shape("circle", "radius"), shape("square", "side")]})
    found = union.violations({"kind": "square", "side": "long"})
    assert [(v["pointer"], v["keyword"]) for v in found] == [("/side", "type")]


def test_a_schema_may_hold_itself() -> None:
    tree = {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/Tree"}}}
    schemas = Schemas({"components": {"schemas": {"Tree": tree}}})
    schema = schemas.of({"$ref": "#/components/schemas/Tree"})
    assert schema.is_valid({"next": {"next": {}}})
    assert [v["pointer"] for v in schema.violations({"next": {"next": 1}})] == ["/next/next"]


def test_equal_schemas_are_compiled_once() -> None:
    schemas = Schemas({})
    assert schemas.of({"type": "string", "minLength": 2}) is schemas.of(
        {"minLength": 2, "type": "string"}
    )


def test_there_is_an_end_to_what_is_told() -> None:
    found = Schema({"items": {"type": "integer"}}).violations(["x"] * 250)
    assert len(found) == 100
    assert found.may_be_more
    assert [found[0]["pointer"], found[99]["pointer"]] == ["/0", "/99"]
    assert not Schema({"items": {"type": "integer"}}).violations(["x"] * 99).may_be_more


LARGE = 200_000
WRONG_IN_EACH: list[Any] = [
    ({"items": {"enum": ["read", "write"]}}, [1] * LARGE),
    ({"properties": {"ids": {"items": {"type": "string"}}}}, {"ids": [1] * LARGE}),
    ({"items": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, [1] * LARGE),
    ({"items": {"required": list("abcdefgh")}}, [{}] * LARGE),
    ({"items": {"additionalProperties": False}}, [{"a": 1}] * LARGE),
    ({"items": {"unevaluatedProperties": False}}, [{"a": 1}] * LARGE),
    ({"additionalProperties": {"type": "string"}}, {str(n): n for n in range(LARGE)}),
    ({"propertyNames": {"pattern": "^x"}}, {str(n): n for n in range(LARGE)}),
    ({"items": {"items": {"type": "string"}, "uniqueItems": True}}, [[1, 1]] * LARGE),
]


@pytest.mark.parametrize(("schema", "instance"), WRONG_IN_EACH)
def test_half_a_million_violations_cost_little(schema: Any, instance: Any) -> None:
    compiled = Schema(schema)
    began = time.process_time()
    found = compiled.violations(instance)
    # Made one by one, they take ten seconds and more, and a gigabyte.
    assert time.process_time() - began < 2
    assert 1 < len(found) <= 100
    assert found.may_be_more


def test_sizes_are_told_first_and_what_comes_late_is_found() -> None:
    scopes = {"properties": {"scopes": {"maxItems": 20, "items": {"type": "string"}}}}
    found = Schema(scopes).violations({"scopes": [1] * LARGE})
    assert (found[0]["pointer"], found[0]["keyword"]) == ("/scopes", "maxItems")
    members = {"maxProperties": 20, "additionalProperties": {"type": "string"}}
    found = Schema(members).violations({str(n): n for n in range(LARGE)})
    assert (found[0]["pointer"], found[0]["keyword"]) == ("", "maxProperties")
    late = Schema({"items": {"type": "integer"}}).violations([*range(LARGE), "x"])
    assert [v["pointer"] for v in late] == [f"/{LARGE}"]
    assert late.may_be_more
    twice = Schema({"uniqueItems": True}).violations([*range(LARGE), 5])
    assert [v["keyword"] for v in twice] == ["uniqueItems"]


def test_nothing_is_called_wrong_because_of_what_was_cut() -> None:
    """Of an object or array of which not all was looked at, what is left says little."""
    schema = {
        "required": ["last"],
        "minProperties": 400,
        "properties": {
            "first": {"minItems": 400, "contains": {"const": "end"}, "not": {"maxItems": 300}},
            "wrong": {"type": "integer"},
        },
        "anyOf": [{"properties": {"first": {"minItems": 400}}}, {"type": "null"}],
    }
    whole: dict[str, Any] = {"wrong": "x", "first": [*range(400), "end"]}
    whole |= {str(n): n for n in range(400)} | {"last": 1}
    assert [v["pointer"] for v in Schema(schema).violations(whole)] == ["/wrong"]


def test_long_names_on_the_way_are_not_repeated_a_hundred_times() -> None:
    schema = {"additionalProperties": {"additionalProperties": {"type": "string"}}}
    found = Schema(schema).violations({"n" * 200_000: {str(n): n for n in range(200)}})
    assert sum(len(v["pointer"]) for v in found) < 400_000


RULES: list[dict[str, Any]] = [
    {"type": "integer"},
    {"const": 1},
    {"enum": [1, 2]},
    {"pattern": "^x"},
    {"format": "email"},
    {"maxLength": 3},
    {"not": {"type": "string"}},
    {"anyOf": [{"type": "integer"}, {"maxLength": 2}]},
    {"oneOf": [{"type": "string"}, {"minLength": 2}]},
]


@pytest.mark.parametrize("schema", RULES)
def test_the_value_is_never_repeated(schema: dict[str, Any]) -> None:
    found = Schema({"properties": {"secret": schema}}).violations({"secret": CANARY})
    assert found
    assert CANARY not in repr(found)


names = st.sampled_from(["a", "b", "c~/"])
leaves = st.sampled_from(
    [
        {"type": "integer"},
        {"type": "string"},
        {"type": ["string", "null"]},
        {"minimum": 2, "maximum": 5},
        {"minLength": 2},
        {"enum": [1, "x", None]},
        {"const": "x"},
        {"pattern": "^x+$"},
        {"multipleOf": 2},
        True,
    ]
)
schemas_ = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.dictionaries(names, inner, max_size=3)},
            optional={
                "required": st.lists(names, unique=True, max_size=2),
                "additionalProperties": st.sampled_from([True, False]),
                "minProperties": st.integers(0, 2),
            },
        ),
        st.fixed_dictionaries(
            {"type": st.just("array"), "items": inner},
            optional={"minItems": st.integers(0, 2), "uniqueItems": st.booleans()},
        ),
    ),
    max_leaves=6,
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.sampled_from(["", "x", "xx", "y"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["a", "b", "d"]), inner)
    ),
    max_leaves=6,
)


def independently(schema: Any, instance: Any) -> set[tuple[str, str]]:
    """What the reference implementation in Python finds, told in our way."""
    found = set()
    for error in jsonschema.Draft202012Validator(schema).iter_errors(instance):
        pointer = "".join("/" + escape(str(part)) for part in error.absolute_path)
        keyword = str(error.validator)
        if keyword == "required":
            missing = [name for name in error.validator_value if name not in error.instance]
            found |= {(f"{pointer}/{escape(name)}", keyword) for name in missing}
        elif keyword == "additionalProperties":
            extra = set(error.instance) - set(error.schema.get("properties", {}))
            found |= {(f"{pointer}/{escape(name)}", keyword) for name in extra}
        else:
            found.add((pointer, keyword))
    return found


@given(schemas_, values)
def test_agrees_with_an_independent_implementation(schema: Any, instance: Any) -> None:
    compiled = Schema(schema)
    found = {(v["pointer"], v["keyword"]) for v in compiled.violations(instance)}
    assert found == independently(schema, instance)
    assert compiled.is_valid(instance) == (not found)


def test_of_many_choices_the_nearest_come_first() -> None:
    (found,) = Schema({"enum": [f"size-{n}" for n in range(25)]}).violations("SIZE24")
    assert found["message"].startswith('must be one of "size-24", "size-2", "size-4", ')
    assert found["message"].endswith(" and 5 more")
