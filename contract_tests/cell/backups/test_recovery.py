"""Holds the recovery of an instance to any moment: what was committed by then comes back."""

import shutil
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from contract_tests.by_day import one_in
from contract_tests.cell.backups.backup_calls import back_up, left_beside
from contract_tests.cell.backups.recovering import Archived, at, cell, now
from contract_tests.cell.rig import Rig, new_id, spec, until


@pytest.mark.timeout(400)
@pytest.mark.parametrize("version", one_in(4, ["18", "17", "16", "15"]))
def test_any_moment_comes_back(archiving_rig: Rig, version: str) -> None:
    """Between commits, in an idle stretch, and before and after a change of timeline."""
    one = Archived.make(archiving_rig, version)
    rig, instance_id = one.rig, one.instance_id
    one.write(1)
    first = one.base()
    two = one.write(2)
    three = one.write(3)
    idle = one.archived_until(three)["newest_at"]
    told = one.archiving
    assert (told["status"], told["gap"], len(told["ranges"])) == ("archiving", None, 1)
    one.refused(first, at(time.time() + 60), "can be restored")

    # In another time zone, which is the same moment.
    zone = timezone(timedelta(hours=5, minutes=30))
    assert one.restored(first, datetime.fromisoformat(two).astimezone(zone).isoformat()) == [1, 2]
    until(lambda: one.archiving["needs_base"], "the WAL is of other data now")
    second = one.base()
    four = one.write(4)
    rig.action(instance_id, "pause")
    # Nothing can change any more, so that the newest moment is now.
    paused = until(lambda: one.archiving["newest_at"] > four and now(), "all is archived")
    until(lambda: one.archiving["newest_at"] >= paused.replace("+00:00", "Z"), "it is now")
    assert rig.action(instance_id, "restore", {"backup_id": second, "at": paused})
    rig.action(instance_id, "resume")
    assert one.read() == [1, 2, 4]
    # Before the first restore, where no commit comes after the moment.
    assert one.restored(first, idle) == [1, 2, 3]
    assert [each["begins_at"] for each in one.archiving["ranges"]] == sorted(
        each["begins_at"] for each in one.archiving["ranges"]
    )
    assert left_beside(rig, instance_id) <= {"wal"}
    rig.action(instance_id, "erase")
    assert one.stored == []


@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_another_instance_begins_with_a_moment(archiving_rig: Rig) -> None:
    one = Archived.make(archiving_rig)
    rig = one.rig
    one.write(1)
    base = one.base()
    moment = one.write(2)
    one.archived_until(one.write(3))
    source = {"source_backup": f"{one.instance_id}/{base}", "source_at": moment}
    given = {"engine": "postgres", "engine_version": one.version}
    other = Archived(rig, one.version, rig.make(**given, **source))
    assert other.read() == [1, 2]
    other.write(9)
    assert one.read() == [1, 2, 3]
    never = {**source, "source_at": at(time.time() + 3600)}
    instance_id = new_id()
    wanted = spec(instance_id, **given, **never)
    refused = rig.act("PUT", f"/v1/instances/{instance_id}", wanted)
    assert refused.status_code == 503
    assert "can be restored" in refused.json()["detail"]
    rig.action(instance_id, "erase")


@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_what_is_missing_or_changed_is_refused_before_anything_is_replaced(
    archiving_rig: Rig,
) -> None:
    one = Archived.make(archiving_rig)
    one.write(1)
    base = one.base()
    # Each backup ends a segment.
    back_up(one.rig, one.instance_id)
    one.archived_until(one.write(5))
    old = {path: path.read_bytes() for path in one.stored}
    moment = one.write(2)
    one.archived_until(moment)
    # Nothing else is archived meanwhile.
    one.rig.action(one.instance_id, "pause")
    one.archived_until(now())
    later = one.stored
    for path in (later[-2], later[-1]):
        kept = path.read_bytes()
        path.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
        one.refused(base, moment, "damaged")
        path.unlink()
        one.refused(base, moment, "missing")
        path.write_bytes(kept)
    # One of another name, and one that is older than what was archived.
    kept = later[-2].read_bytes()
    shutil.copyfile(later[-1], later[-2])
    one.refused(base, moment, "damaged")
    later[-2].write_bytes(kept)
    partial = later[-1]
    assert partial.suffix == ".partial"
    partial.write_bytes(old[partial])
    one.refused(base, moment, "older")
    one.rig.action(one.instance_id, "erase")


@pytest.mark.nightly
@pytest.mark.timeout(400)
@pytest.mark.parametrize("engine", ["postgres", "mariadb", "valkey"])
def test_a_missing_segment_is_found_before_it_is_needed(tmp_path: Path, engine: str) -> None:
    with cell(tmp_path, wal_check_every_s=0.5) as rig:
        one = Archived.make(rig, engine=engine)
        one.write(1)
        base = one.base()
        moment = one.write(2)
        one.archived_until(moment)
        back_up(rig, one.instance_id)
        # What was written since the first backup is whole now.
        one.archived_until(now())
        segment = [path for path in one.stored if path.suffix != ".partial"][-2:][0]
        segment.unlink()
        told = until(lambda: one.archiving["gap"], "it is told")
        assert (segment.name in told["reason"], "missing" in told["reason"]) == (True, True)
        until(lambda: one.archiving["needs_base"], "a new window waits for a backup")
        one.refused(base, moment, "can be restored")
        one.write(3)
        again = one.base()
        assert one.restored(again, one.archived_until(one.write(4))["newest_at"]) == [1, 2, 3, 4]


