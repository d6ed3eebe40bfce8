"""The small SQL client: where statements end, and what it does with them."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.cli.dialects import lines, mysql_statements, statements
from clients.cli.repl import Repl
from clients.errors import QueryFailed
from clients.sessions import Result


@pytest.mark.parametrize(
    ("text", "done", "left"),
    [
        ("SELECT 1;", ["SELECT 1"], ""),
        ("SELECT 1; SELECT 2;", ["SELECT 1", "SELECT 2"], ""),
        ("SELECT 1", [], "SELECT 1"),
        ("SELECT ';' ;", ["SELECT ';'"], ""),
        ("SELECT ';", [], "SELECT ';"),
        ("SELECT 'it''s;' AS a;", ["SELECT 'it''s;' AS a"], ""),
        ('SELECT ";" FROM t;', ['SELECT ";" FROM t'], ""),
        ("SELECT 1 -- one; two\n;", ["SELECT 1 -- one; two"], ""),
        ("SELECT /* a;b */ 1;", ["SELECT /* a;b */ 1"], ""),
        ("SELECT /* a; ", [], "SELECT /* a; "),
        ("SELECT $$a;b$$;", ["SELECT $$a;b$$"], ""),
        ("SELECT $x$a;$$;$x$;", ["SELECT $x$a;$$;$x$"], ""),
        ("SELECT 1; SELECT 'a", ["SELECT 1"], "SELECT 'a"),
        (";;", [], ""),
        ("SELECT '--'; SELECT 2;", ["SELECT '--'", "SELECT 2"], ""),
    ],
)
def test_where_statements_end(text: str, done: list[str], left: str) -> None:
    assert statements(text) == (done, left)


@pytest.mark.parametrize(
    ("text", "done", "left"),
    [
        (r"SELECT 'it\'s;' ;", [r"SELECT 'it\'s;'"], ""),
        (r'SELECT "a\";b";', [r'SELECT "a\";b"'], ""),
        ("SELECT `a;b`;", ["SELECT `a;b`"], ""),
        ("SELECT 1 # one; two\n;", ["SELECT 1 # one; two"], ""),
        ("SELECT 5--1;", ["SELECT 5--1"], ""),
        ("SELECT 1 -- a;\n;", ["SELECT 1 -- a;"], ""),
        ("SELECT 'a;", [], "SELECT 'a;"),
    ],
)
def test_where_statements_end_in_mysql(text: str, done: list[str], left: str) -> None:
    assert mysql_statements(text) == (done, left)


def test_backslashes_escape_only_where_they_are_announced() -> None:
    assert statements(r"SELECT E'it\'s;' ;") == ([r"SELECT E'it\'s;'"], "")
    assert statements("SELECT 'a\\';") == (["SELECT 'a\\'"], "")


def test_a_line_is_a_command() -> None:
    assert lines('SET a "b;c"') == (['SET a "b;c"'], "")
    assert lines("  ") == ([], "")


PIECES = st.sampled_from(["SELECT 1", "'a;b'", '"c;d"', "/* ; */", "$$;$$", "\n", "x"])


@given(st.lists(st.lists(PIECES, min_size=1, max_size=4), max_size=4))
def test_opaque_pieces_never_split_a_statement(parts: list[list[str]]) -> None:
    written = [" ".join(pieces).strip() for pieces in parts]
    text = "".join(f"{one};" for one in written)
    assert statements(text) == ([one for one in written if one], "")


class Typed:
    """Lines as if typed; an exception is a key."""

    def __init__(self, *lines: str | type[BaseException]) -> None:
        self._lines: Iterator[str | type[BaseException]] = iter(lines)
        self.prompts: list[str] = []

    def __call__(self, prompt: str) -> str:
        self.prompts.append(prompt)
        line = next(self._lines, EOFError)
        if isinstance(line, str):
            return line
        raise line


def played(*lines: str | type[BaseException]) -> tuple[list[str], list[str]]:
    ran: list[str] = []

    def run(sql: str, params: list[str]) -> Result:
        ran.append(sql)
        if sql == "BAD":
            raise QueryFailed(400, "Parser Error: no \x1b[2J")
        return Result(["n"], [[None], [{"a": 1}]], 2, truncated=True, elapsed_ms=1.0)

    typed = Typed(*lines)
    Repl("sales", run, typed).loop()
    return ran, typed.prompts


def test_statements_may_take_several_lines() -> None:
    ran, prompts = played("SELECT", "1;", "\\q", "SELECT 2;")
    assert ran == ["SELECT\n1"]
    assert prompts == ["sales> ", "sales. ", "sales> "]


@pytest.mark.parametrize("word", ["quit", "exit;", "\\q", "\\quit", "EXIT"])
def test_there_are_many_words_to_leave(word: str) -> None:
    assert played(word, "SELECT 1;")[0] == []


def test_an_interrupt_drops_what_was_typed() -> None:
    assert played("DROP TABLE t", KeyboardInterrupt, "SELECT 1;")[0] == ["SELECT 1"]


def test_the_last_statement_needs_no_semicolon_at_the_end_of_a_file() -> None:
    assert played("SELECT 1; SELECT 2", EOFError)[0] == ["SELECT 1", "SELECT 2"]


def test_an_error_ends_the_statement_and_not_the_session(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert played("BAD;", "SELECT 1;", "\\nope", "\\?", "\\timing", "SELECT 2;")[0] == [
        "BAD",
        "SELECT 1",
        "SELECT 2",
    ]
    out, err = capsys.readouterr()
    assert "error: Parser Error" in err
    assert "\x1b" not in err
    assert "NULL" in out
    assert '{"a": 1}' in out
    assert "2 rows, more were left out (1.0 ms)" in err
    assert err.rstrip().endswith("2 rows, more were left out")
