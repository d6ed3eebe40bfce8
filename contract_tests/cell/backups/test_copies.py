"""Backups are copied into a second store as they are, and read from there where it has to be."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cell.backups.store import Store
from contract_tests import small_disks
from contract_tests.bucket_server import bucket_server
from contract_tests.cell.backups.backup_calls import asked, back_up, in_store
from contract_tests.cell.backups.copying_rigs import (
    OFTEN,
    all_copied,
    copied,
    copies,
    copying_rig,
    files,
    lose,
)
from contract_tests.cell.backups.test_backup_faults import fill, flip, password_of
from contract_tests.cell.rig import VALKEY, Rig, new_id, running, until

MIB = 2**20


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("second") / "store"


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory, second: Path) -> Iterator[Rig]:
    """One for all tests here that leave its stores as they were."""
    second.mkdir()
    home = tmp_path_factory.mktemp("copying") / "cell"
    with running(home, backup_copy_store_url=second.as_uri(), **OFTEN) as made:
        made.usual = {**VALKEY, "backups_copied": True}
        yield made


@pytest.fixture
def subject(rig: Rig) -> Iterator[str]:
    instance_id = rig.make()
    rig.add(instance_id, password_of(rig, instance_id), 1)
    yield instance_id
    if rig.observe(instance_id)["status"] != "erased":
        rig.action(instance_id, "erase")


def of(stored: dict[str, bytes], instance_id: str) -> dict[str, bytes]:
    return {name: content for name, content in stored.items() if name.startswith(instance_id)}


def restored_from_copy(rig: Rig, instance_id: str, backup_id: str) -> bool:
    """In place, to what was there when it was backed up."""
    rig.add(instance_id, password_of(rig, instance_id), 2)
    seen = rig.action(instance_id, "restore", {"backup_id": backup_id})
    assert rig.numbers(instance_id, password_of(rig, instance_id)) == [1]
    assert seen["restored"]["backup_id"] == backup_id
    return bool(seen["restored"]["from_copy"])


def test_a_backup_is_copied_as_it_is(rig: Rig, second: Path, subject: str) -> None:
    assert all_copied(rig, subject)["copied"] == 0, "nothing is there to be copied"
    made = back_up(rig, subject)["backup_id"]
    told = all_copied(rig, subject)
    assert (told["copied"], told["waiting"], told["reason"]) == (1, 0, None)
    assert copied(rig, subject) == {made: told["newest_at"]}
    first = of(files(rig.home / "backups"), subject)
    assert of(files(second), subject) == first
    assert f"{subject}/{made}/manifest" in first
    assert second.stat().st_mode & 0o777 == 0o700
    assert not restored_from_copy(rig, subject, made), "the first store has all of it"


def test_nothing_is_copied_before_that_is_wanted(rig: Rig, second: Path) -> None:
    instance_id = rig.make(backups_copied=False)
    made = [back_up(rig, instance_id)["backup_id"] for _ in range(2)]
    assert copies(rig, instance_id)["status"] == "off"
    time.sleep(3 * OFTEN["backup_copy_check_s"])
    assert not (second / instance_id).exists()
    rig.action(instance_id, "set-copying", {"wanted": True})
    all_copied(rig, instance_id)
    assert sorted(copied(rig, instance_id)) == sorted(made)
    rig.action(instance_id, "set-copying", {"wanted": False})
    later = back_up(rig, instance_id)["backup_id"]
    time.sleep(2 * OFTEN["backup_copy_check_s"])
    assert sorted(path.name for path in (second / instance_id).iterdir()) == sorted(made)
    # What is there goes with its backup all the same.
    rig.action(instance_id, "drop-backups", {"backup_ids": [made[0], later]})
    assert [path.name for path in (second / instance_id).iterdir()] == [made[1]]
    rig.action(instance_id, "erase")
    assert not (second / instance_id).exists()


@pytest.mark.parametrize("damaged", ["part-000000", "manifest"])
def test_what_the_first_store_damaged_is_had_from_the_copy(
    rig: Rig, subject: str, damaged: str
) -> None:
    made = back_up(rig, subject)["backup_id"]
    all_copied(rig, subject)
    flip(rig.home / "backups" / subject / made / damaged, 0.5)
    assert restored_from_copy(rig, subject, made)
    (rig.home / "backups" / subject / made / damaged).unlink()
    assert restored_from_copy(rig, subject, made)
    other = new_id()
    rig.put(other, source_backup=f"{subject}/{made}")
    assert rig.observe(other)["restored"] == {"backup_id": made, "from_copy": True}
    rig.action(other, "erase")


def test_what_each_store_damaged_is_had_from_the_other(
    rig: Rig, second: Path, subject: str
) -> None:
    made = back_up(rig, subject)["backup_id"]
    all_copied(rig, subject)
    flip(rig.home / "backups" / subject / made / "part-000000", 0.5)
    flip(second / subject / made / "manifest", 0.5)
    assert restored_from_copy(rig, subject, made)
    flip(second / subject / made / "part-000000", 0.5)
    answer = asked(rig, subject, "restore", {"backup_id": made})
    assert answer.status_code == 409, answer.text
    assert "damaged" in answer.json()["detail"]


def test_a_damaged_backup_is_not_copied(rig: Rig, second: Path, subject: str) -> None:
    rig.action(subject, "set-copying", {"wanted": False})
    bad, good = (back_up(rig, subject)["backup_id"] for _ in range(2))
    flip(rig.home / "backups" / subject / bad / "part-000000", 0.5)
    rig.action(subject, "set-copying", {"wanted": True})
    until(lambda: good in copied(rig, subject), "the other one is copied")
    told = until(lambda: copies(rig, subject)["reason"] and copies(rig, subject), "it is told")
    assert "not the one that was written" in told["reason"]
    assert told["waiting"] == 1
    assert not (second / subject / bad / "manifest").exists()
    rig.action(subject, "drop-backups", {"backup_ids": [bad]})
    assert not (second / subject / bad).exists()
    assert all_copied(rig, subject)["copied"] == 1


def test_what_the_second_store_lost_is_copied_once_more(
    rig: Rig, second: Path, subject: str
) -> None:
    made = back_up(rig, subject)["backup_id"]
    before = all_copied(rig, subject)["newest_at"]
    (second / subject / made / "manifest").unlink()
    until(lambda: copied(rig, subject).get(made, before) > before, "it is copied again")
    assert of(files(second), subject) == of(files(rig.home / "backups"), subject)


def test_retention_and_erasure_remove_copies(rig: Rig, second: Path, subject: str) -> None:
    first, other = (back_up(rig, subject)["backup_id"] for _ in range(2))
    all_copied(rig, subject)
    rig.action(subject, "drop-backups", {"backup_ids": [first]})
    assert [path.name for path in (second / subject).iterdir()] == [other]
    assert list(copied(rig, subject)) == [other]
    rig.action(subject, "erase")
    assert not (second / subject).exists()
    assert in_store(rig, subject) == []


@pytest.mark.nightly
def test_what_is_removed_while_it_is_copied_does_not_come_back(
    rig: Rig, second: Path, subject: str
) -> None:
    rig.action(subject, "set-copying", {"wanted": False})
    fill(rig, subject, 40)
    made = [back_up(rig, subject)["backup_id"] for _ in range(2)]
    rig.action(subject, "set-copying", {"wanted": True})
    until(lambda: list((second / subject).glob("bkp_*/part-*")), "it is being copied")
    rig.action(subject, "drop-backups", {"backup_ids": made})
    assert not list((second / subject).rglob("bkp_*"))
    assert all_copied(rig, subject)["copied"] == 0
    assert not list((second / subject).rglob("bkp_*"))


@pytest.mark.nightly
def test_an_erasure_ends_what_is_being_copied(rig: Rig, second: Path) -> None:
    instance_id = rig.make(backups_copied=False)
    fill(rig, instance_id, 60)
    back_up(rig, instance_id)
    rig.action(instance_id, "set-copying", {"wanted": True})
    until(lambda: list((second / instance_id).glob("bkp_*/part-*")), "it is being copied")
    rig.action(instance_id, "erase")
    assert not (second / instance_id).exists()
    time.sleep(1)
    assert not (second / instance_id).exists()
    assert copied(rig, instance_id) == {}


def test_objects_of_other_cells_are_left_alone(rig: Rig, second: Path, subject: str) -> None:
    others = {
        f"{new_id()}/bkp_01JD0000000000000000000000/part-000000": b"half a copy of another cell's",
        f"{new_id()}/wal/wal_1/000000010000000000000001": b"WAL of another cell's",
        "installation/cell_1/ibk_1/manifest": b"an installation's",
        f"{subject}x/bkp_1/part-000000": b"of a name that begins alike",
    }
    for name, content in others.items():
        (second / name).parent.mkdir(parents=True)
        (second / name).write_bytes(content)
    # This one is half a copy of its own, of a backup that is gone.
    half = second / subject / "bkp_01JD0000000000000000000000"
    back_up(rig, subject)
    all_copied(rig, subject)
    half.mkdir(parents=True)
    (half / "part-000000").write_bytes(b"half")
    until(lambda: not half.exists(), "what can never become a copy is removed")
    rig.action(subject, "erase")
    stored = files(second)
    assert {name: stored.get(name) for name in others} == others
    for name in others:
        shutil.rmtree(second / name.partition("/")[0])


def test_a_copy_cannot_be_read_without_the_key(rig: Rig, second: Path) -> None:
    canary = os.urandom(24).hex()
    instance_id = rig.make()
    with rig.keys(instance_id, password_of(rig, instance_id)) as client:
        client.set(canary, canary)
    back_up(rig, instance_id)
    all_copied(rig, instance_id)
    for name, content in files(second).items():
        assert canary.encode() not in content
        assert canary not in name
    other = rig.make()
    own = back_up(rig, other)["backup_id"]
    all_copied(rig, other)
    # A whole copy of somebody else's in the place of the instance's.
    theirs = next(path for path in (second / instance_id).iterdir() if path.name != "wal")
    shutil.rmtree(second / other / own)
    shutil.copytree(theirs, second / other / own)
    shutil.rmtree(rig.home / "backups" / other / own)
    answer = asked(rig, other, "restore", {"backup_id": own})
    assert answer.status_code == 409, answer.text
    for each in (instance_id, other):
        rig.action(each, "erase")


def test_a_cell_without_a_second_store_says_so(light_rig: Rig) -> None:
    instance_id = light_rig.make()
    answer = asked(light_rig, instance_id, "set-copying", {"wanted": True})
    assert answer.status_code == 409
    assert "second store" in answer.json()["detail"]
    asked(light_rig, instance_id, "set-copying", {"wanted": False}).raise_for_status()
    assert light_rig.observe(instance_id)["copies"] is None
    assert copied(light_rig, instance_id) == {}


@pytest.mark.nightly
def test_a_lost_first_store_is_made_up_for(make_rig: Callable[..., Rig], tmp_path: Path) -> None:
    first = tmp_path / "first"
    first.mkdir()
    rig = copying_rig(make_rig, tmp_path / "second", backup_store_url=first.as_uri())
    instance_id = rig.make()
    rig.add(instance_id, password_of(rig, instance_id), 1)
    made = back_up(rig, instance_id)["backup_id"]
    all_copied(rig, instance_id)
    lose(first)
    assert restored_from_copy(rig, instance_id, made), "of a store that is away"
    answer = asked(rig, instance_id, "drop-backups", {"backup_ids": [made]})
    assert answer.status_code == 503
    first.mkdir()
    assert restored_from_copy(rig, instance_id, made), "of one that is empty"
    time.sleep(2 * OFTEN["backup_copy_check_s"])
    assert (tmp_path / "second" / instance_id / made / "manifest").exists()
    rig.action(instance_id, "erase")
    assert files(tmp_path / "second") == {}


@pytest.mark.nightly
def test_a_second_store_that_was_away_is_caught_up_with(
    make_rig: Callable[..., Rig], tmp_path: Path
) -> None:
    second, aside = tmp_path / "second", tmp_path / "aside"
    rig = copying_rig(make_rig, second)
    instance_id = rig.make()
    made = [back_up(rig, instance_id)["backup_id"]]
    all_copied(rig, instance_id)
    second.rename(aside)
    made += [back_up(rig, instance_id)["backup_id"] for _ in range(2)]
    told = until(
        lambda: copies(rig, instance_id)["status"] == "late" and copies(rig, instance_id),
        "it is late",
    )
    assert "the second store of backups" in told["reason"]
    assert str(tmp_path) not in told["reason"]
    assert asked(rig, instance_id, "drop-backups", {"backup_ids": made[:1]}).status_code == 503
    assert not (rig.home / "backups" / instance_id / made[0]).exists()
    aside.rename(second)
    assert all_copied(rig, instance_id)["copied"] >= 2
    assert set(copied(rig, instance_id)) >= set(made[1:])
    rig.action(instance_id, "drop-backups", {"backup_ids": made[:1]})
    assert sorted(path.name for path in (second / instance_id).iterdir()) == made[1:]
    second.rename(aside)
    # It is not forgotten before nothing is left of it in either store.
    assert asked(rig, instance_id, "erase", None).status_code == 503
    assert asked(rig, instance_id, "erase", None).status_code == 503
    aside.rename(second)
    rig.action(instance_id, "erase")
    assert files(second) == {}


@pytest.mark.nightly
def test_a_killed_cell_goes_on_where_it_was(make_rig: Callable[..., Rig], tmp_path: Path) -> None:
    second = tmp_path / "second"
    # Slow enough to be killed in between.
    rig = copying_rig(make_rig, second)
    instance_id = rig.make(backups_copied=False)
    fill(rig, instance_id, 80)
    made = back_up(rig, instance_id)["backup_id"]
    rig.kill()
    rig.start(backup_bytes_per_s=40_000_000)
    rig.status_is(instance_id, "running")
    rig.action(instance_id, "set-copying", {"wanted": True})
    own = second / instance_id / made
    until(lambda: len(list(own.glob("part-*"))) >= 2, "some of it is copied")
    rig.kill()
    assert not (own / "manifest").exists(), "half a copy does not count"
    there = {path: path.stat().st_mtime_ns for path in sorted(own.glob("part-*"))}
    flip(next(iter(there)), 0.5)
    kept = dict(list(there.items())[1:-1])
    rig.start()
    rig.status_is(instance_id, "running")
    all_copied(rig, instance_id)
    assert files(second) == of(files(rig.home / "backups"), instance_id)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept, "not copied again"


@pytest.mark.nightly
def test_a_full_second_store_is_told_of(make_rig: Callable[..., Rig], tmp_path: Path) -> None:
    with small_disks.mounted(tmp_path / "disk", 3 * MIB) as disk:
        rig = copying_rig(make_rig, disk / "second")
        instance_id = rig.make()
        small = back_up(rig, instance_id)["backup_id"]
        all_copied(rig, instance_id)
        fill(rig, instance_id, 8)
        large = back_up(rig, instance_id)["backup_id"]
        told = until(
            lambda: copies(rig, instance_id)["status"] == "late" and copies(rig, instance_id),
            "it is late",
        )
        assert told["reason"].startswith("the second store of backups is full")
        assert list(copied(rig, instance_id)) == [small]
        # Backups go on being made, and restored.
        assert rig.action(instance_id, "restore", {"backup_id": large})["status"] == "running"
        rig.action(instance_id, "drop-backups", {"backup_ids": [large]})
        all_copied(rig, instance_id)
        assert {path.parent.name for path in disk.rglob("manifest")} == {small}
        assert not list(disk.rglob(f"{large}/*"))
        rig.action(instance_id, "erase")


@pytest.fixture
def buckets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two servers of S3: the environment tells of both."""
    with bucket_server() as first, bucket_server("BACKUP_COPY_AWS_") as second:
        for name, value in {**first, **second}.items():
            monkeypatch.setenv(name, value)
        yield


@pytest.mark.nightly
@pytest.mark.usefixtures("buckets")
def test_buckets_of_two_servers(make_rig: Callable[..., Rig]) -> None:
    """The same name and prefix at both: they differ by their server."""
    rig = make_rig(
        backup_store_url="s3://backups/first", backup_copy_store_url="s3://backups/second", **OFTEN
    )
    rig.usual = {**VALKEY, "backups_copied": True}
    instance_id = rig.make()
    rig.add(instance_id, password_of(rig, instance_id), 1)
    made = back_up(rig, instance_id)["backup_id"]
    all_copied(rig, instance_id)
    first = Store("s3://backups/first")
    copy = Store("s3://backups/second", is_second=True)
    names = {each.name for each in first.list(f"{instance_id}/")}
    assert names == {each.name for each in copy.list(f"{instance_id}/")}
    assert f"{instance_id}/{made}/manifest" in names
    assert list(Store("s3://backups/second").list("")) == [], "of the first server"
    first.remove_all(f"{instance_id}/")
    assert restored_from_copy(rig, instance_id, made)
    rig.action(instance_id, "erase")
    assert list(copy.list("")) == []
