"""Owns what an answer shows of what was found: documents, highlights, facets and counts."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any, Final

from instance_services.search import configuration, paths, score_details, texts, vectors
from instance_services.search.answer_room import AnswerRoom
from instance_services.search.errors import ApiError
from instance_services.search.found import FoundDocuments
from instance_services.search.ranking import Matcher
from instance_services.search.rows import place_of
from instance_services.search.searching import Search
from instance_services.search.selecting import meters
from instance_services.search.snapshots import IndexState

_BYTES: Final = "utf-8"


def answer(
    state: IndexState,
    search: Search,
    found: FoundDocuments,
    given: Mapping[str, Any],
    spent_ms: int,
) -> dict[str, Any]:
    """The body of a 200. `found` may have been cut by a distinct attribute."""
    most = state.settings["pagination"]["maxTotalHits"]
    ids = found.ids[:most]
    paged, start, count = page(given, min(found.total, most))
    shown = ids[start : start + count]
    documents = state.documents(shown)
    hits = [hit(state, found, each, documents[each], given) for each in shown]
    body: dict[str, Any] = {
        "hits": hits,
        "query": given.get("q") or "",
        "processingTimeMs": spent_ms,
        **paged,
    }
    if found.similarities is not None:
        body["semanticHitCount"] = sum(each in found.similarities for each in shown)
    if given.get("facets") is not None:
        body |= facets(state, search, set(found.ids), given["facets"])
    return body


def page(given: Mapping[str, Any], total: int) -> tuple[dict[str, Any], int, int]:
    """What is told of the page, and which of the ids it is."""
    if given.get("page") is None and given.get("hitsPerPage") is None:
        limit = given.get("limit")
        limit = 20 if limit is None else limit
        offset = given.get("offset") or 0
        told = {"limit": limit, "offset": offset, "estimatedTotalHits": total}
        return told, offset, limit
    size = given.get("hitsPerPage")
    size = 20 if size is None else size
    number = given.get("page")
    number = 1 if number is None else number
    pages = -(-total // size) if size else 0
    told = {"hitsPerPage": size, "page": number, "totalPages": pages, "totalHits": total}
    return told, max(0, number - 1) * size, size if number else 0


def hit(
    state: IndexState,
    found: FoundDocuments,
    number: int,
    document: dict[str, Any],
    given: Mapping[str, Any],
) -> dict[str, Any]:
    plain = vectors.shown(document, state.settings, is_wanted=False)
    displayed = paths.selected(plain, state.settings["displayedAttributes"])
    wanted = given.get("attributesToRetrieve")
    shown = dict(displayed if wanted is None else paths.selected(displayed, wanted))
    highlights = given.get("attributesToHighlight") or []
    crops = _crops(given)
    if highlights or crops:
        tokenizer = texts.tokenizer(state.settings)
        formatter = Formatter(found.matcher, tokenizer, given, highlights, crops, state.room)
        shown["_formatted"] = formatter.whole(displayed, wanted)
    if given.get("retrieveVectors"):
        told = vectors.shown(document, state.settings, is_wanted=True)
        shown[vectors.FIELD] = told[vectors.FIELD]
    if given.get("showMatchesPosition"):
        shown["_matchesPosition"] = _positions(found.matcher, displayed)
    if given.get("showRankingScore"):
        shown["_rankingScore"] = found.scores.get(number, 1.0)
    if given.get("showRankingScoreDetails"):
        shown["_rankingScoreDetails"] = score_details.told(found, number)
    if found.point is not None and (place := place_of(document)) is not None:
        shown["_geoDistance"] = round(meters(found.point, place))
    return shown


def _crops(given: Mapping[str, Any]) -> dict[str, int]:
    """By attribute, how many words are kept; `title:5` has a length of its own."""
    length = given.get("cropLength")
    found: dict[str, int] = {}
    for each in given.get("attributesToCrop") or ():
        name, colon, own = each.rpartition(":")
        if colon and own.isdecimal():
            found[name] = int(own)
        else:
            found[each] = 10 if length is None else length
    return found


class Formatter:
    """Marks and shortens the texts of a document for one search."""

    def __init__(
        self,
        matcher: Matcher | None,
        tokenizer: texts.Tokenizer,
        given: Mapping[str, Any],
        highlights: Sequence[str],
        crops: Mapping[str, int],
        room: AnswerRoom,
    ) -> None:
        self._matcher = matcher
        self._tokenizer = tokenizer
        self._highlights = highlights
        self._crops = crops
        self._room = room
        self._before = _or(given.get("highlightPreTag"), "<em>")
        self._after = _or(given.get("highlightPostTag"), "</em>")
        self._marker = _or(given.get("cropMarker"), "…")

    def whole(self, document: dict[str, Any], wanted: Sequence[str] | None) -> dict[str, Any]:
        """What is retrieved and what is formatted, texts marked and shortened."""
        names = [*self._highlights, *self._crops]
        shown = document if wanted is None else paths.selected(document, [*wanted, *names])
        return {name: self._value(name, value) for name, value in shown.items()}

    def _value(self, path: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._value(f"{path}.{name}", each) for name, each in value.items()}
        if isinstance(value, list):
            return [self._value(path, each) for each in value]
        is_marked = paths.rank(self._highlights, path) is not None
        rank = paths.rank(list(self._crops), path)
        if (not is_marked and rank is None) or value is None or isinstance(value, bool):
            return value
        text = next(paths.texts(value))
        crop = None if rank is None else list(self._crops.values())[rank]
        return self._text(text, crop, is_marked=is_marked)

    def _text(self, text: str, crop: int | None, *, is_marked: bool) -> str:
        words = self._tokenizer.words(text)
        marks = marked(self._matcher, words)
        start, end = 0, len(text)
        if crop and len(words) > crop:
            first = _window(words, marks, crop)
            start = 0 if first == 0 else words[first].start
            last = first + crop
            end = len(text) if last >= len(words) else words[last - 1].end
        added = len(marks) * (len(self._before) + len(self._after)) + 2 * len(self._marker)
        self._room.take(end - start + added)
        parts, at = [], start
        for begin, finish in marks if is_marked else ():
            if begin >= start and finish <= end:
                parts += [text[at:begin], self._before, text[begin:finish], self._after]
                at = finish
        parts.append(text[at:end])
        left = self._marker if start > 0 else ""
        return f"{left}{''.join(parts)}{self._marker if end < len(text) else ''}"


def marked(matcher: Matcher | None, words: Sequence[texts.Word]) -> list[tuple[int, int]]:
    """Which characters of the original the query is found in; of a longer word its beginning."""
    if matcher is None:
        return []
    wanted, phrases = matcher.marking(words)
    found: dict[int, int] = {}
    for word in words:
        length = wanted.get(word.text)
        if length is not None:
            found[word.start] = min(word.end, word.start + length)
    for first, last in phrases:
        found.update((each.start, each.end) for each in words[first : last + 1])
    return sorted(found.items())


def _window(words: Sequence[texts.Word], marks: Sequence[tuple[int, int]], size: int) -> int:
    """The first word of the part that has most of the marks, with some words before them."""
    begins = {start for start, _ in marks}
    hits = [number for number, word in enumerate(words) if word.start in begins]
    if not hits:
        return 0
    best, last, most = hits[0], hits[0], 0
    for at, first in enumerate(hits):
        count = bisect_left(hits, first + size) - at
        if count > most:
            best, last, most = first, hits[at + count - 1], count
    spare = size - (last - best + 1)
    return max(0, min(best - spare // 2, len(words) - size))


def _positions(matcher: Matcher | None, document: dict[str, Any]) -> dict[str, list[Any]]:
    """By path, the bytes of each match; `indices` tells the item of an array."""
    found: dict[str, list[Any]] = {}
    if matcher is None:
        return found
    for path, values in paths.fields(document).items():
        for item, value in enumerate(values):
            for text in paths.texts(value):
                at = before = 0
                for start, end in marked(matcher, matcher.tokenizer.words(text)):
                    # Not from the beginning each time: a text may have a million matches.
                    before += len(text[at:start].encode(_BYTES))
                    at = start
                    length = len(text[start:end].encode(_BYTES))
                    place: dict[str, Any] = {"start": before, "length": length}
                    if len(values) > 1:
                        place["indices"] = [item]
                    found.setdefault(path, []).append(place)
    return found


def facets(
    state: IndexState, search: Search, ids: set[int], wanted: Sequence[str]
) -> dict[str, Any]:
    """How many of the documents have each value, and the range of numbers."""
    allowed = configuration.filterable(state.settings)
    distribution: dict[str, dict[str, int]] = {}
    ranges: dict[str, dict[str, float]] = {}
    for each in wanted:
        if each != "*" and paths.rank(allowed, each) is None:
            raise ApiError(
                "invalid_search_facets",
                f"the attribute `{each[:200]}` is not filterable, and so no facet; filterable "
                f"attributes: {', '.join(allowed) or 'none'}",
            )
        names = [each] if each != "*" else search.selection.paths_of("*")
        for path in names:
            if paths.rank(allowed, path) is None:
                continue
            distribution[path] = _distribution(state, search, ids, path)
            found = search.selection.facet_range(path, ids)
            if found is not None:
                ranges[path] = {"min": found[0], "max": found[1]}
    return {"facetDistribution": distribution, "facetStats": ranges}


def _distribution(state: IndexState, search: Search, ids: set[int], path: str) -> dict[str, int]:
    return dict(shown_values(state, path, search.selection.facet(path, ids)))


def shown_values(
    state: IndexState, path: str, counted: list[tuple[str, int]]
) -> list[tuple[str, int]]:
    """Values of a facet and their counts, in the order and number that the settings say."""
    ordered = ordered_values(state, path, counted)
    return ordered[: state.settings["faceting"]["maxValuesPerFacet"]]


def ordered_values(
    state: IndexState, path: str, counted: list[tuple[str, int]]
) -> list[tuple[str, int]]:
    orders = state.settings["faceting"]["sortFacetValuesBy"]
    ordered = sorted(counted)
    if orders.get(path, orders.get("*", "alpha")) == "count":
        ordered.sort(key=lambda each: -each[1])
    return ordered


def _or(value: str | None, default: str) -> str:
    return default if value is None else value
