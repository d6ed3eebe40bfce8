"""Incremental backups: restored to what was committed, and what they need stays as long as they."""

import sqlite3
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from cell.backups.__main__ import main as recover
from contract_tests.cell.backups.backup_calls import (
    asked,
    back_up,
    in_store,
    left_beside,
    listed,
    new_backup_id,
)
from contract_tests.cell.backups.copying_rigs import (
    all_copied,
    copied,
    copying_rig,
    lose,
)
from contract_tests.cell.backups.increasing import SMALL, UNVERIFIED, ids, methods, series
from contract_tests.cell.backups.recovering import FAST, Archived, now
from contract_tests.cell.backups.test_backup_faults import flip, in_background
from contract_tests.cell.backups.test_backups import Hosted, hosted
from contract_tests.cell.backups.test_dumps import got
from contract_tests.cell.backups.test_lost_data import recovered, store_of, taken_over
from contract_tests.cell.rig import SMALL as SIZE
from contract_tests.cell.rig import Rig, until

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]


@pytest.fixture
def source(make_rig: Callable[..., Rig]) -> Hosted:
    made = hosted(make_rig(**UNVERIFIED), "postgres")
    made.make_table()
    return made


def test_each_increment_is_restored_to_what_was_committed(
    make_rig: Callable[..., Rig], tmp_path: Path
) -> None:
    source = hosted(make_rig(**SMALL), "postgres")
    rig, instance_id = source.rig, source.instance_id
    source.make_table()
    made = series(source, 3)
    assert methods(made) == ["full", "incremental", "incremental"]
    assert [each["parent_id"] for each in made] == [None, *ids(made)[:2]]
    assert listed(rig, instance_id) == made
    for each in made:
        assert each["verification"]["method"] == "restored"
        assert each["size_bytes"] == pytest.approx(made[0]["size_bytes"], rel=0.1)
    assert all(each["stored_bytes"] < made[0]["stored_bytes"] / 10 for each in made[1:])
    assert left_beside(rig, instance_id) == set()
    assert got(rig, instance_id, "download", backup_id=ids(made)[0]).status_code == 200
    refused = got(rig, instance_id, "download", backup_id=ids(made)[1])
    assert refused.status_code == 409
    assert "incremental" in refused.json()["detail"]
    other = source.another(source_backup=f"{instance_id}/{ids(made)[2]}")
    assert other.read() == [1, 2, 3]
    for backup_id, numbers in zip(ids(made), ([1], [1, 2], [1, 2, 3]), strict=True):
        rig.action(instance_id, "restore", {"backup_id": backup_id})
        assert source.read() == numbers
    # Without any cell.
    words = ["--store", (rig.home / "backups").as_uri()]
    words += ["--recovery-key", str(rig.home / "recovery.key")]
    assert recover([*words, f"{instance_id}/{ids(made)[2]}", str(tmp_path / "to")]) == 0
    assert {path.name for path in (tmp_path / "to").iterdir()} == {"cluster"}
    assert (tmp_path / "to" / "cluster" / "PG_VERSION").read_text().strip() == source.version
    rig.action(instance_id, "erase")
    assert in_store(rig, instance_id) == []
    with sqlite3.connect(rig.home / "cell.db") as database:
        for table in ("backup_marks", "backup_parents"):
            assert database.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


def test_how_many_build_on_each_other_is_bounded(make_rig: Callable[..., Rig]) -> None:
    source = hosted(make_rig(**UNVERIFIED, backup_increments_max=2), "postgres")
    source.make_table()
    full, increments = ["full"], ["incremental"] * 2
    assert methods(series(source, 5)) == [*full, *increments, *full, *increments[1:]]
    rig = source.rig
    for settings in ({"backup_full_every_s": 0.0}, {"backup_increments_max": 0}):
        rig.terminate()
        rig.start(**settings)
        rig.status_is(source.instance_id, "running")
        assert back_up(rig, source.instance_id, "scheduled")["method"] == "full"


