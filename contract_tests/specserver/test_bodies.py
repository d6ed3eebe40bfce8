"""Owns the proof that bodies of every kind are read, or refused by name."""

import contextlib
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract_tests.specserver.calling import call, minimal, served
from specserver import json_sizes
from specserver.bodies import parse_json
from specserver.json_members import repeated
from specserver.problems import BadRequest

FORM = "application/x-www-form-urlencoded"


def echo(content: dict[str, Any], **more: Any) -> Any:
    document = minimal({"requestBody": {"content": content, **more}}, method="post")
    return served(document, lambda body: {"body": body if body is None else _shown(body)})


def _shown(body: Any) -> Any:
    return body.decode("latin-1") if isinstance(body, bytes) else body


def send(app: Any, media_type: str | None, body: bytes) -> Any:
    headers = {} if media_type is None else {"content-type": media_type}
    return call(app, "POST", "/thing", headers=headers, content=body)


@pytest.mark.parametrize(
    ("documented", "sent", "body", "expected"),
    [
        ("application/json", "application/json", b"[1]", [1]),
        ("application/merge-patch+json", "application/merge-patch+json", b"{}", {}),
        ("text/plain", "text/plain; charset=utf-8", "é".encode(), "é"),
        ("text/*", "text/csv", b"a,b", "a,b"),
        ("application/octet-stream", "application/octet-stream", b"\xff", "ÿ"),
        ("*/*", "image/png", b"\x89", "\x89"),
        ("*/*", None, b"\x89", "\x89"),
    ],
)
def test_bodies_are_read_by_their_media_type(
    documented: str, sent: str | None, body: bytes, expected: Any
) -> None:
    answer = send(echo({documented: {}}), sent, body)
    assert answer.json() == {"body": expected}


@pytest.mark.parametrize("media_type", ["text/html", "application/jsonx", "json", ""])
def test_other_media_types_are_named_in_the_refusal(media_type: str) -> None:
    answer = send(echo({"application/json": {}, FORM: {}}), media_type, b"{}")
    assert answer.status_code == 415
    assert answer.headers["accept"] == f"application/json, {FORM}"


def test_a_body_may_be_optional() -> None:
    app = echo({"application/json": {"schema": {"type": "object"}}})
    assert send(app, None, b"").json() == {"body": None}
    assert send(app, "application/json", b"").json() == {"body": None}
    assert send(app, "application/json", b"null").status_code == 422


def test_a_body_nobody_asked_for_has_no_effect() -> None:
    app = served(minimal({}, method="post"), lambda: {"done": True})
    assert send(app, "application/json", b"{").json() == {"done": True}


def test_an_operation_may_take_larger_bodies() -> None:
    content: dict[str, Any] = {"content": {"text/plain": {}}}
    document = minimal({"requestBody": content, "x-max-body-bytes": 50}, method="post")
    app = served(document, lambda body: {"length": len(body)}, max_body_bytes=10)
    assert send(app, "text/plain", b"x" * 50).json() == {"length": 50}
    assert send(app, "text/plain", b"x" * 51).status_code == 413


@given(st.binary(max_size=30))
def test_no_bytes_break_the_reading_of_json(raw: bytes) -> None:
    with contextlib.suppress(BadRequest):
        parse_json(raw)


COUNTED = {
    "type": "object",
    "properties": {
        "count": {"type": "integer"},
        "share": {"type": ["integer", "number"]},
        "rest": {"type": "object", "properties": {"rest": {"type": "null"}}},
    },
}


def test_an_integer_written_with_a_point_is_an_integer() -> None:
    app = echo({"application/json": {"schema": COUNTED}})
    answer = send(app, "application/json", b'{"count": 5e9, "share": 2.0}')
    assert answer.content == b'{"body":{"count":5000000000,"share":2.0}}'
    assert send(app, "application/json", b'{"count": 5.5}').status_code == 422


@pytest.mark.parametrize("depth", [200, 1000])
def test_what_is_wrong_and_nested_deep_is_refused(depth: int) -> None:
    app = echo({"application/json": {"schema": COUNTED}})
    answer = send(app, "application/json", b'{"rest":' * depth + b"1" + b"}" * depth)
    assert answer.status_code == 422
    assert answer.json()["errors"]


