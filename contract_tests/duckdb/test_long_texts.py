"""A text as long as a request may be is judged in one pass, as the judge holds the one thread.

Work that grows with the square of the length would take hours: the time limit of tests ends it.
"""

import pytest

from instance_services.duckdb import statements

LENGTH = 1 << 20


@pytest.mark.parametrize("piece", [" ", "a", '"', "(", "-- ", "/*", "as ", "query ", "as query "])
def test_a_long_text_is_judged_in_one_pass(piece: str) -> None:
    statements._refuse_forbidden((piece * LENGTH)[:LENGTH])


@pytest.mark.parametrize(
    "sql",
    [
        "FROM query('SELECT 1')",
        "FROM \"query\"('SELECT 1')",
        "SELECT * FROM t, query /* */ ('SELECT 1')",
        "FROM(query('SELECT 1'))",
        "WITH query AS (SELECT 1) FROM query('SELECT 1')",
        f"FROM{' ' * 1000}query('SELECT 1')",
    ],
)
def test_the_function_query_is_refused(sql: str) -> None:
    with pytest.raises(statements.Refused, match="query"):
        statements._refuse_forbidden(sql)


@pytest.mark.parametrize(
    "sql", ["WITH query(n) AS (SELECT 1) FROM query", "INSERT INTO query(n) VALUES (1)"]
)
def test_what_is_only_named_query_is_not(sql: str) -> None:
    statements._refuse_forbidden(sql)
