"""Holds the guide to the truth: its table of values, and what it says can be done."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from instance_services.duckdb.session import Session

_GUIDE = (Path(__file__).parents[2] / "docs" / "engines" / "duckdb.md").read_text()
_ROWS = re.findall(r"^\| ([^|]+) \| `([^|]+)` \| `([^|]+)` \|$", _GUIDE, re.MULTILINE)


def _value(session: Session, sql: str, params: list[Any] | None = None) -> Any:
    return json.loads(session.answer(sql, params or []))["rows"][0][0]


@pytest.mark.parametrize(("kind", "sql", "expected"), _ROWS, ids=[row[0] for row in _ROWS])
def test_the_table_of_values(session: Session, kind: str, sql: str, expected: str) -> None:
    assert _value(session, f"SELECT {sql}") == json.loads(expected)


def test_the_table_is_read_whole() -> None:
    values = _GUIDE.partition("## Values")[2].partition("\n- ")[0]
    assert len(_ROWS) == values.count("\n| ") - 1 > 30


def test_many_rows_go_in_as_one_parameter(session: Session) -> None:
    session.answer("CREATE TABLE loaded (name VARCHAR, price DECIMAL(8,2))", [])
    rows = [{"name": f"tea {i}", "price": i + 0.5} for i in range(1000)]
    (sql,) = re.findall(r"`INSERT INTO t (SELECT [^`]+)`", _GUIDE)
    answer = json.loads(session.answer(f"INSERT INTO loaded {sql}", [rows]))
    assert answer["row_count"] == 1000
    assert _value(session, "SELECT sum(price) FROM loaded") == "500000.00"


def test_the_guides_words_on_parameters(session: Session) -> None:
    assert _value(session, "SELECT from_base64(?)", ["qgA="]) == "qgA="
    assert _value(session, "SELECT ?::HUGEINT", ["9223372036854775808"]) == "9223372036854775808"
    assert _value(session, "SELECT count(*) WHERE DATE '2026-01-31' = ?", ["2026-01-31"]) == 1
