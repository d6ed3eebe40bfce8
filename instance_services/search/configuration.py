"""Owns the settings of an index: their defaults, what each may be, and its effect on indexing."""

from typing import Any, Final

RULES: Final = (
    *("words", "typo", "proximity", "attributeRank", "sort", "wordPosition", "exactness"),
)
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
    "separatorTokens": [],
    "nonSeparatorTokens": [],
    "dictionary": [],
    "proximityPrecision": "byWord",
    "localizedAttributes": None,
    "searchCutoffMs": None,
    "facetSearch": True,
    "prefixSearch": "indexingTime",
    "embedders": {},
}
PARTIAL: Final = frozenset({"typoTolerance", "faceting", "pagination", "embedders"})
"""Changed member by member; the others are replaced as a whole."""
_INDEXED: Final = (
    *("searchableAttributes", "separatorTokens", "nonSeparatorTokens", "dictionary", "embedders"),
)
NOT_ENABLED: Final = ("chat", "foreignKeys", "vectorStore")
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
        elif name == "embedders":
            kept = {
                each: known for each, known in result.get(name, {}).items() if each not in value
            }
            result[name] = kept | {each: one for each, one in value.items() if one is not None}
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


def facet_searchable(settings: dict[str, Any]) -> list[str]:
    """Patterns of the attributes whose values can be searched: one that is an object says so."""
    found: list[str] = []
    for each in settings["filterableAttributes"]:
        if isinstance(each, str):
            found.append(each)
        elif (each.get("features") or {}).get("facetSearch"):
            found.extend(each["attributePatterns"])
    return found


def needs_indexing(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether documents must be indexed again for the change."""
    paths = indexed_paths(before) != indexed_paths(after)
    return paths or any(before[name] != after[name] for name in _INDEXED)


def _merged(before: Any, change: Any) -> Any:
    if not isinstance(change, dict) or not isinstance(before, dict):
        return before if change is None else change
    return before | {name: _merged(before.get(name), value) for name, value in change.items()}
