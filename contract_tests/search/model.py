"""A slow and obvious model of a search, which the engine is compared with.

It looks at each document by itself, with no index, and has nothing of the engine's but its words.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

Doc = dict[str, Any]


def plain(text: str) -> str:
    letters = unicodedata.normalize("NFKD", text.casefold())
    return "".join(each for each in letters if unicodedata.category(each) not in ("Mn", "Mc", "Me"))


def spoken(text: str) -> list[tuple[str, int]]:
    """Words and their positions; eight positions lie beyond the end of a sentence."""
    found: list[tuple[str, int]] = []
    place, end = 0, 0
    for match in re.finditer(r"[a-zA-Zéè0-9]+", text):
        if found:
            place += 8 if re.search(r"[.,]", text[end : match.start()]) else 1
        found.append((plain(match.group()), place))
        end = match.end()
    return found


def edits(one: str, other: str) -> int:
    """Optimal string alignment, by its definition."""
    table = {(i, 0): i for i in range(len(one) + 1)} | {(0, j): j for j in range(len(other) + 1)}
    for i in range(1, len(one) + 1):
        for j in range(1, len(other) + 1):
            table[i, j] = min(
                table[i - 1, j] + 1,
                table[i, j - 1] + 1,
                table[i - 1, j - 1] + (one[i - 1] != other[j - 1]),
            )
            if i > 1 and j > 1 and one[i - 1] == other[j - 2] and one[i - 2] == other[j - 1]:
                table[i, j] = min(table[i, j], table[i - 2, j - 2] + 1)
    return table[len(one), len(other)]


def typos(wanted: str, word: str) -> int:
    return 0 if wanted == word else edits(wanted, word) + (wanted[0] != word[0])


def allowed(word: str) -> int:
    return 2 if len(word) >= 9 else 1 if len(word) >= 5 else 0


def term_typos(wanted: str, word: str, is_prefix: bool) -> int | None:
    """How many typos the word has as this term; None where it has too many."""
    beginnings = [word[:end] for end in range(1, len(word) + 1)] if is_prefix else [word]
    least = min(typos(wanted, each) for each in beginnings)
    return least if least <= allowed(wanted) else None


@dataclass(frozen=True)
class Filter:
    """`kind` is and, or, not, or a condition's operator."""

    kind: str
    parts: tuple["Filter", ...] = ()
    attribute: str = ""
    values: tuple[Any, ...] = ()

    def written(self) -> str:
        if self.kind in {"AND", "OR"}:
            return "(" + f" {self.kind} ".join(part.written() for part in self.parts) + ")"
        if self.kind == "NOT":
            return f"NOT ({self.parts[0].written()})"
        if self.kind == "IN":
            return f"{self.attribute} IN [{', '.join(map(_quoted, self.values))}]"
        if self.kind == "TO":
            return f"{self.attribute} {self.values[0]} TO {self.values[1]}"
        return " ".join([self.attribute, self.kind, *map(_quoted, self.values)])

    def holds(self, document: Doc) -> bool:  # noqa: PLR0911 - one for each kind
        if self.kind == "AND":
            return all(part.holds(document) for part in self.parts)
        if self.kind == "OR":
            return any(part.holds(document) for part in self.parts)
        if self.kind == "NOT":
            return not self.parts[0].holds(document)
        if self.kind == "EXISTS":
            return self.attribute in document
        value = document.get(self.attribute)
        if self.kind == "IS NULL":
            return self.attribute in document and value is None
        if self.kind == "IS EMPTY":
            return value in ("", []) and value is not None
        return self._compares(value if isinstance(value, list) else [value])

    def _compares(self, own: list[Any]) -> bool:
        if self.kind in {"=", "IN"}:
            return any(_equal(each, wanted) for each in own for wanted in self.values)
        if self.kind == "!=":
            return not any(_equal(each, self.values[0]) for each in own)
        if self.kind == "TO":
            low, high = self.values
            # Of several values, one may be above the lower bound, and another below the upper.
            numbers = [each for each in own if _is_number(each)]
            return any(each >= low for each in numbers) and any(each <= high for each in numbers)
        if self.kind in {"CONTAINS", "STARTS WITH"}:
            wanted = plain(str(self.values[0]))
            texts = [plain(_text(each)) for each in own if isinstance(each, str | bool)]
            if self.kind == "CONTAINS":
                return any(wanted in each for each in texts)
            return any(each.startswith(wanted) for each in texts)
        limit = self.values[0]
        checks = {
            ">": lambda each: each > limit,
            ">=": lambda each: each >= limit,
            "<": lambda each: each < limit,
            "<=": lambda each: each <= limit,
        }
        return any(checks[self.kind](each) for each in own if _is_number(each))


