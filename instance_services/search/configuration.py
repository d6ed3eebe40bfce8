"""Owns the settings of an index: their defaults, what each may be, and its effect on indexing."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from instance_services.search.errors import ApiError, snake

RULES: Final = (
    *("words", "typo", "proximity", "attributeRank", "sort", "wordPosition", "exactness"),
)
_RULES: Final = {*RULES, "attribute"}
_CUSTOM: Final = re.compile(r"[^:]+:(asc|desc)")
DEFAULTS: Final[dict[str, Any]] = {
    "displayedAttributes": ["*"],
    "searchableAttributes": ["*"],
    "filterableAttributes": [],
    "sortableAttributes": [],
    "rankingRules": list(RULES),
    "stopWords": [],
    "synonyms": {},
    "distinctAttribute": None,
    "typoTolerance": {
        "enabled": True,
        "minWordSizeForTypos": {"oneTypo": 5, "twoTypos": 9},
        "disableOnWords": [],
        "disableOnAttributes": [],
        "disableOnNumbers": False,
    },
    "faceting": {"maxValuesPerFacet": 100, "sortFacetValuesBy": {"*": "alpha"}},
    "pagination": {"maxTotalHits": 1000},
}
PARTIAL: Final = frozenset({"typoTolerance", "faceting", "pagination"})
"""Changed member by member; the others are replaced as a whole."""
NOT_ENABLED: Final = (
    *("chat", "dictionary", "embedders", "facetSearch", "foreignKeys", "localizedAttributes"),
    *("nonSeparatorTokens", "prefixSearch", "proximityPrecision", "searchCutoffMs"),
    *("separatorTokens", "vectorStore"),
)
"""Settings of Meilisearch that this engine does not have."""


def names() -> tuple[str, ...]:
    return tuple(DEFAULTS)


def complete(stored: dict[str, Any]) -> dict[str, Any]:
    """All settings, of those that were changed."""
    return {
        name: _merged(default, stored.get(name)) if name in PARTIAL else stored.get(name, default)
        for name, default in DEFAULTS.items()
    }


def changed(stored: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """What is stored after a change; `None` gives a setting its default again."""
    result = dict(stored)
    for name, value in changes.items():
        if value is None:
            result.pop(name, None)
        elif name in PARTIAL:
            result[name] = _merged(result.get(name, {}), value)
        else:
            result[name] = value
    return result


def indexed_paths(settings: dict[str, Any]) -> list[str]:
    """Patterns of the attributes whose values are kept for filters, sorting and facets."""
    rules = [rule.rpartition(":")[0] for rule in settings["rankingRules"] if ":" in rule]
    distinct = settings["distinctAttribute"]
    return [
        *filterable(settings),
        *settings["sortableAttributes"],
        *rules,
        *([distinct] if distinct else []),
    ]


def filterable(settings: dict[str, Any]) -> list[str]:
    found: list[str] = []
    for each in settings["filterableAttributes"]:
        found.extend([each] if isinstance(each, str) else each["attributePatterns"])
    return found


def needs_indexing(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether documents must be indexed again for the change."""
    paths = indexed_paths(before) != indexed_paths(after)
    return paths or before["searchableAttributes"] != after["searchableAttributes"]


def check(changes: dict[str, Any]) -> None:
    """Raises ApiError where a value is none that its setting can have."""
    for name, value in changes.items():
        if name not in CHECKS:
            if name in NOT_ENABLED and value is None:
                continue
            code = "feature_not_enabled" if name in NOT_ENABLED else "bad_request"
            raise ApiError(code, f"the setting `{name}` does not exist here: {', '.join(CHECKS)}")
        if value is None:
            continue
        wrong = CHECKS[name](value)
        if wrong:
            raise ApiError(f"invalid_settings_{snake(name)}", f"`{name}` {wrong}")


def _merged(before: Any, change: Any) -> Any:
    if not isinstance(change, dict) or not isinstance(before, dict):
        return before if change is None else change
    return before | {name: _merged(before.get(name), value) for name, value in change.items()}


def _texts(value: Any) -> str | None:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return None
    return "is an array of strings"


def _filterable(value: Any) -> str | None:
    if not isinstance(value, list):
        return "is an array of strings and objects with `attributePatterns`"
    for each in value:
        if isinstance(each, str):
            continue
        if not isinstance(each, dict) or _texts(each.get("attributePatterns")):
            return "is an array of strings and objects with `attributePatterns`"
    return None


def _rules(value: Any) -> str | None:
    if _texts(value):
        return "is an array of strings"
    for rule in value:
        if rule not in _RULES and not _CUSTOM.fullmatch(rule):
            return (
                f"has the unknown rule `{rule[:100]}`: {', '.join(sorted(_RULES))}, or an "
                "attribute with `:asc` or `:desc`"
            )
    return None


def _synonyms(value: Any) -> str | None:
    if isinstance(value, dict) and not any(map(_texts, value.values())):
        return None
    return "is an object whose members are arrays of strings"


def _text(value: Any) -> str | None:
    return None if isinstance(value, str) else "is the name of one attribute, or null"


def _members(value: Any, allowed: Mapping[str, Callable[[Any], bool]], what: str) -> str | None:
    if not isinstance(value, dict):
        return f"is an object: {what}"
    for name, each in value.items():
        if name not in allowed or (each is not None and not allowed[name](each)):
            return f"has a wrong member `{name[:100]}`: {what}"
    return None


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 2**31


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _typos(value: Any) -> str | None:
    def sizes(each: Any) -> bool:
        allowed = {"oneTypo": _is_byte, "twoTypos": _is_byte}
        if _members(each, allowed, "") is not None:
            return False
        one, two = each.get("oneTypo") or 5, each.get("twoTypos") or 9
        return bool(one <= two)

    allowed = {
        "enabled": _is_flag,
        "minWordSizeForTypos": sizes,
        "disableOnWords": lambda each: _texts(each) is None,
        "disableOnAttributes": lambda each: _texts(each) is None,
        "disableOnNumbers": _is_flag,
    }
    return _members(
        value,
        allowed,
        "enabled, minWordSizeForTypos (oneTypo and twoTypos, 0 to 255, the first not larger), "
        "disableOnWords, disableOnAttributes, disableOnNumbers",
    )


def _is_byte(value: Any) -> bool:
    return _is_size(value) and value <= 255  # noqa: PLR2004 - as the original


def _faceting(value: Any) -> str | None:
    def orders(each: Any) -> bool:
        return isinstance(each, dict) and set(map(str, each.values())) <= {"alpha", "count"}

    allowed = {"maxValuesPerFacet": _is_size, "sortFacetValuesBy": orders}
    return _members(value, allowed, "maxValuesPerFacet, sortFacetValuesBy (alpha or count)")


def _pagination(value: Any) -> str | None:
    return _members(value, {"maxTotalHits": _is_size}, "maxTotalHits, a number")


CHECKS: Final[dict[str, Callable[[Any], str | None]]] = {
    "displayedAttributes": _texts,
    "searchableAttributes": _texts,
    "filterableAttributes": _filterable,
    "sortableAttributes": _texts,
    "rankingRules": _rules,
    "stopWords": _texts,
    "synonyms": _synonyms,
    "distinctAttribute": _text,
    "typoTolerance": _typos,
    "faceting": _faceting,
    "pagination": _pagination,
}
