"""Bodies before the protocol reads them: in bounds that it has not, and as they are meant.

It parses filters and paths by recursion, and refuses what Okta sends without harm: the id of the
resource among the values of a change.
"""

from collections.abc import Iterator
from typing import Any, Final

import orjson
from scim2_models import InvalidFilterException, InvalidSyntaxException, InvalidValueException

OPERATIONS_MAX: Final = 200
"""Of one PATCH."""
TEXT_LENGTH: Final = 1_000
NESTED_MAX: Final = 30
"""Parentheses and brackets in a filter or a path."""
_PARSED: Final = ("filter", "sortby", "path")
_ITS_OWN: Final = ("id", "schemas", "meta")


def prepared(body: Any, raw: bytes) -> bytes:
    """The body as it is to be read: `body` is what was parsed of it."""
    if body is None:
        return raw
    if not isinstance(body, dict):
        raise InvalidSyntaxException(detail="the body must be a JSON object")
    return orjson.dumps(body) if _prepare(body) else raw


def check_text(text: Any) -> None:
    """Of a filter or a path."""
    if not isinstance(text, str):
        return
    if len(text) > TEXT_LENGTH:
        raise InvalidFilterException(
            detail=f"a filter or a path can have {TEXT_LENGTH:,} characters; this has {len(text):,}"
        )
    if text.count("(") + text.count("[") > NESTED_MAX:
        raise InvalidFilterException(
            detail=f"a filter or a path can have {NESTED_MAX} parentheses and brackets"
        )


def _prepare(body: dict[str, Any]) -> bool:
    """Whether anything of it was changed."""
    changed = False
    for name, value in body.items():
        if name.lower() in _PARSED:
            check_text(value)
    operations = list(_operations(body))
    if len(operations) > OPERATIONS_MAX:
        raise InvalidValueException(
            detail=f"a request can have {OPERATIONS_MAX} operations; this one has"
            f" {len(operations):,}: send several"
        )
    for each in operations:
        named = {name.lower(): name for name in each}
        check_text(each.get(named.get("path", "")))
        value = each.get(named.get("value", ""))
        if "path" not in named and isinstance(value, dict):
            changed = _strip(value) or changed
        data = each.get(named.get("data", ""))
        if isinstance(data, dict):
            changed = _prepare(data) or changed
    return changed


def _operations(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name, value in body.items():
        if name.lower() == "operations" and isinstance(value, list):
            yield from (each for each in value if isinstance(each, dict))


def _strip(value: dict[str, Any]) -> bool:
    own = [name for name in value if name.lower() in _ITS_OWN]
    for name in own:
        del value[name]
    return bool(own)