def _quoted(value: Any) -> str:
    text = _text(value)
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _equal(own: Any, wanted: Any) -> bool:
    if own is None:
        return False
    if _is_number(own):
        try:
            return float(own) == float(_text(wanted))
        except ValueError:
            return False
    return plain(_text(own)) == plain(_text(wanted))


class Found(NamedTuple):
    """A place of a term: of several words the first and the last."""

    rank: int
    start: int
    end: int
    typos: int
    word: str
    shared: bool = False


@dataclass(frozen=True)
class Asked:
    q: str = ""
    filter: Filter | None = None
    sort: tuple[tuple[str, bool], ...] = ()
    distinct: str | None = None
    strategy: str = "last"


@dataclass
class Model:
    """All documents in the order in which they were first added."""

    searchable: list[str]
    rules: list[str]
    documents: list[Doc] = field(default_factory=list)
    by_attribute: bool = False
    has_prefixes: bool = True
    synonyms: dict[str, list[str]] = field(default_factory=dict)

    def found(self, asked: Asked) -> list[Doc]:
        kept = [each for each in self.documents if asked.filter is None or asked.filter.holds(each)]
        terms = [word for word, _ in spoken(asked.q)]
        costs = [(self._costs(each, terms, asked), number) for number, each in enumerate(kept)]
        ordered = sorted((cost, number) for cost, number in costs if cost is not None)
        result = [kept[number] for _, number in ordered]
        return self._distinct(result, asked.distinct)

    def facets(self, found: list[Doc], attribute: str) -> dict[str, int]:
        counts: dict[str, set[int]] = {}
        shown: dict[str, str] = {}
        for number, document in enumerate(found):
            for value in _values(document, attribute):
                text = _number(float(value)) if _is_number(value) else _text(value)
                key = plain(text)
                counts.setdefault(key, set()).add(number)
                shown[key] = min(shown.get(key, text), text)
        return {shown[key]: len(numbers) for key, numbers in counts.items()}

    def facet_search(self, found: list[Doc], attribute: str, query: str) -> dict[str, int]:
        """Without typos: those that are asked are short."""
        texts = [
            {**each, attribute: [text for text in _values(each, attribute) if not _is_number(text)]}
            for each in found
        ]
        counted = self.facets(texts, attribute)
        return {text: n for text, n in counted.items() if plain(text).startswith(plain(query))}

    def _distinct(self, found: list[Doc], attribute: str | None) -> list[Doc]:
        if attribute is None:
            return found
        seen: list[Any] = []
        kept = []
        for document in found:
            keys = [
                float(each) if _is_number(each) else plain(_text(each))
                for each in _values(document, attribute)
            ]
            if not any(key in seen for key in keys):
                kept.append(document)
                seen.extend(keys)
        return kept

    def _costs(self, document: Doc, terms: list[str], asked: Asked) -> list[Any] | None:
        hits = [self._hits(document, terms, number) for number in range(len(terms))]
        count = 0
        while count < len(hits) and hits[count]:
            count += 1
        if terms and (count == 0 or (asked.strategy == "all" and count < len(terms))):
            return None
        costs: list[Any] = []
        for rule in self.rules:
            if rule == "sort":
                costs.extend(_sort_key(document, *each) for each in asked.sort)
            elif ":" in rule:
                name, direction = rule.split(":")
                costs.append(_sort_key(document, name, direction == "desc"))
            elif terms:
                costs.extend(self._cost(rule, document, terms, hits[:count]))
        return costs

    def _hits(self, document: Doc, terms: list[str], number: int) -> list[Found]:
        found: list[Found] = []
        is_last = number == len(terms) - 1 and self.has_prefixes
        for rank, attribute in enumerate(self.searchable):
            words = spoken(str(document.get(attribute) or ""))
            for word, place in words:
                made = term_typos(terms[number], word, is_last)
                if made is not None:
                    found.append(Found(rank, place, place, made, word))
            for wanted, cost, is_shared, may_go_on in self._alternatives(terms, number):
                found += [
                    Found(rank, start, end, cost, "", is_shared)
                    for start, end in _said(words, wanted, may_go_on)
                ]
        return found

    def _alternatives(
        self, terms: list[str], number: int
    ) -> Iterator[tuple[list[str], int, bool, bool]]:
        """Words, as how many typos they count, whether several terms are they, and as a prefix."""
        term = terms[number]
        if allowed(term):
            for at in range(1, len(term)):
                yield [term[:at], term[at:]], 1, False, False
        for first in range(number + 1):
            for end in range(number + 1, len(terms) + 1):
                count = end - first
                cost = count - 1 if number == first else 0
                run = terms[first:end]
                if 2 <= count <= 3:
                    is_prefix = end == len(terms) and self.has_prefixes
                    yield ["".join(run)], cost, True, is_prefix
                for name, others in self.synonyms.items():
                    if [word for word, _ in spoken(name)] == run:
                        for each in others:
                            yield [word for word, _ in spoken(each)], cost, count > 1, False

    def _cost(
        self,
        rule: str,
        document: Doc,
        terms: list[str],
        hits: list[list[Found]],
    ) -> list[int]:
        if rule == "words":
            return [len(terms) - len(hits)]
        if rule == "typo":
            return [sum(min(each.typos for each in some) for some in hits)]
        if rule == "attributeRank":
            return [sum(min(each.rank for each in some) for some in hits)]
        if rule == "wordPosition":
            starts = [min(each.start for each in some) for some in hits]
            return [sum(place.bit_length() for place in starts)]
        if rule == "proximity":
            pairs = pairwise(hits)
            apart = _apart_by_attribute if self.by_attribute else _apart
            return [sum(apart(one, other) - 1 for one, other in pairs)]
        inexact = sum(all(each.word != terms[n] for each in some) for n, some in enumerate(hits))
        return [self._whole(document, terms, hits), inexact]

    def _whole(self, document: Doc, terms: list[str], hits: list[list[Found]]) -> int:
        best = 2
        for rank in {each.rank for some in hits for each in some}:
            words = [word for word, _ in spoken(str(document[self.searchable[rank]]))]
            if words == terms:
                best = 0
            elif words[: len(terms)] == terms:
                best = min(best, 1)
        return best


