"""A text as long as a request may be is judged in one pass, as the judge holds the one thread.

Work that grows with the square of the length would take hours: the time limit of tests ends it.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from contract_tests.by_day import one_in
from instance_services import logs
from instance_services.duckdb import errors
from instance_services.duckdb import refusals as refusals_
from instance_services.duckdb.reference import Reference
from instance_services.duckdb.refusals import Refusals, StatementRefused

LENGTH = 1 << 20


@pytest.fixture(scope="module")
def refusals() -> Iterator[Refusals]:
    with duckdb.connect() as connection:
        yield Refusals(connection, Reference())


@pytest.mark.nightly
@pytest.mark.parametrize(
    "piece", one_in(3, ["as query ", " ", "a", "query ", '"', "(", "-- ", "/*", "as "])
)
def test_a_long_text_is_judged_in_one_pass(refusals: Refusals, piece: str) -> None:
    refusals.check_text((piece * LENGTH)[:LENGTH])


@pytest.mark.nightly
@pytest.mark.parametrize(
    "sql", one_in(3, ["x.query(", "query(", "INSERT INTO query(", "SELECT read_csv(1);"])
)
def test_a_long_text_of_calls_is_judged_in_one_pass(refusals: Refusals, sql: str) -> None:
    with contextlib.suppress(StatementRefused):
        refusals.check_text((sql * LENGTH)[:LENGTH])


def test_a_long_text_makes_no_long_line_of_the_log() -> None:
    event = logs._without_places(None, "", {"event": "x" * LENGTH, "reason": "y" * LENGTH})
    assert max(map(len, event.values())) <= 4_000


@pytest.mark.parametrize("blank", [" ", "\n", "Stack Trace", "Stack Trace:"])
def test_an_error_that_quotes_a_long_text_is_told_in_one_pass(blank: str) -> None:
    """Whoever fills a parameter can make one; meanwhile nobody else was answered."""
    text = f"Conversion Error: {(blank * LENGTH)[:LENGTH]}x"
    told = errors.told(duckdb.ConversionException(text), Path("/data"), rendered=False)
    assert told.startswith("Conversion Error:")
    assert logs.cleaned(text).startswith("Conversion Error:")


def test_what_follows_an_error_is_not_told() -> None:
    text = "Invalid Input Error: no \n\nStack Trace:\n/usr/lib/x"
    told = errors.told(duckdb.InvalidInputException(text), Path("/data"), rendered=False)
    assert told == "Invalid Input Error: no"


@pytest.mark.parametrize("sql", ["DROP " + " " * LENGTH + ";x", " " * LENGTH + "x"])
def test_what_is_let_through_is_found_in_one_pass(sql: str) -> None:
    assert refusals_._HARMLESS.fullmatch(sql) is None
    assert refusals_._HARMLESS.fullmatch("DROP TABLE t ; ") is not None