@pytest.mark.parametrize("inner", [b"[", b'{"a":'])
def test_a_body_has_so_many_levels_and_no_more(inner: bytes) -> None:
    """More than what takes it writes again, or reads back, would be taken and then be lost."""
    app = echo({"application/json": {}})
    end = b"]" if inner == b"[" else b"}"
    for depth, status in ((json_sizes.DEPTH_MAX, 200), (json_sizes.DEPTH_MAX + 1, 422)):
        answer = send(app, "application/json", inner * depth + b"1" + end * depth)
        assert answer.status_code == status, depth
    assert "is nested more than 202 levels deep" in answer.text
    # Side by side there may be more.
    assert send(app, "application/json", b'{"a":[' + b"[]," * 300 + b"1]}").status_code == 200


REPEATED = [
    (b'{"a": 1, "a": 2}', ["/a"]),
    (b'{"a": 1, "b": 2, "a": 1}', ["/a"]),
    (b'{"a": {"b": 1, "b": 2}}', ["/a/b"]),
    (b'[{"a/b": 1, "a/b": 2}, {"c": "x:y", "c": 3}]', ["/0/a~1b", "/1/c"]),
    (b'{"a": 1, "\\u0061": 2}', ["/a"]),
    # The colon of the member that is dropped is made up for by one that was escaped.
    (b'{"a": 1, "a": "\\u003a"}', ["/a"]),
    (b'{"a": 1, "a": "\\u003A", "b": "::"}', ["/a"]),
    (b'{"a": {"b": 1, "b": 2}, "a": {}}', ["/a", "/a/b"]),
    (b"[" * 200 + b'{"a": 1, "a": 2}' + b"]" * 200, ["/0" * 200 + "/a"]),
]


@pytest.mark.parametrize(("body", "pointers"), REPEATED)
def test_a_member_given_twice_is_named(body: bytes, pointers: list[str]) -> None:
    answer = send(echo({"application/json": {"schema": True}}), "application/json", body)
    assert answer.status_code == 422
    errors = answer.json()["errors"]
    assert [error["pointer"] for error in errors] == pointers
    assert errors[0]["message"] == "is given more than once; give it once"


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": "b:c", "d:e": [{"a": ":"}, {"a": "::"}]}',
        b'{"a": "\\u003a", "b": {"a": 1}}',
        b'{"a": "\\\\u003a", "b": ["\\"", ":"]}',
        b'{"a":1.0e5 , "b" : 12345678901234567890123}',
    ],
)
def test_a_member_may_have_colons_and_its_name_be_anothers_elsewhere(body: bytes) -> None:
    answer = send(echo({"application/json": {"schema": True}}), "application/json", body)
    assert answer.status_code == 200


def test_the_detail_says_when_there_may_be_more_violations() -> None:
    schema = {"type": "array", "items": {"type": "string"}}
    app = echo({"application/json": {"schema": schema}})
    for body, places in ([1] * 2, "2 places"), ([1] * 100, "100 places or more; `errors` holds"):
        problem = call(app, "POST", "/thing", json=body).json()
        assert problem["detail"].startswith(f"the request is invalid in {places}")
    late = call(app, "POST", "/thing", json=["x"] * 1_000 + [1]).json()
    assert late["detail"].startswith("the request is invalid in 1 place or more")
    assert late["errors"][0]["pointer"] == "/1000"


