"""When deliveries are tried again: jittered, longer each time, as asked, and not for ever."""

from datetime import UTC, datetime, timedelta

import pytest

from control.delivery import backoff
from control.delivery.backoff import HORIZON, asked_s, delay_s, next_at

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def test_delays_grow_up_to_a_maximum_and_have_full_jitter() -> None:
    for failures in range(1, 30):
        whole = min(10.0 * 2 ** (failures - 1), 3_600.0)
        drawn = [delay_s(failures) for _ in range(200)]
        assert 0 <= min(drawn) < whole / 4
        assert whole * 3 / 4 < max(drawn) <= whole


def test_a_delivery_is_tried_for_a_day_and_a_last_time_at_its_end() -> None:
    now, until, tries = NOW, NOW + HORIZON, 0
    while (again := next_at(now, tries + 1, until)) is not None:
        assert now <= again <= until
        now, tries = again + timedelta(milliseconds=50), tries + 1
    assert now > until
    assert 20 < tries < 300


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120),
        (" 0 ", 0),
        ("9" * 30, HORIZON.total_seconds()),
        ("Mon, 30 Nov 2026 12:01:00 GMT", 60),
        ("Mon, 30 Nov 2026 11:00:00 GMT", 0),
        ("-5", None),
        ("1.5", None),
        ("\u0661", None),
        ("soon", None),
        ("", None),
        (None, None),
        ("Mon, 99 Nov 2026 12:01:00 GMT", None),
    ],
)
def test_retry_after_is_a_number_or_a_date(text: str | None, seconds: float | None) -> None:
    assert asked_s(text, NOW) == seconds


def test_whoever_asks_to_wait_is_left_alone_as_long_and_the_day_ends_nevertheless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backoff, "delay_s", lambda _failures: 5.0)
    until = NOW + HORIZON
    assert next_at(NOW, 1, until, "600") == NOW + timedelta(seconds=600)
    assert next_at(NOW, 1, until, "1") == NOW + timedelta(seconds=5)
    assert next_at(NOW, 1, until, "9999999") == until
    assert next_at(until, 1, until, "1") is None
