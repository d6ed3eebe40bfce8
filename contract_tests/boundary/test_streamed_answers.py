"""Answers of pages: each is asked for anew, until there is none."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from control.boundary.streamed_answers import PageIterator


class Source:
    def __init__(self) -> None:
        self.calls = 0

    @contextmanager
    def again(self) -> Iterator[Any]:
        self.calls += 1
        yield self


def test_pages_follow_one_another_until_there_is_none() -> None:
    def step(call: Any, at: int) -> tuple[str, int | None]:
        assert call is source
        return f"page {at}", at + 1 if at < 2 else None

    source = Source()
    pages = PageIterator(source.again, step, 0)
    assert source.calls == 0
    assert list(pages) == ["page 0", "page 1", "page 2"]
    assert source.calls == 3
    with pytest.raises(StopIteration):
        next(pages)
