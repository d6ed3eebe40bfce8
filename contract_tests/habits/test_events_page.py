"""The page of events lists the kinds that the document describes."""

from tools import events_page


def test_the_page_is_what_is_made_of_the_document() -> None:
    assert events_page.PAGE.read_text() == events_page.text(), "run `make fix`, and commit the page"
