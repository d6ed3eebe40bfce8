"""Recovery windows as records: what a cell tells of archived WAL, and of which instances."""

from datetime import UTC, datetime
from typing import Any, Final

import pytest

from contract_tests.storage import tenants
from storage.data import recovery_windows
from storage.data.recovery_windows import RecoveryWindow
from storage.database import Database

AT: Final = datetime(2026, 11, 26, 12, tzinfo=UTC)
RANGES: Final = [{"from": "2026-11-25T02:00:00.000Z", "until": "2026-11-26T11:00:00.000Z"}]
TOLD: Final[dict[str, Any]] = {
    "wanted": True,
    "status": "late",
    "reason": "the server does not respond",
    "needs_base": True,
    "ranges": RANGES,
    "gap": {"at": "2026-11-26T11:30:00.000Z", "reason": "lost", "restorable_until": None},
}


def test_what_a_cell_tells_is_kept_with_the_moment(database: Database) -> None:
    with database.write() as db:
        instance = tenants.instance(db, tenants.make(db))
        window = recovery_windows.of_instance(db, instance)
        window.was_told(TOLD, AT)
        db.add(window)
    with database.read() as db:
        kept = recovery_windows.of_instance(db, instance)
        assert (kept.org_id, kept.instance_id) == (instance.org_id, instance.id)
        assert (kept.is_wanted, kept.status, kept.reason) == (True, "late", TOLD["reason"])
        assert (kept.needs_base, kept.ranges, kept.seen_at) == (True, RANGES, AT)
        assert kept.gap_at == datetime(2026, 11, 26, 11, 30, tzinfo=UTC)
        assert kept.is_interrupted is False
        kept.was_told({**TOLD, "gap": None}, AT)
        assert kept.gap_at is None


def test_where_nothing_was_told_there_is_no_window(database: Database) -> None:
    with database.write() as db:
        instance = tenants.instance(db, tenants.make(db))
        window = recovery_windows.of_instance(db, instance)
        assert (window.is_wanted, window.status, window.ranges) == (False, "off", [])
        assert (window.needs_base, window.is_interrupted) == (False, False)
        assert (window.reason, window.gap_at, window.seen_at) == (None, None, None)
        db.flush()
        assert db.get(RecoveryWindow, instance.id) is None, "it is in no table yet"


@pytest.mark.parametrize("gone", [0, 1])
def test_it_is_forgotten_with_its_instance_alone(database: Database, gone: int) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        both = [tenants.instance(db, tenant) for _ in range(2)]
        for each in both:
            db.add(recovery_windows.of_instance(db, each))
        db.flush()
        recovery_windows.forget(db, both[gone])
        left = recovery_windows.of_cell(db, tenant.cell_id)
        assert left.keys() == {both[1 - gone].id}
