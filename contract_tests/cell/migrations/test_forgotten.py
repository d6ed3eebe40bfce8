"""What is known of migrations goes with their instance, whatever still works on them."""

from pathlib import Path

from ulid import ULID

from cell.database import Database
from cell.migrations.record import Migration, MigrationRecords
from cell.sealing import Sealer


def test_work_that_ends_late_brings_nothing_of_an_erased_instance_back(tmp_path: Path) -> None:
    """Its source may answer, or be given up, when nobody waits for it any more."""
    records = MigrationRecords(Database(tmp_path / "cell.db"), Sealer(bytes(32), "migrations"))
    made = Migration(f"mig_{ULID()}", "inst_1", "connection", None, "copy", dry_run=False)
    records.add(made)
    made.reason = "of the source"
    records.save(made)
    assert [each.reason for each in records.every()] == ["of the source"]
    records.forget(made.instance_id)
    made.status = "failed"
    records.save(made)
    assert records.every() == []
