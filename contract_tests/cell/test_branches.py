"""Holds that an instance can begin with the data of another, and with nothing else of it."""

import os
from pathlib import Path

from cell.snapshots import ABANDONED_AFTER_S
from contract_tests.cell.rig import Rig, new_id, spec


def snapshots(rig: Rig, instance_id: str) -> list[Path]:
    return list((rig.home / "instances" / instance_id / "snapshots").iterdir())


def test_a_branch_has_the_data_and_neither_the_credential_nor_the_future(shared_rig: Rig) -> None:
    source = shared_rig.make()
    password = shared_rig.reveal(source)["password"]
    shared_rig.query(source, password, "CREATE TABLE t AS SELECT 1 AS n")
    copy = shared_rig.action(source, "snapshot", {"label": "branch"})["snapshot_id"]
    shared_rig.query(source, password, "INSERT INTO t VALUES (2)")

    branch = shared_rig.make(source_snapshot=f"{source}/{copy}")
    own = shared_rig.reveal(branch)["password"]
    assert shared_rig.query(branch, own, "FROM t").json()["rows"] == [[1]]
    assert shared_rig.query(branch, password, "FROM t").status_code == 401
    assert snapshots(shared_rig, source) == []
    shared_rig.query(branch, own, "INSERT INTO t VALUES (3)")
    assert shared_rig.query(source, password, "FROM t").json()["rows"] == [[1], [2]]

    # It begins once: what is declared again later, with or without the source, changes nothing.
    for again in (f"{source}/{copy}", None):
        shared_rig.action(branch, "pause")
        shared_rig.put(branch, source_snapshot=again)
        shared_rig.action(branch, "resume")
        assert shared_rig.query(branch, own, "FROM t").json()["rows"] == [[1], [3]]
    shared_rig.action(source, "erase")
    assert shared_rig.query(branch, own, "FROM t").json()["rows"] == [[1], [3]]
    shared_rig.action(branch, "erase")


def test_a_snapshot_that_is_not_there_makes_no_instance(shared_rig: Rig) -> None:
    instance_id = new_id()
    missing = f"{new_id()}/snap_{new_id().removeprefix('inst_')}"
    path = f"/v1/instances/{instance_id}"
    refused = shared_rig.act("PUT", path, spec(instance_id, source_snapshot=missing))
    assert refused.status_code == 409
    assert missing in refused.json()["detail"]
    assert shared_rig.get(path).status_code == 404


def test_the_newest_snapshots_of_each_label_are_kept(shared_rig: Rig) -> None:
    source = shared_rig.make()
    labels = ["before-change"] * 4 + ["branch"] * 3
    made = [
        shared_rig.action(source, "snapshot", {"label": label})["snapshot_id"] for label in labels
    ]
    assert sorted(path.name for path in snapshots(shared_rig, source)) == made[1:]
    # What was taken before a change can be begun with, and stays.
    branch = shared_rig.make(source_snapshot=f"{source}/{made[1]}")
    assert made[1] in {path.name for path in snapshots(shared_rig, source)}
    # Those that nobody begins with do not pile up: each may be as large as the instance.
    path, asked = f"/v1/instances/{source}/actions/snapshot", {"label": "branch"}
    refused = shared_rig.act("POST", path, asked)
    assert refused.status_code == 503, refused.text
    for folder in snapshots(shared_rig, source):
        note = folder / "snapshot.json"
        os.utime(note, (0, note.stat().st_mtime - ABANDONED_AFTER_S))
    last = shared_rig.action(source, "snapshot", {"label": "branch"})["snapshot_id"]
    left = [path.name for path in snapshots(shared_rig, source)]
    assert sorted(left) == [*made[1:4], *made[5:], last]
    for each in (source, branch):
        shared_rig.action(each, "erase")