@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_wal_is_given_up_where_the_store_stays_away(tmp_path: Path) -> None:
    """The instance works all the time, and its window begins anew once the store is back."""
    store, away = tmp_path / "store", tmp_path / "away"
    store.mkdir()
    given = {"wal_spool_bytes_max": 48 * 2**20, "wal_late_after_s": 2.0}
    with cell(tmp_path, backup_store_url=store.as_uri(), **given) as rig:
        one = Archived.make(rig)
        one.write(1)
        base = one.base()
        known = one.archived_until(one.write(2))["newest_at"]
        store.rename(away)
        one.write(3)
        until(lambda: one.archiving["status"] == "late", "that it is late is told")
        assert "missing" in one.archiving["reason"]
        with one.session() as session:
            session.execute(
                "CREATE TABLE large AS SELECT repeat('x', 100) FROM generate_series(1, 5)"
            )
            for _ in range(20):
                session.execute(
                    "INSERT INTO large SELECT md5(i::text) FROM generate_series(1, 50000) AS i"
                )
        told = until(lambda: one.archiving["gap"], "that WAL is given up is told")
        assert "waited" in told["reason"]
        folder = rig.home / "instances" / one.instance_id / "wal"
        spooled = sum(path.stat().st_size for path in folder.glob("*")) if folder.exists() else 0
        assert spooled < 96 * 2**20
        away.rename(store)
        until(lambda: one.archiving["status"] == "archiving", "it is archived again")
        until(lambda: one.archiving["needs_base"], "a new window waits for a backup")
        assert one.restored(base, known) == [1, 2], "what was archived before stays"


@pytest.mark.nightly
@pytest.mark.timeout(400)
@pytest.mark.parametrize("engine", ["postgres", "mariadb", "valkey"])
def test_wal_that_no_backup_needs_is_removed(archiving_rig: Rig, engine: str) -> None:
    one = Archived.make(archiving_rig, engine=engine)
    one.write(1)
    earlier = [one.base()]
    one.write(2)
    earlier.append(one.base())
    second = one.base()
    before = [path.name for path in one.stored]
    moment = one.write(3)
    one.archived_until(moment)
    archiving_rig.action(one.instance_id, "drop-backups", {"backup_ids": earlier})
    left = [path.name for path in one.stored]
    assert min(left) > min(before)
    assert one.restored(second, moment) == [1, 2, 3]
    archiving_rig.action(one.instance_id, "drop-backups", {"backup_ids": [second]})
    names = {path.parent.name for path in one.stored}
    assert len(names) <= 1, "of the former data nothing is left"
    archiving_rig.action(one.instance_id, "erase")


@pytest.mark.nightly
@pytest.mark.timeout(400)
@pytest.mark.parametrize("engine", ["postgres", "mariadb", "valkey"])
def test_it_is_turned_off_and_on(archiving_rig: Rig, engine: str) -> None:
    one = Archived.make(archiving_rig, engine=engine)
    one.write(1)
    base = one.base()
    known = one.archived_until(one.write(2))["newest_at"]
    archiving_rig.action(one.instance_id, "set-archiving", {"wanted": False})
    until(lambda: one.archiving["status"] == "off", "it is off")
    if engine == "postgres":
        slots = "SELECT count(*) FROM pg_replication_slots"
        with one.session() as session:
            until(lambda: session.execute(slots).fetchone() == (0,), "nothing is held back")
    archiving_rig.action(one.instance_id, "set-archiving", {"wanted": True})
    until(lambda: one.archiving["status"] == "archiving", "it is on")
    assert one.restored(base, known) == [1, 2]
    archiving_rig.action(one.instance_id, "erase")


@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_an_owner_has_no_hand_in_it(archiving_rig: Rig) -> None:
    one = Archived.make(archiving_rig)
    one.write(1)
    one.base()
    attempts = (
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_replication",
        "SELECT pg_create_physical_replication_slot('mine')",
        "ALTER ROLE app REPLICATION",
        "ALTER ROLE menagerie SET wal_sender_timeout = 1",
        "ALTER SYSTEM SET restore_command = 'touch /tmp/x'",
        "SELECT pg_switch_wal()",
        "SELECT pg_create_restore_point('x')",
    )
    with one.session() as session:
        found = session.execute("SELECT count(*) FROM pg_stat_replication").fetchone()
        assert found == (1,)
        for attempt in attempts:
            with pytest.raises(Exception, match=r"(?i)permission|must be|only roles|not allowed"):
                session.execute(attempt)
    one.archived_until(one.write(2))
    archiving_rig.action(one.instance_id, "erase")
