"""Bounds how much a JSON text can be made of, which costs more than its length tells.

A megabyte of nested lists takes the parser, the garbage collector and the validator a hundred times
as long as a megabyte of text, and none of them lets another thread run meanwhile.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

CONTAINERS_MAX: Final = 20_000
"""Objects and arrays."""
SEPARATORS_MAX: Final = 200_000
"""Commas: members and items, but for the first of each."""
DEPTH_MAX: Final = 202
"""Objects and arrays within one another. The message of a queue is two levels down and has 200;
what writes JSON and what tells what is wrong with it end at 254."""

# One that is not closed goes on to the end, and the parser refuses it. Nothing is looked at twice:
# else each quote in a text of nothing but quotes would be the beginning of another.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)


def why_too_much(raw: bytes | bytearray) -> str | None:
    """What is wrong with the text, for whoever sent it; None where it may be parsed."""
    if not _is_beyond(raw):
        return None
    # Texts of others may hold any number of brackets: programs, logs.
    if not _is_beyond(_STRING.sub(b"", raw)):
        return None
    return (
        f"has more than {CONTAINERS_MAX:,} objects and arrays, or more than {SEPARATORS_MAX:,}"
        " members and items; send it in several requests, or as text"
    )


def fitting(texts: Sequence[bytes]) -> int:
    """How many of the texts, from the first on, may be parsed for one answer."""
    found = _within(texts)
    return found if found == len(texts) else _within([_STRING.sub(b"", raw) for raw in texts])


def _within(texts: Sequence[bytes]) -> int:
    containers = separators = 0
    for number, raw in enumerate(texts):
        found = _counts(raw)
        containers, separators = containers + found[0], separators + found[1]
        if containers > CONTAINERS_MAX or separators > SEPARATORS_MAX:
            return number
    return len(texts)


def _is_beyond(raw: bytes | bytearray) -> bool:
    containers, separators = _counts(raw)
    return containers > CONTAINERS_MAX or separators > SEPARATORS_MAX


def _counts(raw: bytes | bytearray) -> tuple[int, int]:
    return raw.count(b"[") + raw.count(b"{"), raw.count(b",")


def why_too_deep(raw: bytes | bytearray, value: Any) -> str | None:
    """The same of the depth of what was parsed."""
    # Most texts are short of brackets.
    if raw.count(b"[") + raw.count(b"{") <= DEPTH_MAX:
        return None
    level = [value]
    for _ in range(DEPTH_MAX + 1):
        level = [each for each in level if isinstance(each, (dict, list))]
        if not level:
            return None
        level = [
            one for each in level for one in (each.values() if isinstance(each, dict) else each)
        ]
    return f"is nested more than {DEPTH_MAX} levels deep"
