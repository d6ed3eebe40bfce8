"""Holds the value mapping: random values, what JSON cannot say, and DuckDB's own answers."""

import base64
import datetime as dt
import decimal
import json
import uuid
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contract_tests.duckdb.sql_values import Value, leaves, values
from instance_services.duckdb.session import Session

_SETTINGS = settings(
    deadline=None,
    max_examples=50,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
_DEEP = settings(_SETTINGS, max_examples=2000)


def _rows(session: Session, sql: str, params: list[Any] | None = None) -> list[Any]:
    rows: list[Any] = json.loads(session.answer(sql, params or []))["rows"]
    return rows


def _check_literals(session: Session, row: list[Value]) -> None:
    expected = [[value.expected for value in row]]
    sql = "SELECT " + ", ".join(value.literal for value in row)
    assert _rows(session, sql) == expected
    # The same through a table, RETURNING, and a query with a parameter.
    columns = ", ".join(f"c{i} {value.kind}" for i, value in enumerate(row))
    session.answer(f"CREATE OR REPLACE TABLE literals ({columns})", [])
    literals = ", ".join(value.literal for value in row)
    assert _rows(session, f"INSERT INTO literals VALUES ({literals}) RETURNING *") == expected
    assert _rows(session, "FROM literals") == expected
    assert _rows(session, "SELECT * FROM literals WHERE ? = 1", [1]) == expected


@_SETTINGS
@given(row=st.lists(values, min_size=1, max_size=4))
def test_a_literal_comes_out_by_the_mapping(session: Session, row: list[Value]) -> None:
    _check_literals(session, row)


@pytest.mark.nightly
@_DEEP
@given(row=st.lists(values, min_size=1, max_size=6))
def test_a_literal_comes_out_by_the_mapping_at_length(session: Session, row: list[Value]) -> None:
    _check_literals(session, row)


def _check_parameters(session: Session, row: list[Value]) -> None:
    expected = [value.expected for value in row]
    sql = "SELECT " + ", ".join(value.back or "?" for value in row)
    assert _rows(session, sql, expected) == [expected]


@_SETTINGS
@given(row=st.lists(leaves, min_size=1, max_size=4))
def test_what_came_out_goes_in_again_as_a_parameter(session: Session, row: list[Value]) -> None:
    _check_parameters(session, row)


@pytest.mark.nightly
@_DEEP
@given(row=st.lists(leaves, min_size=1, max_size=6))
def test_what_came_out_goes_in_again_at_length(session: Session, row: list[Value]) -> None:
    _check_parameters(session, row)


# Drawn as such and not sifted: of all characters most are none of these.
_printable = st.characters(exclude_categories=["C", "Z"], include_characters=" ")
_json_values = st.recursive(
    st.one_of(
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(_printable),
    ),
    lambda inner: st.one_of(
        # DuckDB wants the members of a list to be of one type.
        inner.map(lambda value: [value, value]),
        st.dictionaries(st.sampled_from(["a", "b", "long name"]), inner, min_size=1, max_size=3),
    ),
    max_leaves=4,
)


@_SETTINGS
@given(params=st.lists(_json_values, min_size=1, max_size=3))
def test_json_parameters_come_back_as_they_are(session: Session, params: list[Any]) -> None:
    assert _rows(session, "SELECT " + ", ".join("?" for _ in params), params) == [params]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("NULL", None),
        ("[]", []),
        ("[NULL]", [None]),
        ("{'a': NULL, 'b': {'c': [NULL]}}", {"a": None, "b": {"c": [None]}}),
        ("NULL::STRUCT(a DATE)", None),
        ("[NULL::STRUCT(a DATE), {'a': DATE '2020-01-01'}]", [None, {"a": "2020-01-01"}]),
        ("MAP([1, 2], ['a', NULL])", {"1": "a", "2": None}),
        ("MAP([true], [1])", {"true": 1}),
        ("MAP([[1, 2]], [1])", {"[1,2]": 1}),
        ("MAP([{'k': 1.50}], [1])", {'{"k":"1.50"}': 1}),
        ("MAP(['key', 'value'], [[1], [2]])", {"key": [1], "value": [2]}),
        ("MAP([[1]], [MAP(['x'::BLOB], [2])])", {"[1]": {"eA==": 2}}),
        ("row(1, 'a', [2.5])", [1, "a", ["2.5"]]),
        ("row(TIMESTAMP '2020-01-01 10:00:00')", ["2020-01-01T10:00:00"]),
        ("union_value(k := 1)", 1),
        ("union_value(k := INTERVAL '1 month')", "1 month"),
        ("union_value(k := 'x'::BLOB)", "eA=="),
        ("{'u': union_value(k := 1.50)}", {"u": "1.50"}),
        ("[union_value(k := 'nan'::DOUBLE)]", ["NaN"]),
        ("{'a': 1, 'b': [1.5::DOUBLE]}::VARIANT", {"a": 1, "b": [1.5]}),
        ("9223372036854775807::HUGEINT", 9223372036854775807),
        ("9223372036854775808::HUGEINT", "9223372036854775808"),
        ("[-9223372036854775809::HUGEINT]", ["-9223372036854775809"]),
        ("18446744073709551615::UBIGINT", 18446744073709551615),
        ("sum(1)", 1),
        ("0::DECIMAL(38,20)", "0.00000000000000000000"),
        ("DATE '9999-12-31'", "9999-12-31"),
        ("TIMESTAMP '0001-01-01'", "0001-01-01T00:00:00"),
        ("TIMESTAMPTZ '2020-01-01 00:00:00+05:30'", "2019-12-31T18:30:00+00:00"),
        ("TIME_NS '10:00:00.123456789'", "10:00:00.123456789"),
        ("{'t': TIMETZ '10:00:00+02', 'z': TIMESTAMPTZ '2020-01-01 00:00:00+00'}",
         {"t": "10:00:00+02:00", "z": "2020-01-01T00:00:00+00:00"}),
        ("INTERVAL 999999999 MONTHS", "83333333 years 3 months"),
        ("'POINT (1 2)'::GEOMETRY", "POINT (1 2)"),
        ("MAP([1::BIGNUM], [2])", {"1": 2}),
        ("'null'::JSON", "null"),
        ("chr(0) || 'a'", "\0a"),
    ],
)  # fmt: skip
def test_what_json_cannot_say_as_documented(session: Session, sql: str, expected: Any) -> None:
    assert _rows(session, f"SELECT {sql}") == [[expected]]
    assert _rows(session, f"SELECT 1; SELECT {sql}") == [[expected]]


