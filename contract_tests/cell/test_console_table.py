"""How large an answer of the console may become, whatever its rows are."""

import orjson
import pytest

from cell.console.table import COLUMNS_MAX, Column, Limits, Table

LIMITS = Limits()


def answer_bytes(table: Table) -> int:
    return len(orjson.dumps(table.document(0.0)))


@pytest.mark.parametrize("text", ["x", "\u0001", '"', "é", "\U0001f343"])
def test_one_row_of_many_long_values_is_cut_to_the_size_of_an_answer(text: str) -> None:
    table = Table(LIMITS)
    table.begin([Column(f"c{number}", "text") for number in range(1_600)])
    table.add([text * 100_000] * 100 + [None] * 1_500)
    assert len(table.rows) == 1
    assert table.cut
    assert answer_bytes(table) < 1.2 * LIMITS.bytes


@pytest.mark.parametrize("value", [None, "", "ab"])
def test_many_small_values_count_too(value: str | None) -> None:
    table = Table(LIMITS)
    table.begin([Column("n", "integer")] * 1_600)
    while table.add([value] * 1_600):
        pass
    assert table.truncated
    assert len(table.rows) * 1_600 < LIMITS.bytes / 32


def test_columns_are_bounded_in_number_and_name() -> None:
    table = Table(LIMITS)
    table.begin([Column("n" * 100_000, "t" * 100_000)] * 10_000)
    table.add(["x"] * 10_000)
    assert len(table.columns) == len(table.rows[0]) == COLUMNS_MAX
    assert answer_bytes(table) < 1.2 * LIMITS.bytes
