"""Owns the members of JSON objects that are named twice, of which parsers keep the last one only.

Whoever looked at a request on its way may have kept the first one.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import orjson

from specserver.validation import MAX_VIOLATIONS, escape

_ESCAPED_COLON = re.compile(rb"\\u003[aA]")


def repeated(raw: bytes, value: Any) -> list[str]:
    """JSON pointers of the members given more than once in `raw`, which was parsed as `value`.

    A text has a colon for each member, and those within its strings. Written anew it has as many,
    less one or more for each member that was dropped. Both are counted at the speed of C, where
    the standard library's parser would call Python for each object.
    """
    colons = raw.count(b":")
    if colons <= 1 or (type(value) is dict and len(value) == colons):
        return []
    if not _ESCAPED_COLON.search(raw) and _colons(value) == colons:
        return []
    try:
        parsed = json.loads(raw, object_pairs_hook=_Members)
        return list(islice(_pointers(parsed, ""), MAX_VIOLATIONS))
    except RecursionError:
        raise ValueError("nested too deeply to be looked through") from None


def _colons(value: Any) -> int | None:
    try:
        return orjson.dumps(value).count(b":")
    except orjson.JSONEncodeError:  # it reads what is nested deeper than it writes
        return None


class _Members(dict[str, Any]):
    """An object, and the names in it that were given more than once."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        counts = Counter(name for name, _ in pairs)
        self.again = sorted(name for name, count in counts.items() if count > 1)
        # Of a name given twice each value may hold more of them.
        self.pairs = pairs


def _pointers(value: Any, place: str) -> Iterator[str]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _pointers(item, f"{place}/{index}")
    elif isinstance(value, _Members):
        for name in value.again:
            yield f"{place}/{escape(name)}"
        for name, member in value.pairs:
            yield from _pointers(member, f"{place}/{escape(name)}")
