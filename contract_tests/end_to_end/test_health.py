"""What `serve` and `wait` make of what a service says of itself."""

from menagerie import health

WELL = {"status": "ok", "detail": None}
FULL = {"status": "degraded", "detail": "62 MiB are free on the database's disk"}
UNTOLD = {"status": "degraded", "detail": "no cell has reported its engines since it started"}


def test_little_room_on_the_disk_is_a_warning_and_no_reason_to_wait() -> None:
    """A service that is started anew would never be ready, and end."""
    said = {"status": "degraded", "checks": {"database": FULL, "cells": WELL, "worker": WELL}}
    assert health.missing(said) == []
    assert health.warnings(said) == [FULL["detail"]]


def test_what_is_missing_is_named() -> None:
    said = {"status": "degraded", "checks": {"database": WELL, "cells": UNTOLD, "worker": WELL}}
    assert health.missing(said) == [f"cells: {UNTOLD['detail']}"]


def test_asking_stays_below_the_rate_of_strangers() -> None:
    """Beyond 60 in a minute it would be refused, and not hear that the service is ready."""
    asked, now = 0, 0.0
    while now < 60:
        asked += 1
        now += health.pause_s(now, 0.05)
    assert asked < 50
    assert health.pause_s(0.5, 0.05) < 0.2
