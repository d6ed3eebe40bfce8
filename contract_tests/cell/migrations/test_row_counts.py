"""Rows counted in a stream of SQL that is cut anywhere; and SQL without commands of psql."""

import io

import pytest

from cell.migrations.postgres import comparing, plain
from cell.migrations.postgres.plain import StatementErrors, only_sql
from cell.migrations.postgres.row_counts import RowCounts

DUMP = rb"""--
\restrict Abc123
CREATE TABLE public.t (a text);
COPY public.t (a, "b c") FROM stdin;
one\\.	x
\restrict Abc123
\\.
\.


COPY public.none (a) FROM stdin;
\.

COPY "sh.op"."T" FROM stdin;

\N
\.
INSERT INTO public.t VALUES ('COPY x FROM stdin;');
\unrestrict Abc123

"""
EXPECTED = {"public.t": 3, "public.none": 0, '"sh.op"."T"': 2}


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10_000])
def test_rows_are_counted_however_a_stream_is_cut(size: int) -> None:
    counts = RowCounts()
    for begin in range(0, len(DUMP), size):
        counts.feed(DUMP[begin : begin + size])
    assert counts.rows == EXPECTED


@pytest.mark.parametrize(
    "name",
    ['public."a (b) c"', "t", '"a""b"."c (d"', '"x y"', 'public."FROM stdin;"', '" ("'],
)
def test_names_of_any_characters_are_told_apart(name: str) -> None:
    counts = RowCounts()
    for columns in ("", ' (a, "b (c")'):
        counts.feed(f"COPY {name}{columns} FROM stdin;\n1\n\\.\n".encode())
    assert counts.rows == {name: 2}
    assert comparing.quoted(name).count('"') % 2 == 0


def test_a_dump_keeps_every_row_and_loses_its_own_keys() -> None:
    made = b"".join(only_sql(io.BytesIO(DUMP), b"key"))
    assert made.startswith(b"\\restrict key\n")
    assert made.endswith(b"\n\\unrestrict key\n")
    inner = made.removeprefix(b"\\restrict key\n").removesuffix(b"\n\\unrestrict key\n")
    # A value may look like the line that a newer dump begins with.
    assert inner.count(b"\\restrict Abc123\n") == 1
    assert b"unrestrict" not in inner
    counts = RowCounts()
    counts.feed(inner)
    assert counts.rows == EXPECTED


def test_a_large_file_comes_whole() -> None:
    content = b"SELECT 1;\n" * 500_000
    made = b"".join(only_sql(io.BytesIO(content), b"k"))
    assert made == b"\\restrict k\n" + content + b"\n\\unrestrict k\n"


@pytest.mark.parametrize("beyond", [0, 1, 9, 73, 74, 75, 200, 65_536])
def test_a_file_comes_whole_whatever_its_length(beyond: int) -> None:
    """Its first block may be all that there is, without the line that is left out of it."""
    begin = b"\\restrict Abc123\nSELECT 1;\n"
    content = begin + b"-" * (plain.ENDS_BYTES + beyond - len(begin) - 1) + b"\n"
    blocks = list(only_sql(io.BytesIO(content), b"k"))
    assert all(blocks)
    assert b"".join(blocks).count(b"-") == content.count(b"-")


@pytest.mark.parametrize(
    ("lines", "fatal", "passed"),
    [
        (["ERROR:  role x", "STATEMENT:  ALTER TABLE public.t OWNER TO x;"], None, 1),
        (["ERROR:  role x", "STATEMENT:  GRANT ALL ON t TO x;"], None, 1),
        (["ERROR:  no", "LINE 1: x", "STATEMENT:  CREATE TABLE t (n int);"], "no", 0),
        (["ERROR:  no", "ERROR:  two", "STATEMENT:  GRANT x TO y;"], "no", 1),
        (["NOTICE:  ERROR: no", "STATEMENT:  GRANT x TO y;"], None, 0),
        (["FATAL:  terminating"], "terminating", 0),
        (["backslash commands are restricted; only \\unrestrict is allowed"], "psql", 0),
    ],
)
def test_only_what_cannot_matter_is_passed_over(
    lines: list[str], fatal: str | None, passed: int
) -> None:
    errors = StatementErrors()
    for each in lines:
        errors.hear(each.encode())
    errors.settle()
    assert errors.passed_over == passed
    assert (fatal is None) == (errors.fatal is None)
    assert fatal is None or fatal in str(errors.fatal)
