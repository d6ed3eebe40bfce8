"""Owns what the text of a search asks for: words, beginnings, phrases, and what must not be."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from instance_services.search import texts

WORDS_MAX: Final = 10
"""Terms of a query beyond this are not searched, as in the original."""
LENGTH_MAX: Final = 250
"""Longer words are found as they are: with typos, or as beginnings, it would take long."""
_PART: Final = re.compile(r'(-?)"([^"]*)"?|(\S+)')


@dataclass(frozen=True)
class Term:
    """A word or a phrase, and what may stand for it: each alternative is words in order.

    `typos` is how many the first word may have; phrases and synonyms have none.
    """

    words: tuple[str, ...]
    typos: int = 0
    is_prefix: bool = False
    is_phrase: bool = False
    synonyms: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class ParsedQuery:
    terms: tuple[Term, ...] = ()
    excluded: tuple[tuple[str, ...], ...] = ()
    text: str = field(default="", compare=False)

    @property
    def words(self) -> list[str]:
        return [word for term in self.terms for word in term.words]


def parse(text: str | None, settings: dict[str, Any]) -> ParsedQuery:
    """A word right before the end of the text is the beginning of words."""
    given = text or ""
    stops = {texts.normalized(each) for each in settings["stopWords"]}
    synonyms = _synonyms(settings["synonyms"])
    typos = typo_limit(settings["typoTolerance"])
    terms: list[Term] = []
    excluded: list[tuple[str, ...]] = []
    last = len(given.rstrip()) if given == given.rstrip() else -1
    for match in _PART.finditer(given):
        if match.group(2) is not None:
            phrase = tuple(word.text for word in texts.words(match.group(2)))
            if phrase and match.group(1):
                excluded.append(phrase)
            elif phrase:
                terms.append(Term(phrase, is_phrase=True))
            continue
        part = match.group(3)
        if part.startswith("-") and len(part) > 1:
            excluded.extend((word.text,) for word in texts.words(part))
            continue
        found = texts.words(part)
        for number, word in enumerate(found, 1):
            is_prefix = match.end() == last and number == len(found) and word.end == len(part)
            is_prefix = is_prefix and len(word.text) <= LENGTH_MAX
            if word.text in stops and not is_prefix:
                continue
            terms.append(
                Term(
                    (word.text,),
                    typos(word.text),
                    is_prefix,
                    synonyms=synonyms.get(word.text, ()),
                )
            )
    return ParsedQuery(tuple(terms[:WORDS_MAX]), tuple(excluded), given)


def typo_limit(settings: dict[str, Any]) -> Callable[[str], int]:
    """How many typos a word may have, by its length and what the settings exclude."""
    sizes = settings["minWordSizeForTypos"]
    exact = {texts.normalized(each) for each in settings["disableOnWords"] or ()}

    def limit(word: str) -> int:
        if not settings["enabled"] or word in exact or len(word) > LENGTH_MAX:
            return 0
        if settings["disableOnNumbers"] and word.isdecimal():
            return 0
        if len(word) >= sizes["twoTypos"]:
            return 2
        return 1 if len(word) >= sizes["oneTypo"] else 0

    return limit


def _synonyms(given: dict[str, list[str]]) -> dict[str, tuple[tuple[str, ...], ...]]:
    found = {}
    for name, others in given.items():
        key = [word.text for word in texts.words(name)]
        phrases = (tuple(word.text for word in texts.words(each)) for each in others)
        if len(key) == 1:
            found[key[0]] = tuple(phrase for phrase in phrases if phrase)
    return found
