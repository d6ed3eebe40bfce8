"""Which statements are asked for as a query is found in one pass, whatever stands before them."""

import re

import pytest

from cell.console import postgres
from clients.sessions import mysql
from clients.sessions import postgres as client

LENGTH = 1 << 20
COMMENTS = ["/**/", "/* c */\n", "-- c\n", " ", "/*", "*/", "--", "/*/"]


@pytest.mark.parametrize("comment", COMMENTS)
def test_comments_before_a_statement_are_passed_over_once(comment: str) -> None:
    """A script of 40 comments had so many readings that it was never sent."""
    script = (comment * LENGTH)[:LENGTH]
    for pattern in (client.QUERY, mysql.CALL):
        assert pattern.match(f"{script}\nx") is None
    assert postgres.QUERY.match(f"{script}\nx".encode()) is None


@pytest.mark.parametrize(
    "sql", ["select 1", " /* a */ -- b\n\tWITH x", "/**//* * / */values", "--\n/*\n*/ TABLE t"]
)
def test_a_query_is_one_after_comments_too(sql: str) -> None:
    assert postgres.QUERY.match(sql.encode())
    assert client.QUERY.match(sql)
    assert mysql.CALL.match(re.sub(r"(?i)(select|with|values|table)\b", "call", sql))
