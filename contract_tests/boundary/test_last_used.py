"""When a use is noted, and when it was noted lately enough."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from control.boundary import last_used
from control.boundary.callers import Caller
from control.boundary.last_used import LastUsed
from storage.access.api_keys import ApiKey
from storage.database import Database

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Written:
    """A database that counts what it is told."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def write(self) -> Iterator[Any]:
        yield self

    def execute(self, _statement: Any) -> None:
        self.count += 1


def after(**seconds: float) -> datetime:
    return AT + timedelta(**seconds)


def uses(*moments: tuple[str, datetime], last: datetime | None = None) -> int:
    """How often a use of keys of these ids, at these moments, is written."""
    written = Written()
    noting = LastUsed(cast("Database", written))
    for key_id, at in moments:
        key = ApiKey(id=key_id, last_used_at=last)
        noting.note(cast("Caller", SimpleNamespace(key=key, session=None)), at)
    noting.flush()
    return written.count


@pytest.mark.parametrize(("seconds", "written"), [(0, 0), (59, 0), (60, 1), (61, 1)])
def test_what_the_record_says_is_enough_for_a_minute(seconds: int, written: int) -> None:
    assert uses(("key_1", after(seconds=seconds)), last=AT) == written


@pytest.mark.parametrize(("seconds", "written"), [(0, 1), (59, 1), (60, 2), (61, 2)])
def test_what_was_noted_is_enough_for_a_minute(seconds: int, written: int) -> None:
    assert uses(("key_1", AT), ("key_1", after(seconds=seconds))) == written
    assert uses(("key_1", AT), ("key_2", after(seconds=seconds))) == 2


def test_so_many_are_remembered_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_used, "_REMEMBERED_MAX", 2)
    moments = [(key_id, AT) for key_id in ("key_1", "key_2", "key_1", "key_3", "key_1")]
    assert uses(*moments) == 4