def _said(
    words: list[tuple[str, int]], wanted: list[str], may_go_on: bool
) -> Iterator[tuple[int, int]]:
    """Where words are said in a row: the first and the last place."""
    for at in range(len(words) - len(wanted) + 1):
        some = words[at : at + len(wanted)]
        *before, last = [word for word, _ in some]
        same = last.startswith(wanted[-1]) if may_go_on else last == wanted[-1]
        if before == wanted[:-1] and same and some[-1][1] - some[0][1] == len(some) - 1:
            yield some[0][1], some[-1][1]


def _apart(one: list[Found], other: list[Found]) -> int:
    best = 8
    for here in one:
        for there in other:
            if here.rank != there.rank:
                continue
            if here.shared and there.shared and here.start == there.start:
                return 1
            if there.start > here.end:
                best = min(best, there.start - here.end)
            if there.end < here.start:
                best = min(best, here.start - there.end + 1)
    return best


def _apart_by_attribute(one: list[Found], other: list[Found]) -> int:
    return 1 if {each.rank for each in one} & {each.rank for each in other} else 8


def _values(document: Doc, attribute: str) -> list[Any]:
    value = document.get(attribute)
    values = value if isinstance(value, list) else [value]
    return [each for each in values if each is not None]


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _sort_key(document: Doc, attribute: str, is_descending: bool) -> "Sorted":
    values = _values(document, attribute)
    numbers = [float(each) for each in values if _is_number(each)]
    texts = [plain(_text(each)) for each in values if not _is_number(each)]
    pick = max if is_descending else min
    if numbers:
        return Sorted(0, pick(numbers), is_descending)
    return Sorted(1, pick(texts), is_descending) if texts else Sorted(2, 0, is_descending)


@dataclass(frozen=True)
class Sorted:
    """Numbers are before texts, and these before nothing, in either direction."""

    kind: int
    value: Any
    is_descending: bool

    def __lt__(self, other: "Sorted") -> bool:
        if self.kind != other.kind:
            return self.kind < other.kind
        if self.is_descending:
            return bool(self.value > other.value)
        return bool(self.value < other.value)