def test_without_what_it_needs_the_next_one_is_full(source: Hosted) -> None:
    rig, instance_id = source.rig, source.instance_id

    def next_one() -> str:
        return str(back_up(rig, instance_id, "scheduled")["method"])

    assert [next_one(), next_one()] == ["full", "incremental"]
    # Others are between them, and are whole.
    assert back_up(rig, instance_id, "manual")["method"] == "full"
    assert back_up(rig, instance_id, "pre_change")["method"] == "full"
    made = back_up(rig, instance_id, "scheduled")
    assert made["method"] == "incremental"
    # Other data, whose WAL has the same numbers.
    source.write(1)
    rig.action(instance_id, "restore", {"backup_id": made["backup_id"]})
    assert [next_one(), next_one()] == ["full", "incremental"]
    # A server that does not run tells nothing.
    rig.action(instance_id, "pause")
    assert next_one() == "full"
    rig.action(instance_id, "resume")
    assert [next_one(), next_one()] == ["full", "incremental"]
    # It is the same data after the cell was killed, and after the server was.
    rig.kill()
    rig.start()
    rig.status_is(instance_id, "running")
    assert next_one() == "incremental"
    note = source.site.directory / "backup-mark.json"
    for broken in (b"", b"[]", b"{}", note.read_bytes().replace(b"bkp_", b"bkp_0", 1)):
        note.write_bytes(broken)
        assert [next_one(), next_one()] == ["full", "incremental"]
    # What it would build on is lost.
    made = back_up(rig, instance_id, "scheduled")
    (rig.home / "backups" / instance_id / made["backup_id"] / "manifest").unlink()
    assert next_one() == "full"


def test_a_cell_that_is_killed_meanwhile_builds_on_nothing_half_made(
    make_rig: Callable[..., Rig],
) -> None:
    source = hosted(make_rig(**UNVERIFIED, backup_increments_max=50), "postgres")
    rig, instance_id = source.rig, source.instance_id
    source.make_table()
    made = series(source, 2)
    numbers = [1, 2]
    for number, wait_s in enumerate((0.05, 0.3, 0.6, 0.9, 1.2, 1.5), start=3):
        source.write(number)
        numbers.append(number)
        body = {"backup_id": new_backup_id(), "kind": "scheduled"}
        making = in_background(partial(asked, rig, instance_id, "back-up", body))
        time.sleep(wait_s)
        rig.kill()
        making.join()
        rig.start()
        rig.status_is(instance_id, "running")
        if number % 2:
            # As the control plane does, until it is made.
            made.append(rig.action(instance_id, "back-up", body))
    last = back_up(rig, instance_id, "scheduled")
    assert last["method"] == "incremental"
    rig.action(instance_id, "restore", {"backup_id": last["backup_id"]})
    assert source.read() == numbers
    for each, until_number in ((made[1], 2), (made[2], 3), (made[-1], 7)):
        rig.action(instance_id, "restore", {"backup_id": each["backup_id"]})
        assert source.read() == numbers[:until_number]


