"""The glossary: in order, of terms that are used, and each leads to a file that is there."""

import re
from pathlib import Path

from contract_tests.habits.test_sizes import ROOT

PAGE = ROOT / "docs" / "glossary.md"
ROWS = re.findall(r"^\| ([^|]+) \| [^|]+ \| ([^|]+) \|$", PAGE.read_text(), re.MULTILINE)[1:]
TERMS = {str(term): str(places) for term, places in ROWS}


def places(text: str) -> list[Path]:
    """The files of a row: guides are links from the page's folder, code is a path from the root."""
    guides = [PAGE.parent / one for one in re.findall(r"\]\(([^)#]+)", text)]
    return guides + [ROOT / one for one in re.findall(r"`([^`]+)`", text)]


def test_terms_are_in_order_and_each_is_there_once() -> None:
    assert len(ROWS) > 60
    assert [term for term, _ in ROWS] == sorted(TERMS, key=str.lower)


def test_every_file_that_is_named_exists() -> None:
    named = {one for text in TERMS.values() for one in places(text)}
    assert not [one for one in named if not one.exists()]


def test_a_term_leads_to_where_it_is_used() -> None:
    assert not [term for term, text in TERMS.items() if not is_used(term, places(text))]


def is_used(term: str, files: list[Path]) -> bool:
    """As words of a text, or as the name of something in code: `allow_list`, `cells`, `adopted`."""
    words = [re.escape(word[:5]) for word in re.split(r"[ -]", term.lower())]
    pattern = r"(?<![a-z])" + r"\w*[ _-]*".join(words)
    texts = [str(one.relative_to(ROOT)) for one in files]
    texts += [one.read_text().lower() for one in files if one.is_file()]
    return any(re.search(pattern, text) for text in texts)
