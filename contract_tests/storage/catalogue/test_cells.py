"""Cells as records: since when one is silent."""

from datetime import UTC, datetime, timedelta

from storage.catalogue.cells import SILENT_AFTER, Cell


def test_a_cell_is_silent_until_it_is_heard_and_some_time_afterwards() -> None:
    heard = datetime(2026, 11, 26, 12, tzinfo=UTC)
    cell = Cell(id="cell_one")
    assert cell.is_silent(heard)
    cell.last_seen_at = heard
    assert not cell.is_silent(heard)
    assert not cell.is_silent(heard + SILENT_AFTER)
    assert cell.is_silent(heard + SILENT_AFTER + timedelta(milliseconds=1))