@pytest.mark.parametrize("text", [r"\u003a", r"\\\u003A", r"\\u003a:", r"\"\u003a\\"])
def test_colons_in_strings_make_no_slow_search(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slow search takes a second and more for a body of a megabyte."""
    monkeypatch.setattr(json, "loads", None)
    raw = f'{{"a": "{text}", "{text}": [{{"b": 1}}, {{"b": 2}}]}}'.encode()
    assert repeated(raw, parse_json(raw)) == []


def test_the_search_for_names_given_twice_is_linear() -> None:
    name = "n" * 1_000_000
    raw = f'{{"{name}": [{",".join(["{}"] * 300_000)}], "a": 1, "a": 2}}'.encode()
    began = time.process_time()
    assert repeated(raw, parse_json(raw)) == ["/a"]
    # The long name was copied for each object below it, which took ten seconds.
    assert time.process_time() - began < 3


def test_of_names_given_twice_some_are_told() -> None:
    each = '{"a": 1, "a": 2}'
    raw = f"[{','.join([each] * 5_000)}]".encode()
    assert len(repeated(raw, parse_json(raw))) == 100
    raw = f'{{"{"n" * 40_000}": [{",".join([each] * 50)}]}}'.encode()
    assert len(repeated(raw, parse_json(raw))) == 2


NAMES = st.sampled_from(["a", "b", "a:b", "\\u003a"])
TEXTS = st.recursive(
    st.sampled_from(["1", '":"', '"\\u003a"', "null", '"x"']),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda parts: f"[{','.join(parts)}]")
        | st.lists(st.tuples(NAMES, inner), max_size=3).map(
            lambda pairs: "{" + ",".join(f'"{name}":{text}' for name, text in pairs) + "}"
        )
    ),
    max_leaves=8,
)


@given(TEXTS)
def test_whatever_is_given_twice_is_found_and_nothing_else(text: str) -> None:
    expected = False

    def looked(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal expected
        expected = expected or len({name for name, _ in pairs}) < len(pairs)
        return dict(pairs)

    json.loads(text, object_pairs_hook=looked)
    raw = text.encode()
    assert bool(repeated(raw, parse_json(raw))) == expected


@pytest.mark.parametrize(
    "body",
    [
        b'{"m": [' + b",".join([b'{"a":' + b"[" * 200 + b"]" * 200 + b"}"] * 120) + b"]}",
        b"[" + b",".join([b"[]"] * 20_001) + b"]",
        b"[" + b",".join([b"1"] * 200_002) + b"]",
        b"{" + b",".join([b'"":1'] * 200_002) + b"}",
    ],
    ids=["nested", "arrays", "items", "members"],
)
def test_what_is_made_of_too_much_is_refused_before_it_is_parsed(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = echo({"application/json": {"schema": {"type": "object"}}})
    monkeypatch.setattr("specserver.bodies.orjson.loads", lambda _raw: pytest.fail("was parsed"))
    refused = send(app, "application/json", body)
    assert refused.status_code == 422
    (error,) = refused.json()["errors"]
    assert (error["pointer"], error["keyword"]) == ("", "size")
    assert "has more than 20,000 objects and arrays, or more than 200,000" in error["message"]


@pytest.mark.parametrize(
    "text",
    ["[" * 30_000, "{}," * 210_000, '\\"[,' * 60_000, "\\" * 10 + "[" * 30_000],
    ids=["brackets", "commas", "escapes", "backslashes"],
)
def test_texts_may_hold_any_number_of_brackets(text: str) -> None:
    app = echo({"application/json": {}})
    answer = send(app, "application/json", json.dumps({"text": text}).encode())
    assert answer.json() == {"body": {"text": text}}


@pytest.mark.parametrize("text", [b'"\\', b'\\"', b'"', b'"\\n'], ids=repr)
def test_texts_that_do_not_end_are_looked_at_once(text: bytes) -> None:
    """A megabyte of them took an hour, in which the process answered nobody."""
    app = echo({"application/json": {"schema": {"type": "object"}}})
    body = b"[" * (json_sizes.CONTAINERS_MAX + 1) + text * (900_000 // len(text))
    assert send(app, "application/json", body).status_code in (400, 422)
    assert json_sizes.fitting([body]) == 0


@pytest.mark.nightly
@given(
    st.recursive(
        st.text() | st.integers() | st.none(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_what_is_counted_is_what_the_value_holds(value: Any) -> None:
    """Whatever its texts are."""
    raw = json.dumps(value, separators=(",", ":")).encode()
    bare = json_sizes._STRING.sub(b"", raw)
    containers = _containers(value)
    assert bare.count(b"[") + bare.count(b"{") == containers


def _containers(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list):
        return 0
    return 1 + sum(map(_containers, inner))


def test_texts_are_counted_together_for_one_answer() -> None:
    half = b"[" + b"[]," * (json_sizes.CONTAINERS_MAX // 2 - 2) + b"0]"
    assert json_sizes.fitting([]) == 0
    assert json_sizes.fitting([half, half]) == 2
    assert json_sizes.fitting([half, half, b"[[[]]]", b"1"]) == 2
    assert json_sizes.fitting([b"[" + b"0," * (json_sizes.SEPARATORS_MAX + 1) + b"0]"]) == 0
    # What stands in texts is not counted.
    assert json_sizes.fitting([b'["' + half * 2 + b'"]', half, half, half]) == 3
    assert json_sizes.fitting([b'"' + half * 4 + b'"', half]) == 2