def test_little_data_and_older_versions_are_backed_up_whole(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(backup_verify_bytes_max=1)
    source = hosted(rig, "postgres")
    source.make_table()
    assert methods(series(source, 2)) == ["full", "full"], "it has a few megabytes"
    rig.terminate()
    rig.start(**UNVERIFIED)
    older = Hosted(rig, "postgres", "16", rig.make(engine="postgres", engine_version="16"))
    older.make_table()
    assert methods(series(older, 2)) == ["full", "full"]
    # Its server has no process for that.
    size = {**SIZE, "storage_bytes": 2 * 10**9}
    given = {"engine": "postgres", "engine_version": source.version, "size": size}
    small = Hosted(rig, "postgres", source.version, rig.make(**given))
    small.make_table()
    assert methods(series(small, 2)) == ["full", "full"]


def test_what_others_build_on_is_removed_after_them(source: Hosted) -> None:
    rig, instance_id = source.rig, source.instance_id
    made = ids(series(source, 4))

    def drop(*backup_ids: str) -> set[str]:
        told = rig.action(instance_id, "drop-backups", {"backup_ids": list(backup_ids)})
        return set(told["dropped"])

    assert drop(made[0]) == set()
    assert drop(made[0], made[1]) == set()
    assert drop(made[2], made[0]) == set()
    assert ids(listed(rig, instance_id)) == made
    assert drop(made[3], made[1]) == {made[3]}
    # Nothing builds on what is gone.
    assert back_up(rig, instance_id, "scheduled")["method"] == "full"
    rig.action(instance_id, "restore", {"backup_id": made[2]})
    assert source.read() == [1, 2, 3]
    assert drop(*made[:3]) == set(made[:3])
    assert len(listed(rig, instance_id)) == 1


def test_a_copy_has_all_that_it_builds_on(make_rig: Callable[..., Rig], tmp_path: Path) -> None:
    rig = copying_rig(make_rig, tmp_path / "second", **UNVERIFIED)
    rig.usual = {"backups_copied": False}
    source = hosted(rig, "postgres")
    source.make_table()
    made = ids(series(source, 3))
    rig.act("POST", f"/v1/instances/{source.instance_id}/actions/set-copying", {"wanted": True})
    all_copied(rig, source.instance_id)
    at = copied(rig, source.instance_id)
    assert sorted(at, key=lambda each: at[each]) == made, "what others build on comes first"
    lose(rig.home / "backups" / source.instance_id / made[0])
    (rig.home / "backups" / source.instance_id / made[1] / "part-000000").unlink()
    rig.action(source.instance_id, "restore", {"backup_id": made[2]})
    assert source.read() == [1, 2, 3]
    assert rig.observe(source.instance_id)["restored"]["from_copy"]


def test_what_cannot_be_copied_keeps_what_builds_on_it_from_counting(
    make_rig: Callable[..., Rig], tmp_path: Path
) -> None:
    rig = copying_rig(make_rig, tmp_path / "second", **UNVERIFIED)
    rig.usual = {"backups_copied": False}
    source = hosted(rig, "postgres")
    source.make_table()
    made = ids(series(source, 2))
    lone = back_up(rig, source.instance_id)["backup_id"]
    flip(rig.home / "backups" / source.instance_id / made[0] / "part-000000", 0.5)
    rig.act("POST", f"/v1/instances/{source.instance_id}/actions/set-copying", {"wanted": True})

    def late() -> bool:
        return bool(rig.observe(source.instance_id)["copies"]["status"] == "late")

    until(late, "it is said that it cannot be copied")
    assert set(copied(rig, source.instance_id)) == {lone}


def test_moments_after_an_increment_are_restored(make_rig: Callable[..., Rig]) -> None:
    one = Archived.make(make_rig(**{**FAST, **SMALL}))
    one.archived_until(now())
    first = back_up(one.rig, one.instance_id, "scheduled")
    one.write(1)
    second = back_up(one.rig, one.instance_id, "scheduled")
    assert (first["method"], second["method"]) == ("full", "incremental")
    assert second["wal_chain_id"] == first["wal_chain_id"]
    moment = one.write(2)
    one.archived_until(one.write(3))
    assert one.restored(second["backup_id"], moment) == [1, 2]
    # A new timeline: the next one is full.
    assert back_up(one.rig, one.instance_id, "scheduled")["method"] == "full"


def test_after_an_upgrade_the_next_one_is_full(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(**UNVERIFIED)
    instance_id = rig.make(engine="postgres", engine_version="17", rotation_overlap_s=0)
    old = Hosted(rig, "postgres", "17", instance_id)
    old.make_table()
    made = series(old, 2)
    assert methods(made) == ["full", "incremental"]
    answer = rig.put(instance_id, engine="postgres", engine_version="18", rotation_overlap_s=0)
    assert answer["engine_version"] == "18"
    new = Hosted(rig, "postgres", "18", instance_id)
    new.write(3)
    assert methods([back_up(rig, instance_id, "scheduled") for _ in range(2)]) == [
        "full",
        "incremental",
    ]
    assert new.read() == [1, 2, 3]


def test_a_lost_cell_is_recovered_with_what_is_whole(
    make_rig: Callable[..., Rig], tmp_path: Path
) -> None:
    former = make_rig(backup_store_url=store_of(tmp_path), **UNVERIFIED)
    source = hosted(former, "postgres")
    source.make_table()
    made = series(source, 4)
    source.write(5)
    # The newest lacks what it builds on.
    former.terminate()
    (tmp_path / "store" / source.instance_id / ids(made)[2] / "manifest").unlink()
    former.start()
    # With the recovery key alone: nothing is known of what builds on what.
    cell = recovered(make_rig, former, "recovery.key", "recovery.pub", **UNVERIFIED)
    told = taken_over(cell, source.instance_id, *(each["sha256"] for each in made))
    assert told.json()["items"] == made[:2]
    given = {"engine": "postgres", "engine_version": source.version, "rotation_overlap_s": 0}
    newest = f"{source.instance_id}/{ids(made)[1]}"
    cell.put(source.instance_id, **given, source_backup=newest)
    begun = Hosted(cell, "postgres", source.version, source.instance_id)
    assert begun.read() == [1, 2]
    dropped = cell.action(source.instance_id, "drop-backups", {"backup_ids": [ids(made)[0]]})
    assert dropped == {"dropped": []}
    assert back_up(cell, source.instance_id, "scheduled")["method"] == "full"
