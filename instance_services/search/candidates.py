"""Owns what tantivy is asked: which documents may match the words of a query.

Each index has a folder. A document is there once, as the number of its row and its words. What is
found is looked up in the database, so that a row that is not there any more does no harm.
"""

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import tantivy

CANDIDATES_MAX: Final = 1_000
HEAP_BYTES: Final = 32_000_000
_EXACT: Final = 8.0
_WHOLE: Final = 4.0


@dataclass(frozen=True)
class WantedWord:
    """A word of a query: how many typos it may have, and whether it is a beginning."""

    text: str
    typos: int = 0
    is_prefix: bool = False


def _schema() -> tantivy.Schema:
    made = tantivy.SchemaBuilder()
    made.add_unsigned_field("document", stored=True, indexed=True, fast=True)
    made.add_text_field("words", tokenizer_name="whitespace", index_option="freq")
    return made.build()


SCHEMA: Final = _schema()


class CandidateWriter:
    """Changes the candidates of one index; nobody sees any of it before `commit`."""

    def __init__(self, folder: Path, number: int) -> None:
        place = folder / str(number)
        place.mkdir(parents=True, exist_ok=True)
        self._writer = tantivy.Index(SCHEMA, str(place)).writer(HEAP_BYTES, 1)

    def add(self, document: int, words: Iterable[str]) -> None:
        """In place of what has this number, as after a transaction that was lost."""
        self.remove(document)
        made = tantivy.Document()
        made.add_unsigned("document", document)
        made.add_text("words", " ".join(words))
        self._writer.add_document(made)

    def remove(self, document: int) -> None:
        query = tantivy.Query.term_query(SCHEMA, "document", document)
        self._writer.delete_documents_by_query(query)

    def clear(self) -> None:
        self._writer.delete_all_documents()

    def commit(self) -> None:
        self._writer.commit()


def erase(folder: Path, number: int) -> None:
    shutil.rmtree(folder / str(number), ignore_errors=True)


def exists(folder: Path, number: int) -> bool:
    place = folder / str(number)
    return place.is_dir() and bool(tantivy.Index.exists(str(place)))


class Candidates:
    """What searches ask. One for a process; an index is opened once, and looked at anew."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._opened: dict[int, Any] = {}

    def searcher(self, number: int) -> Any:
        """As the index is now; None where nothing was ever put into it."""
        if number not in self._opened:
            if not exists(self._folder, number):
                return None
            self._opened[number] = tantivy.Index.open(str(self._folder / str(number)))
        found = self._opened[number]
        found.reload()
        return found.searcher()

    def forget(self, number: int) -> None:
        self._opened.pop(number, None)


def frequency(searcher: Any, word: str) -> int:
    """In how many documents the word is, as it is written."""
    return int(searcher.doc_freq("words", word))


class IndexedWords:
    """The words of what a searcher looks at."""

    def __init__(self, searcher: Any) -> None:
        self._searcher = searcher

    def frequency(self, word: str) -> int:
        return frequency(self._searcher, word)

    def is_beginning(self, text: str) -> bool:
        query = tantivy.Query.fuzzy_term_query(SCHEMA, "words", text, 0, True, True)
        return bool(self._searcher.search(query, limit=1).hits)


def find(
    searcher: Any,
    required: Sequence[Sequence[Sequence[WantedWord]]],
    optional: Sequence[Sequence[Sequence[WantedWord]]],
    *,
    among: Iterable[int] | None,
    limit: int = CANDIDATES_MAX,
) -> tuple[list[int], int]:
    """Numbers of documents that have all required terms, best first, and how many there are.

    A term is a list of alternatives, and each of these a list of words that are all needed.
    """
    clauses = [(tantivy.Occur.Must, _term(term)) for term in required]
    clauses += [(tantivy.Occur.Should, _term(term)) for term in optional]
    if among is not None:
        wanted = tantivy.Query.term_set_query(SCHEMA, "document", list(among))
        clauses.append((tantivy.Occur.Must, tantivy.Query.const_score_query(wanted, 0.0)))
    result = searcher.search(tantivy.Query.boolean_query(clauses), limit=limit)
    addresses = [address for _, address in result.hits]
    return [int(each) for each in searcher.fast_field_values("document", addresses)], result.count


def _term(alternatives: Sequence[Sequence[WantedWord]]) -> Any:
    return _any([_all([_word(each) for each in words]) for words in alternatives])


def _word(wanted: WantedWord) -> Any:
    """Exact ones are better than whole ones, and these than those with typos."""
    query = tantivy.Query
    exact = query.boost_query(query.term_query(SCHEMA, "words", wanted.text), _EXACT)
    if not wanted.typos and not wanted.is_prefix:
        return exact
    fuzzy = query.fuzzy_term_query(
        SCHEMA, "words", wanted.text, wanted.typos, True, wanted.is_prefix
    )
    parts = [exact, fuzzy]
    if wanted.typos and wanted.is_prefix:
        begun = query.fuzzy_term_query(SCHEMA, "words", wanted.text, 0, True, True)
        parts.append(query.boost_query(begun, _WHOLE))
    return _any(parts)


def _any(parts: Sequence[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    return tantivy.Query.boolean_query([(tantivy.Occur.Should, part) for part in parts])


def _all(parts: Sequence[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    return tantivy.Query.boolean_query([(tantivy.Occur.Must, part) for part in parts])
