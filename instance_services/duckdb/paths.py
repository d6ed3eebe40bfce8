"""Owns file paths where a table should stand: `FROM 'prices.csv'`.

The engine reads such a file itself, by its suffix, where no table has that name. It is locked to
files of its own; this tells the client so, and leaves the files out of it.
"""

import json
import re

import duckdb

_SUFFIXES = r"(?:csv|tsv|parquet|json|jsonl|ndjson|db|ddb|duckdb|xlsx|avro)"
# A suffix; or a text whose suffix shows only to the engine: with escapes, or in two parts.
_MAY_BE = re.compile(rf"\.\"?{_SUFFIXES}\b|\be'|'\s*(?:\n|--)", re.IGNORECASE)
_FILE = re.compile(rf"\.{_SUFFIXES}(?:\.gz|\.zst)?(?:\?.*)?$", re.IGNORECASE | re.DOTALL)
_TEXT = r'"((?:[^"\\]|\\.)*)"'
_TABLE = re.compile(rf'"schema_name":{_TEXT},"table_name":{_TEXT}')
_SHOWN = re.compile(rf'"type":"SHOW_REF"[^{{}}]*"table_name":{_TEXT}')
_READS = frozenset(
    {"analyze", "describe", "from", "join", "pivot", "show", "summarize", "truncate", "unpivot"}
    | {"using", "vacuum"}
)
_WORD = re.compile(r"\w+")
# What is said, at its beginning; a comment may follow.
_QUOTED = re.compile(
    r"""[eE]?'((?:[^']|'')*)'|"((?:[^"]|"")*)"|\$(?P<tag>\w*)\$(.*?)\$(?P=tag)\$""", re.DOTALL
)


def may_be_in(sql: str) -> bool:
    return _MAY_BE.search(sql) is not None


def parsed(serialized: str) -> set[str]:
    """The paths among the tables of a statement that the engine has serialized."""
    found = {_unescaped(name) for name in _SHOWN.findall(serialized)}
    for schema, table in _TABLE.findall(serialized):
        # To the engine a dot is a dot: "/data/prices".csv is a path as well.
        parts = (schema, table) if "/" in schema else (table,)
        found.add(".".join(_unescaped(part) for part in parts))
    return {name for name in found if _FILE.search(name)}


def by_tokens(sql: str) -> set[str]:
    """The same for what cannot be serialized: quoted paths after words that a table follows."""
    text = sql.encode()
    begins = duckdb.tokenize(sql)
    ends = [at for at, _ in begins[1:]] + [len(text)]
    said = [
        text[at:end].decode(errors="replace").strip()
        for (at, kind), end in zip(begins, ends, strict=True)
        if kind != duckdb.token_type.comment
    ]
    found = set()
    before = [""]
    for text_said in said:
        match = _QUOTED.match(text_said)
        if match and before[-1] in _READS and "distinct" not in before[-2:]:
            found.add(next(each for each in match.group(1, 2, 4) if each is not None))
        word = _WORD.match(text_said)
        before.append(word.group().lower() if word else "")
    return {name for name in found if _FILE.search(name)}


def _unescaped(text: str) -> str:
    return str(json.loads(f'"{text}"'))
