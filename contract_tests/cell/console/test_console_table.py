"""How large an answer of the console may become, whatever its rows are."""

import asyncio
import contextlib
from typing import Any

import orjson
import pytest

from cell.console.answers import OF_ONE, Answers
from cell.console.table import COLUMNS_MAX, Column, RunLimits, Table
from contract_tests.cell.console.test_console import Browser
from contract_tests.cell.rig import Rig, until
from pages.console import make_app

LIMITS = RunLimits()


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


def test_an_answer_is_sent_as_long_as_it_was_counted() -> None:
    """Escaped, each of these characters has three times the bytes."""
    backend: Any = None
    assert make_app(backend).json.dumps("é" * 1_000).encode() == ('"' + "é" * 1_000 + '"').encode()


def test_columns_are_bounded_in_number_and_name() -> None:
    table = Table(LIMITS)
    table.begin([Column("n" * 100_000, "t" * 100_000)] * 10_000)
    table.add(["x"] * 10_000)
    assert len(table.columns) == len(table.rows[0]) == COLUMNS_MAX
    assert answer_bytes(table) < 1.2 * LIMITS.bytes


@pytest.mark.nightly
def test_large_answers_that_nobody_takes_are_bounded_and_leave_those_of_others(
    shared_rig: Rig,
) -> None:
    """What a browser does not take stays in the cell's memory."""
    large = {"sql": "SELECT repeat('x', 4000) FROM range(1000)"}
    slow = shared_rig.make(tenant="slow")
    consoles = [Browser(shared_rig, slow) for _ in range(OF_ONE + 1)]
    with contextlib.ExitStack() as held:
        for each in consoles:
            each.load()
            asked = each.http.stream("POST", f"{each.path}run", json=large, headers=each.headers())
            answer = held.enter_context(asked)
            expected = 503 if each is consoles[-1] else 200
            assert answer.status_code == expected
        assert "still being read" in answer.read().decode()
        assert consoles[-1].run("SELECT 42")["rows"] == [["42"]]
        other = Browser(shared_rig, shared_rig.make(tenant="beside"))
        other.load()
        assert len(other.run(large["sql"])["rows"]) > 900
    until(lambda: consoles[-1].post("run", large).status_code == 200, "they have been let go")


def test_an_answer_that_is_not_taken_in_time_is_given_up() -> None:
    async def run() -> int:
        sent = 0

        async def send(_message: Any) -> None:
            nonlocal sent
            sent += 1
            if sent == 3:
                await asyncio.Event().wait()

        await Answers(taken_within_s=0.05).send(send, b"x" * 1_000_000)
        return sent

    assert asyncio.run(run()) == 3
