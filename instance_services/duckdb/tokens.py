"""Owns reading a text token by token, as the engine's own tokenizer cuts it."""

import re
from collections.abc import Iterator

import duckdb

_WORD = re.compile(rb'"(?:[^"]|"")*"|\w+|.', re.DOTALL)


def tokens(sql: str) -> list[str]:
    return list(words(sql))


def words(sql: str) -> Iterator[str]:
    """The text's tokens without comments; a string constant is cut to its first character."""
    # The tokenizer counts in bytes.
    text = sql.encode()
    for start, kind in duckdb.tokenize(sql):
        match = None if kind == duckdb.token_type.comment else _WORD.match(text, start)
        if match:
            yield match.group().decode(errors="replace")
