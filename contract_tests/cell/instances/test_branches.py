"""Holds that an instance can begin with the data of another, and with nothing else of it."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
import redis

from cell.instances.snapshots import ABANDONED_AFTER_S
from contract_tests.cell.rig import VALKEY, Rig, new_id, spec, until


def snapshots(rig: Rig, instance_id: str) -> list[Path]:
    return list((rig.home / "instances" / instance_id / "snapshots").iterdir())


def age(path: Path) -> None:
    """As if it had been made a while ago."""
    os.utime(path, (0, time.time() - ABANDONED_AFTER_S))


def copy_of(rig: Rig, source: str, label: str = "branch") -> Path:
    made = rig.action(source, "snapshot", {"label": label})["snapshot_id"]
    return rig.home / "instances" / source / "snapshots" / str(made)


def test_a_branch_has_the_data_and_neither_the_credential_nor_the_future(light_rig: Rig) -> None:
    source = light_rig.make()
    password = light_rig.reveal(source)["password"]
    light_rig.add(source, password, 1)
    copy = light_rig.action(source, "snapshot", {"label": "branch"})["snapshot_id"]
    light_rig.add(source, password, 2)

    branch = light_rig.make(source_snapshot=f"{source}/{copy}")
    own = light_rig.reveal(branch)["password"]
    assert light_rig.numbers(branch, own) == [1]
    with pytest.raises(redis.AuthenticationError):
        light_rig.numbers(branch, password)
    assert snapshots(light_rig, source) == []
    light_rig.add(branch, own, 3)
    assert light_rig.numbers(source, password) == [1, 2]

    # It begins once: what is declared again later, with or without the source, changes nothing.
    for again in (f"{source}/{copy}", None):
        light_rig.action(branch, "pause")
        light_rig.put(branch, source_snapshot=again)
        light_rig.action(branch, "resume")
        assert light_rig.numbers(branch, own) == [1, 3]
    light_rig.action(source, "erase")
    assert light_rig.numbers(branch, own) == [1, 3]
    light_rig.action(branch, "erase")


def test_a_snapshot_that_is_not_there_makes_no_instance(shared_rig: Rig) -> None:
    instance_id = new_id()
    missing = f"{new_id()}/snap_{new_id().removeprefix('inst_')}"
    path = f"/v1/instances/{instance_id}"
    refused = shared_rig.act("PUT", path, spec(instance_id, source_snapshot=missing))
    assert refused.status_code == 409
    assert missing in refused.json()["detail"]
    assert shared_rig.get(path).status_code == 404


def test_the_newest_snapshots_of_each_label_are_kept(light_rig: Rig) -> None:
    source = light_rig.make()
    labels = ["before-change"] * 4 + ["branch"] * 3
    made = [
        light_rig.action(source, "snapshot", {"label": label})["snapshot_id"] for label in labels
    ]
    assert sorted(path.name for path in snapshots(light_rig, source)) == made[1:]
    # What was taken before a change can be begun with, and stays.
    branch = light_rig.make(source_snapshot=f"{source}/{made[1]}")
    assert made[1] in {path.name for path in snapshots(light_rig, source)}
    # Those that nobody begins with do not pile up: each may be as large as the instance.
    path, asked = f"/v1/instances/{source}/actions/snapshot", {"label": "branch"}
    refused = light_rig.act("POST", path, asked)
    assert refused.status_code == 503, refused.text
    for folder in snapshots(light_rig, source):
        age(folder / "snapshot.json")
    until(
        lambda: {path.name for path in snapshots(light_rig, source)} == {*made[1:4]},
        "what no branch began with is gone, and nothing else",
    )
    copy_of(light_rig, source)
    for each in (source, branch):
        light_rig.action(each, "erase")


def test_snapshots_right_after_one_another_are_taken(light_rig: Rig) -> None:
    """Valkey counts one as being made for a moment after it is there, and refuses the next."""
    source = light_rig.make()
    made = {copy_of(light_rig, source, "before-change") for _ in range(6)}
    assert len(made) == 6
    light_rig.action(source, "erase")


@pytest.mark.nightly
def test_what_no_branch_began_with_is_removed_also_after_a_start(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig()
    source = rig.make()
    abandoned, kept = copy_of(rig, source), copy_of(rig, source, "before-change")
    # A cell that was killed while it made a snapshot leaves one without a note.
    broken_off = abandoned.with_name("snap_00000000000000000000000000")
    rig.terminate()
    shutil.copytree(kept, broken_off)
    (broken_off / "snapshot.json").unlink()
    for path in (abandoned / "snapshot.json", kept / "snapshot.json", broken_off):
        age(path)
    started = time.time()
    rig.start()
    until(lambda: not broken_off.exists(), "what was broken off is gone")
    # The control plane may have been away as well, and gets the same time again.
    assert (abandoned / "snapshot.json").stat().st_mtime >= started - 1
    age(abandoned / "snapshot.json")
    until(lambda: snapshots(rig, source) == [kept], "the abandoned snapshot is gone")


def test_what_a_branch_still_waits_for_stays(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    rig.usual = VALKEY
    source = rig.make()
    copy, other = copy_of(rig, source), copy_of(rig, source)
    note = orjson.loads((copy / "snapshot.json").read_bytes())
    (copy / "snapshot.json").write_bytes(orjson.dumps({**note, "size_bytes": 10**15}))
    # Too large for the branch, until that is given more.
    branch = new_id()
    path, wanted = f"/v1/instances/{branch}", f"{source}/{copy.name}"
    refused = rig.act("PUT", path, spec(branch, **VALKEY, source_snapshot=wanted))
    assert refused.status_code == 409, refused.text
    for each in (copy, other):
        age(each / "snapshot.json")
    until(lambda: snapshots(rig, source) == [copy], "the other snapshot is gone")
    assert rig.observe(branch)["status"] == "failed"
    (copy / "snapshot.json").write_bytes(orjson.dumps(note))
    age(copy / "snapshot.json")
    assert rig.action(branch, "resume")["status"] == "running"
    until(lambda: snapshots(rig, source) == [], "the branch has begun with it")


def test_snapshots_of_an_instance_take_no_more_room_than_it_may(light_rig: Rig) -> None:
    source = light_rig.make()
    first = copy_of(light_rig, source)
    kept = [copy_of(light_rig, source, "before-change") for _ in range(2)]
    for each in (first, kept[1]):
        note = orjson.loads((each / "snapshot.json").read_bytes())
        (each / "snapshot.json").write_bytes(orjson.dumps({**note, "size_bytes": 10**15}))
    path = f"/v1/instances/{source}/actions/snapshot"
    refused = light_rig.act("POST", path, {"label": "branch"})
    assert refused.status_code == 503
    assert "try again" in refused.json()["detail"]
    last = copy_of(light_rig, source, "before-change")
    assert sorted(snapshots(light_rig, source)) == [first, last]
    age(first / "snapshot.json")
    until(lambda: not first.exists(), "the abandoned snapshot is gone")
    copy_of(light_rig, source)
    light_rig.action(source, "erase")
