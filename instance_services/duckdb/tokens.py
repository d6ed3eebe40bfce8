"""Owns reading a text token by token, as the engine's own tokenizer cuts it."""

import re
from collections.abc import Iterator

import duckdb

_WORD = re.compile(rb'"(?:[^"]|"")*"|\w+|.', re.DOTALL)


def tokens(sql: str) -> list[str]:
    return list(words(sql))


def words(sql: str) -> Iterator[str]:
    """The text's tokens without comments; a string constant is cut to its first character."""
    for match in _matches(sql):
        yield match.group().decode(errors="replace")


def after_word(wanted: str, sql: str) -> str:
    """The text behind the first token that is this word; all of it where none is."""
    for match in _matches(sql):
        if match.group().lower() == wanted.encode():
            return match.string[match.end() :].decode(errors="replace")
    return sql


def _matches(sql: str) -> Iterator[re.Match[bytes]]:
    # The tokenizer counts in bytes.
    text = sql.encode()
    for start, kind in duckdb.tokenize(sql):
        if kind != duckdb.token_type.comment and (match := _WORD.match(text, start)):
            yield match
