"""Owns the members of JSON objects that are named twice, of which parsers keep the last one only.

Whoever looked at a request on its way may have kept the first one.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, TypeAlias

import orjson

from specserver.validation import MAX_VIOLATIONS, POINTERS_LENGTH_MAX, escape

# Backslashes are in strings only, and each begins an escape: of what follows two, none is one.
_ESCAPE = re.compile(rb"\\(?:u003[aA]|.)")
_ESCAPED_COLONS = {rb"\u003a", rb"\u003A"}

# A member or an item: where what holds it is, and its name or index. Written out only where it is
# told, as a name of half a body's size would be copied for each value below it.
_Place: TypeAlias = tuple[Any, str | int]


def repeated(raw: bytes, value: Any) -> list[str]:
    """JSON pointers of the members given more than once in `raw`, which was parsed as `value`.

    It is nested no deeper than json_sizes.DEPTH_MAX.

    A text has a colon for each member, and those within its strings. Written anew it has as many,
    less one or more for each member that was dropped. Both are counted at the speed of C, where
    the standard library's parser would call Python for each object.
    """
    colons = raw.count(b":")
    if b"\\u003" in raw:
        colons += sum([each in _ESCAPED_COLONS for each in _ESCAPE.findall(raw)])
    if colons <= 1 or (type(value) is dict and len(value) == colons):
        return []
    if _colons(value) == colons:
        return []
    return _first_of(json.loads(raw, object_pairs_hook=_object))


def _colons(value: Any) -> int:
    return orjson.dumps(value).count(b":")


class _Members(dict[str, Any]):
    """An object in which names were given more than once."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__()
        # Of a name given twice each value may hold more of them.
        self.pairs = pairs

    def again(self) -> list[str]:
        counts = Counter(name for name, _ in self.pairs)
        return sorted(name for name, count in counts.items() if count > 1)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    return members if len(members) == len(pairs) else _Members(pairs)


def _first_of(value: Any) -> list[str]:
    pointers: list[str] = []
    length = 0
    for place in _again(value):
        pointers.append(_pointer(place))
        length += len(pointers[-1])
        if len(pointers) == MAX_VIOLATIONS or length > POINTERS_LENGTH_MAX:
            break
    return pointers


def _again(root: Any) -> Iterator[_Place]:
    """The places of what is repeated, in the order of the text."""
    waiting: list[tuple[Any, Any]] = [(root, None)]
    while waiting:
        value, place = waiting.pop()
        if isinstance(value, _Members):
            yield from [(place, name) for name in value.again()]
            inner: Any = value.pairs
        else:
            inner = value.items() if isinstance(value, dict) else enumerate(value)
        below = [(one, (place, key)) for key, one in inner if isinstance(one, dict | list)]
        waiting.extend(reversed(below))


def _pointer(place: _Place | None) -> str:
    parts: list[str] = []
    while place is not None:
        place, part = place
        parts.append(f"/{escape(str(part))}")
    return "".join(reversed(parts))
