"""Archived WAL is copied into the second store, and moments come back from there."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from contract_tests.by_day import one_in
from contract_tests.cell.backups.copying_rigs import OFTEN, all_copied, copies, files, lose
from contract_tests.cell.backups.recovering import Archived, cell, now
from contract_tests.cell.backups.test_backup_faults import flip
from contract_tests.cell.rig import Rig, until


@dataclass
class Copying:
    rig: Rig
    first: Path
    second: Path

    def make(self, engine: str) -> Archived:
        return Archived.make(self.rig, engine=engine, backups_copied=True)

    def wal(self, one: Archived, store: Path) -> dict[str, bytes]:
        folder = store / one.instance_id / "wal"
        return files(folder) if folder.exists() else {}

    def copied_until(self, one: Archived, moment: str) -> None:
        def there() -> bool:
            until_ = copies(self.rig, one.instance_id)["restorable_until"]
            return until_ is not None and until_ >= moment

        until(there, f"copied until {moment}")


@pytest.fixture
def copying(tmp_path: Path) -> Iterator[Copying]:
    first, second = tmp_path / "first", tmp_path / "second"
    for each in (first, second):
        each.mkdir()
    urls = {"backup_store_url": first.as_uri(), "backup_copy_store_url": second.as_uri()}
    with cell(tmp_path, **urls, **OFTEN) as rig:
        yield Copying(rig, first, second)


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("engine", one_in(3, ["postgres", "mariadb", "valkey"]))
def test_a_moment_is_had_from_the_copy(copying: Copying, engine: str) -> None:
    one = copying.make(engine)
    one.write(1)
    base = one.base()
    moment = one.write(2)
    one.write(3)
    one.archived_until(now())
    all_copied(copying.rig, one.instance_id)
    copying.copied_until(one, moment.replace("+00:00", "Z"))
    lose(copying.first)
    # While the first store is away, and in part older than what was archived there.
    one.write(4)
    assert one.restored(base, moment) == [1, 2]
    assert copying.rig.observe(one.instance_id)["restored"]["from_copy"]
    copying.first.mkdir()


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_wal_is_copied_as_it_is_archived_and_removed(copying: Copying) -> None:
    one = copying.make("postgres")
    one.write(1)
    base = one.base()
    with one.session() as session:
        rows = "SELECT repeat(md5(n::text), 30) FROM generate_series(1, 50000) AS n"
        session.execute(f"CREATE TABLE filler AS {rows}")

    def same() -> bool:
        stored = copying.wal(one, copying.first)
        return len(stored) >= 3 and copying.wal(one, copying.second) == stored

    until(same, "both stores have the same WAL")
    moment = one.write(2)
    one.archived_until(moment)
    until(same, "and what was archived since")
    # What one store has lost or damaged is had from the other.
    oldest = min(copying.first.joinpath(one.instance_id, "wal").glob("*/0*"))
    lost = copying.second / oldest.relative_to(copying.first)
    lost.unlink()
    until(lost.exists, "what the second store has lost is copied once more")
    flip(oldest, 0.5)
    assert one.restored(base, moment) == [1, 2]
    # A new chain began; the former one goes with the backup that it continued.
    later = one.base()
    copying.rig.action(one.instance_id, "drop-backups", {"backup_ids": [base]})

    def of_later() -> bool:
        """One chain, which goes on, in both."""
        stored = (copying.wal(one, copying.first), copying.wal(one, copying.second))
        chains = [{name.partition("/")[0] for name in each} for each in stored]
        return len(chains[0]) == 1 and chains[0] == chains[1]

    until(of_later, "both have the chain of the later backup only")
    manifests = [name for name in files(copying.second) if name.endswith("manifest")]
    assert manifests == [f"{one.instance_id}/{later}/manifest"]
    copying.rig.action(one.instance_id, "erase")
    assert files(copying.second) == files(copying.first) == {}


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_killed_cell_goes_on_with_wal(copying: Copying) -> None:
    rig = copying.rig
    one = copying.make("postgres")
    one.write(1)
    base = one.base()
    all_copied(rig, one.instance_id)
    rig.kill()
    rig.start()
    rig.status_is(one.instance_id, "running")
    moment = one.write(2)
    one.archived_until(moment)
    copying.copied_until(one, moment.replace("+00:00", "Z"))
    lose(copying.first)
    assert one.restored(base, moment) == [1, 2]
    copying.first.mkdir()


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_what_is_damaged_keeps_nothing_later_from_being_copied(copying: Copying) -> None:
    rig = copying.rig
    one = Archived.make(rig, engine="postgres", backups_copied=False)
    one.base()
    with one.session() as session:
        rows = "SELECT repeat(md5(n::text), 30) FROM generate_series(1, 50000) AS n"
        session.execute(f"CREATE TABLE filler AS {rows}")
    one.archived_until(now())
    folder = copying.first / one.instance_id / "wal"
    until(lambda: len(list(folder.glob("*/*[0-9A-F]"))) > 1, "whole segments are archived")
    oldest = min(folder.glob("*/*[0-9A-F]"))
    flip(oldest, 0.5)
    rig.action(one.instance_id, "set-copying", {"wanted": True})
    missing = str(oldest.relative_to(folder))

    def rest_copied() -> bool:
        return copying.wal(one, copying.first).keys() - copying.wal(one, copying.second) == {
            missing
        }

    until(rest_copied, "all but what is damaged is copied")
    assert "damaged" in until(lambda: copies(rig, one.instance_id)["reason"], "it is told")
    assert copies(rig, one.instance_id)["status"] != "current"


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_what_somebody_puts_into_the_second_store_is_in_nobodys_way(copying: Copying) -> None:
    """The first has all that is needed; and no more is asked of the second than it should have."""
    one = copying.make("postgres")
    one.write(1)
    base = one.base()
    moment = one.write(2)
    one.archived_until(moment)
    copying.copied_until(one, moment.replace("+00:00", "Z"))
    (filling,) = copying.first.glob(f"{one.instance_id}/wal/*/*.partial")
    there = copying.second / filling.parent.relative_to(copying.first)
    for name in ("00000009.history", "no.history", filling.name.removesuffix(".partial")):
        (there / name).write_bytes(b"of somebody else's making")
    assert one.restored(base, moment) == [1, 2]
