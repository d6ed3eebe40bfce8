"""Owns what may stand for the words of a query: synonyms, words that are split, and joined ones."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from instance_services.search import texts
from instance_services.search.queries import Alternative, ParsedQuery, Term

_JOINED_MAX: Final = 3
_SPLITS_MAX: Final = 3


class Lexicon(Protocol):
    """The words of an index."""

    def frequency(self, word: str) -> int:
        """In how many documents it is."""

    def is_beginning(self, text: str) -> bool:
        """Whether a word begins with it."""


def expanded(query: ParsedQuery, settings: dict[str, Any], lexicon: Lexicon) -> ParsedQuery:
    found = [[*_characters(term), *_splits(term, lexicon)] for term in query.terms]
    tokenizer = texts.tokenizer(settings)
    synonyms: dict[tuple[str, ...], list[Alternative]] = {}
    for name, others in settings["synonyms"].items():
        phrases = (_words(tokenizer, each) for each in others)
        known = synonyms.setdefault(_words(tokenizer, name), [])
        known.extend(Alternative(phrase) for phrase in phrases if phrase)
    longest = max(map(len, synonyms), default=0)
    for first in range(len(query.terms)):
        for run in _runs(query.terms, first, max(longest, _JOINED_MAX)):
            wanted = tuple(term.words[0] for term in run)
            others = [*synonyms.get(wanted, ()), *_joined(run, lexicon)]
            for place in range(len(run)):
                found[first + place].extend(_part(each, place, len(run)) for each in others)
    terms = zip(query.terms, found, strict=True)
    return replace(
        query, terms=tuple(replace(term, alternatives=tuple(own)) for term, own in terms)
    )


def _words(tokenizer: texts.Tokenizer, text: str) -> tuple[str, ...]:
    return tuple(word.text for word in tokenizer.words(text))


def _runs(terms: Sequence[Term], first: int, most: int) -> Iterator[Sequence[Term]]:
    """Words from the first one on that are right after one another, the shortest run first."""
    for end in range(first, min(first + most, len(terms))):
        if terms[end].is_phrase or (end > first and not terms[end].follows):
            return
        yield terms[first : end + 1]


def _part(whole: Alternative, place: int, count: int) -> Alternative:
    """Of one of the terms that it stands for: as many typos as it joins, all at the first."""
    if count == 1:
        return whole
    return replace(whole, typos=0 if place else count - 1, is_shared=True)


def _joined(run: Sequence[Term], lexicon: Lexicon) -> Iterator[Alternative]:
    """`sunflower` of `sun flower`, where there is such a word."""
    if not 1 < len(run) <= _JOINED_MAX:
        return
    word, is_prefix = "".join(term.words[0] for term in run), run[-1].is_prefix
    if lexicon.is_beginning(word) if is_prefix else lexicon.frequency(word):
        yield Alternative((word,), is_prefix=is_prefix)


def _characters(term: Term) -> Iterator[Alternative]:
    """A query tells Japanese from Chinese by its kana alone, and often has none."""
    parts = texts.characters(term.words)
    if parts is not None:
        yield Alternative(parts)


def _splits(term: Term, lexicon: Lexicon) -> Iterator[Alternative]:
    """`sun flower` of `sunflower`, where there are such words. A word without typos stays whole."""
    if term.is_phrase or not term.typos:
        return
    word = term.words[0]
    halves = [(word[:at], word[at:]) for at in range(1, len(word))]
    frequent = [(min(map(lexicon.frequency, each)), each) for each in halves]
    for count, each in sorted(frequent, reverse=True)[:_SPLITS_MAX]:
        if count:
            yield Alternative(each, typos=1)