def test_the_type_of_a_parameter_is_not_remembered_from_another(session: Session) -> None:
    asked = [1, 2**40, 2**63, "a", 1.5, None, True, [1], ["a"], {"a": 1}, -(2**31), -(2**31) - 1]
    for _ in range(2):
        for param in asked:
            answer = json.loads(session.answer("SELECT ?, now()", [param]))
            with duckdb.connect() as plain:
                kind = str(plain.execute("SELECT ?", [param]).description[0][1])
            assert (answer["rows"][0][0], answer["column_types"][0]) == (param, kind)


def test_nulls_and_infinities_side_by_side(session: Session) -> None:
    floats = "['1.5', NULL, 'nan', 'inf', '-inf']::DOUBLE[]"
    sql = f"SELECT unnest({floats}), unnest([1, NULL, 3, 4, 5])"
    expected = [[1.5, 1], [None, None], ["NaN", 3], ["Infinity", 4], ["-Infinity", 5]]
    assert _rows(session, sql) == expected


def test_every_type_of_the_engine_has_a_form(session: Session) -> None:
    answer = json.loads(session.answer("FROM test_all_types()", []))
    assert answer["row_count"] == 3
    text = json.dumps(answer["rows"][2])
    assert set(text) <= set("[nul, ]"), "the last row holds nulls only"


def test_names_may_repeat(session: Session) -> None:
    answer = json.loads(session.answer("SELECT 1 AS a, DATE '2020-01-01' AS a, 3 AS A", []))
    assert (answer["columns"], answer["rows"]) == (["a", "a", "A"], [[1, "2020-01-01", 3]])
    assert answer["column_types"] == ["INTEGER", "DATE", "INTEGER"]


