"""Owns the search in languages that have no blanks between words."""

from typing import Any

import meilisearch
import pytest

from instance_services.search import texts

BOOKS = [
    {"id": 1, "title": "北京大学生前来应聘"},
    {"id": 2, "title": "清华大学的历史"},
    {"id": 3, "title": "東京都に住む学生"},
    {"id": 4, "title": "研究生命起源 and DNA"},
    {"id": 5, "title": "서울특별시의 역사"},
    {"id": 6, "title": "ประวัติศาสตร์ไทย"},
    {"id": 7, "title": "數據庫的歷史"},
]


@pytest.fixture(scope="module")
def books(client: meilisearch.Client) -> Any:
    index = client.index("languages")
    client.wait_for_task(index.add_documents(BOOKS).task_uid)
    return index


@pytest.mark.parametrize(
    ("query", "found"),
    [
        # Words within a text, and their beginnings.
        ("大学生", [1]),
        ("应聘", [1]),
        ("北", [1]),
        ("研究", [4]),
        ("生命 dna", [4]),
        ("數據庫", [7]),
        # What is two halves of words is no word: a university student, and the life of research.
        ("学生", [3]),
        ("研究生", []),
        # One of several words is enough, unless it is a phrase.
        ("北京 应聘", [1]),
        ('"清华大学的历史"', [2]),
        ('"清华的历史"', []),
        # Kana tell that a text is Japanese; a query of it may have none.
        ("東京都", [3]),
        ("京都", [3]),
        ("東京都に", [3]),
        ('"東京都"', [3]),
        ("-大学 大", [1]),
        ("역사", [5]),
        ("서울", [5]),
        ("ไทย", [6]),
    ],
)
def test_words_are_found_within_texts(books: Any, query: str, found: list[int]) -> None:
    given = {"matchingStrategy": "all"}
    assert [hit["id"] for hit in books.search(query, given)["hits"]] == found


def test_excluded_words_are_so_in_both_languages(books: Any) -> None:
    kept = [hit["id"] for hit in books.search('学 -"東京都" -应聘')["hits"]]
    assert 3 not in kept
    assert 1 not in kept


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("应聘", "北京大学生前来<em>应聘</em>"),
        ("大学生 北京", "<em>北京</em><em>大学生</em>前来应聘"),
        ("京都", "東<em>京都</em>に住む学生"),
    ],
)
def test_what_is_found_is_marked(books: Any, query: str, shown: str) -> None:
    answer = books.search(query, {"attributesToHighlight": ["title"], "limit": 1})
    told = answer["hits"][0]["_formatted"]["title"]
    assert told.replace("</em><em>", "") == shown.replace("</em><em>", "")


def test_no_more_is_cut_than_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A document of nothing else would take the memory that indexing has."""
    cut: list[int] = []
    words_of = texts.chinese_words

    def noting(text: str) -> list[str]:
        cut.append(len(text))
        return words_of(text)

    monkeypatch.setattr(texts, "chinese_words", noting)
    found = texts.Tokenizer().words("研究生命起源" * 500_000)
    assert len(found) == texts.POSITIONS_MAX + 1
    assert max(cut) <= texts.RUN_MAX
    assert sum(cut) <= found[-1].end + texts.RUN_MAX


def test_words_are_whole_and_in_order() -> None:
    """Whatever cuts them, each character is in one word, and each word where it says it is."""
    text = "北京大学生 abc 清华大学。研究生命起源。" * 50 + "數據庫" * 300
    found = texts.Tokenizer().words(text)
    for word in found:
        assert texts.normalized(text[word.start : word.end]) == word.text
    ends = [0, *(word.end for word in found)]
    for word, before in zip(found, ends, strict=False):
        assert before <= word.start < word.end
    letters = sum(each not in " 。" for each in text)
    assert sum(word.end - word.start for word in found) == letters
    positions = [word.position for word in found]
    assert positions == sorted(set(positions))
