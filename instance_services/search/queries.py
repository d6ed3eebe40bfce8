"""Owns what the text of a search asks for: words, beginnings, phrases, and what must not be."""

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from instance_services.search import texts

WORDS_MAX: Final = 10
"""Terms of a query beyond this are not searched, as in the original."""
LENGTH_MAX: Final = 250
"""Longer words are found as they are: with typos, or as beginnings, it would take long."""
_PART: Final = re.compile(
    r"""(?P<excluded>(?:(?<!\S)-)?)"(?P<phrase>[^"]*)"?|(?P<words>(?:(?!(?:(?<!\S)-)?").)+)""",
    re.DOTALL,
)
_EXCLUDED: Final = re.compile(r"(?<!\S)-\S+")


@dataclass(frozen=True)
class Term:
    """A word or a phrase, and what may stand for it: each alternative is words in order.

    `typos` is how many the first word may have; phrases and alternatives have none. `follows` says
    whether it is right after the term before it.
    """

    words: tuple[str, ...]
    typos: int = 0
    is_prefix: bool = False
    is_phrase: bool = False
    follows: bool = False
    alternatives: tuple["Alternative", ...] = ()


@dataclass(frozen=True)
class Alternative:
    """What may stand for a term, or for several: then `is_shared`, and each of them has it.

    It counts as so many typos. The last word may be a beginning.
    """

    words: tuple[str, ...]
    typos: int = 0
    is_prefix: bool = False
    is_shared: bool = False


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
    tokenizer = texts.tokenizer(settings)
    stops = {texts.normalized(each) for each in settings["stopWords"]}
    typos = typo_limit(settings["typoTolerance"])
    begins = settings["prefixSearch"] != "disabled"
    terms: list[Term] = []
    excluded: list[tuple[str, ...]] = []
    hyphened = deque(match.span() for match in _EXCLUDED.finditer(given))
    last = (-1, 0)
    for part, match in enumerate(_PART.finditer(given)):
        if match["phrase"] is not None:
            phrase = tuple(word.text for word in tokenizer.words(match["phrase"]))
            if phrase and match["excluded"]:
                excluded.append(phrase)
            elif phrase:
                terms.append(Term(phrase, is_phrase=True))
            continue
        for word in tokenizer.words(match["words"]):
            at = match.start() + word.start
            while hyphened and hyphened[0][1] <= at:
                hyphened.popleft()
            if hyphened and hyphened[0][0] <= at:
                excluded.append((word.text,))
                continue
            is_prefix = begins and at + word.end - word.start == len(given)
            is_prefix = is_prefix and len(word.text) <= LENGTH_MAX
            if word.text in stops and not is_prefix:
                continue
            follows = last == (part, word.position - 1)
            last = (part, word.position)
            terms.append(Term((word.text,), typos(word.text), is_prefix, follows=follows))
    # In texts of both languages.
    excluded += [parts for each in excluded if (parts := texts.characters(each)) is not None]
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