# The oracle: DuckDB's own Python package on a connection without any of our settings, in the range
# that Python's types can hold, written down by a few plain rules.
_TABLE = """
CREATE OR REPLACE TABLE facts AS SELECT
    i, i % 7 AS g, 'name ' || i % 13 AS s, i / 8 AS d, (i * 1.25)::DECIMAL(12,2) AS m,
    TIMESTAMP '2020-01-01' + to_minutes(i * 7) AS ts, DATE '2020-01-01' + (i % 31)::INTEGER AS dt,
    CASE WHEN i % 5 = 0 THEN NULL ELSE [i, i + 1] END AS l,
    {'a': i, 'm': (i * 0.5)::DECIMAL(9,1)} AS st,
    CASE WHEN i % 3 = 0 THEN NULL ELSE uuid_of(i) END AS u, encode(i::VARCHAR) AS b
FROM range(500) t(i)
"""
_UUID = """
CREATE OR REPLACE MACRO uuid_of(i) AS
    ('00000000-0000-4000-8000-' || lpad(i::VARCHAR, 12, '0'))::UUID
"""

_ONE_EACH = (
    *("i", "g", "s", "d", "m", "ts", "dt", "l", "st", "u", "b", "i * m AS im", "ts::DATE AS day"),
    *("row_number() OVER (ORDER BY s, i) AS n", "max(m) OVER (PARTITION BY g) AS best"),
)
_WHERES = (
    *("", "WHERE i < 40", "WHERE g = 3 AND m > 100", "WHERE u IS NULL", "WHERE false"),
    *("WHERE s LIKE '%1%'", "WHERE i IN (SELECT i * 2 FROM facts WHERE g = 1)"),
)
_ORDERS = ("i", "g DESC, i", "s, i DESC", "m DESC", "ts DESC", "d, i")
_LIMITS = ("", "LIMIT 7", "LIMIT 20 OFFSET 5")
_AGGREGATES = (
    *("count(*)", "sum(i)", "sum(m)", "avg(d)", "min(ts)", "max(dt)", "list(i ORDER BY i)"),
    *("first(u ORDER BY i)", "string_agg(s, ',' ORDER BY i)", "histogram(g)", "max(b)", "sum(d)"),
)


@st.composite
def _queries(draw: st.DrawFn) -> str:
    where = draw(st.sampled_from(_WHERES))
    if draw(st.booleans()):
        chosen = draw(st.lists(st.sampled_from(_AGGREGATES), min_size=1, max_size=3))
        return f"SELECT g, {', '.join(chosen)} FROM facts {where} GROUP BY g ORDER BY g"
    columns = ", ".join(draw(st.lists(st.sampled_from(_ONE_EACH), min_size=1, max_size=5)))
    rest = f"{where} ORDER BY {draw(st.sampled_from(_ORDERS))} {draw(st.sampled_from(_LIMITS))}"
    if draw(st.booleans()):
        return f"SELECT {columns} FROM facts {rest}"
    even = "WITH even AS (SELECT * FROM facts WHERE i % 2 = 0)"
    return f"{even} SELECT {columns} FROM even {rest}"


@pytest.fixture(scope="module")
def oracle(session: Session) -> Any:
    connection = duckdb.connect()
    for sql in (_UUID, _TABLE):
        connection.execute(sql)
        session.answer(sql, [])
    yield connection
    connection.close()


def _plain(value: Any) -> Any:
    rules: list[tuple[Any, Any]] = [
        (dict, lambda v: {str(k): _plain(each) for k, each in v.items()}),
        ((list, tuple), lambda v: [_plain(each) for each in v]),
        ((dt.datetime, dt.date), lambda v: v.isoformat()),
        (bytes, lambda v: base64.b64encode(v).decode()),
        ((decimal.Decimal, uuid.UUID), str),
    ]
    return next((rule(value) for kinds, rule in rules if isinstance(value, kinds)), value)


def _check_against(oracle: Any, session: Session, query: str) -> None:
    cursor = oracle.execute(query)
    expected = _plain(cursor.fetchall())
    answer = json.loads(session.answer(query, []))
    assert answer["rows"] == expected
    assert answer["columns"] == [column[0] for column in cursor.description]
    assert answer["column_types"] == [str(column[1]) for column in cursor.description]
    with_parameter = query.replace(" ORDER BY", " ORDER BY ?::INTEGER + 0,", 1)
    if "GROUP BY" not in query:
        assert json.loads(session.answer(with_parameter, [0]))["rows"] == expected


@_SETTINGS
@given(query=_queries())
def test_queries_answer_what_the_duckdb_package_answers(
    oracle: Any, session: Session, query: str
) -> None:
    _check_against(oracle, session, query)


@pytest.mark.nightly
@_DEEP
@given(query=_queries())
def test_queries_answer_what_the_duckdb_package_answers_at_length(
    oracle: Any, session: Session, query: str
) -> None:
    _check_against(oracle, session, query)
