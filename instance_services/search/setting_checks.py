"""Owns what the value of each setting may be."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from instance_services.search import configuration
from instance_services.search.errors import ApiError, snake

_RULES: Final = {*configuration.RULES, "attribute"}
_CUSTOM: Final = re.compile(r"[^:]+:(asc|desc)")
_SOURCES: Final = ("openAi", "huggingFace", "ollama", "rest", "composite")
"""Of embedders that would compute vectors themselves."""
TOKENS_MAX: Final = 2_000
_TOKEN_MAX: Final = 100
DIMENSIONS_MAX: Final = 65_536
_DISTRIBUTION: Final[dict[str, Callable[[Any], bool]]] = {
    name: lambda each: isinstance(each, int | float) and 0 <= each <= 1
    for name in ("mean", "sigma")
}
_LANGUAGES: Final = """
af ak am ar az be bn bg ca cs da de el en eo et fi fr gu he hi hr hu hy id it jv ja kn ka km ko la
lv lt ml mr mk my ne nl nb or pa fa pl pt ro ru si sk sl sn es sr sv ta te tl th tk tr uk ur uz vi
yi zh zu afr aka amh ara aze bel ben bul cat ces cmn dan deu ell eng epo est fin fra guj heb hin
hrv hun hye ind ita jav jpn kan kat khm kor lat lav lit mal mar mkd mya nep nld nob ori pan pes
pol por ron rus sin slk slv sna spa srp swe tam tel tgl tha tuk tur ukr urd uzb vie yid zho zul
"""
LOCALES: Final = frozenset(_LANGUAGES.split())
"""Codes of languages by ISO 639-1 and 639-3."""


def check(changes: dict[str, Any]) -> None:
    """Raises ApiError where a value is none that its setting can have."""
    for name, value in changes.items():
        if name not in CHECKS:
            if name in configuration.NOT_ENABLED and value is None:
                continue
            code = "feature_not_enabled" if name in configuration.NOT_ENABLED else "bad_request"
            raise ApiError(code, f"the setting `{name}` does not exist here: {', '.join(CHECKS)}")
        if value is None:
            continue
        wrong = CHECKS[name](value)
        if wrong:
            raise ApiError(f"invalid_settings_{snake(name)}", f"`{name}` {wrong}")


def _texts(value: Any) -> str | None:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return None
    return "is an array of strings"


def _tokens(value: Any) -> str | None:
    """Each of them is looked for at each letter of a text."""
    wrong = _texts(value)
    if wrong is None and (len(value) > TOKENS_MAX or any(len(each) > _TOKEN_MAX for each in value)):
        return f"has at most {TOKENS_MAX:,} strings of at most {_TOKEN_MAX} letters"
    return wrong


def _filterable(value: Any) -> str | None:
    if not isinstance(value, list):
        return "is an array of strings and objects with `attributePatterns`"
    for each in value:
        if isinstance(each, str):
            continue
        what = "attributePatterns, features (facetSearch, filter (equality, comparison))"
        wrong = _members(each, {"attributePatterns": _are_texts, "features": _features}, what)
        if wrong or _missing(each, {"attributePatterns": None}, what):
            return "is an array of strings and objects with `attributePatterns`"
    return None


def _features(value: Any) -> bool:
    def operators(each: Any) -> bool:
        return _members(each, {"equality": _is_flag, "comparison": _is_flag}, "") is None

    return _members(value, {"facetSearch": _is_flag, "filter": operators}, "") is None


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
        "disableOnWords": _are_texts,
        "disableOnAttributes": _are_texts,
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


def _one_of(*allowed: str) -> Callable[[Any], str | None]:
    def wrong(value: Any) -> str | None:
        return None if value in allowed else f"is one of {', '.join(allowed)}"

    return wrong


def _localized(value: Any) -> str | None:
    allowed = {"attributePatterns": _are_texts, "locales": _are_locales}
    what = "attributePatterns, strings, and locales, codes of ISO 639 as `eng`"
    if not isinstance(value, list):
        return "is an array of objects"
    wrong = (_members(each, allowed, what) or _missing(each, allowed, what) for each in value)
    return next(filter(None, wrong), None)


def _missing(value: dict[str, Any], needed: Iterable[str], what: str) -> str | None:
    return f"lacks a member: {what}" if any(value.get(each) is None for each in needed) else None


def _are_texts(value: Any) -> bool:
    return _texts(value) is None


def _are_locales(value: Any) -> bool:
    return _are_texts(value) and not unknown_locales(value)


def unknown_locales(given: Sequence[str]) -> list[str]:
    """Those that are no code of a language which Meilisearch knows."""
    return [each for each in given if each not in LOCALES]


def _embedders(value: Any) -> str | None:
    what = "source, dimensions, distribution (mean, sigma), binaryQuantized"
    if not isinstance(value, dict):
        return "is an object of embedders"
    for name, each in value.items():
        if each is None:
            continue
        source = each.get("source") if isinstance(each, dict) else None
        if source in _SOURCES:
            raise ApiError(
                "feature_not_enabled",
                f"the source `{source}` of embedders is not enabled here: bring vectors with the "
                "source `userProvided`",
            )
        allowed = {
            "source": lambda one: one == "userProvided",
            "dimensions": lambda one: _is_size(one) and 0 < one <= DIMENSIONS_MAX,
            "distribution": lambda one: _members(one, _DISTRIBUTION, "") is None,
            "binaryQuantized": _is_flag,
        }
        wrong = _members(each, allowed, what) or _missing(each, ("source", "dimensions"), what)
        if wrong:
            return f"`{name[:100]}` {wrong}"
    return None


def _milliseconds(value: Any) -> str | None:
    return None if _is_size(value) else "is a number of milliseconds"


def _flag(value: Any) -> str | None:
    return None if _is_flag(value) else "is true or false"


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
    "separatorTokens": _tokens,
    "nonSeparatorTokens": _tokens,
    "dictionary": _tokens,
    "proximityPrecision": _one_of("byWord", "byAttribute"),
    "localizedAttributes": _localized,
    "searchCutoffMs": _milliseconds,
    "facetSearch": _flag,
    "prefixSearch": _one_of("indexingTime", "disabled"),
    "embedders": _embedders,
}
