"""A cell's home is made of a former one's state, without the data of any instance."""

import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyrage
import pytest
import redis

from cell.agent import cell_name, uids_of
from cell.backups import writing
from cell.backups.manifest import BackupName, Manifest
from cell.backups.store import Store
from cell.database import Database
from cell.instances.lost_data import LostData
from cell.layout import Layout
from contract_tests.cell.backups.backup_calls import asked, back_up, new_backup_id
from contract_tests.cell.backups.recovering import FAST, Archived
from contract_tests.cell.rig import VALKEY, Rig, until

MakeRig = Callable[..., Rig]
REASON = "the data was lost with its machine, and no backup of it has been restored yet"
KEPT = ("cell.db", "seal.key", "recovery.key", "recovery.pub")


def store_of(folder: Path) -> str:
    (folder / "store").mkdir(exist_ok=True)
    return (folder / "store").as_uri()


def recovered(make_rig: MakeRig, former: Rig, *kept: str, **settings: Any) -> Rig:
    """A new cell, in a home that has these files of the former one, which is gone."""
    former.terminate()
    made = make_rig(backup_store_url=former.settings["backup_store_url"], **settings)
    made.terminate()
    for name in ("cell.db", "cell.db-wal", "cell.db-shm"):
        (made.home / name).unlink(missing_ok=True)
    for name in kept:
        shutil.copyfile(former.home / name, made.home / name)
    if "cell.db" in kept:
        shutil.copytree(former.home / "pki", made.home / "pki", dirs_exist_ok=True)
        database = Database(made.home / "cell.db")
        ids = database.rows("SELECT instance_id FROM instances")
        LostData(database).note(instance_id for (instance_id,) in ids)
        database.close()
    made.key = former.key
    made.start()
    return made


@pytest.fixture
def former(make_rig: MakeRig, tmp_path: Path) -> Rig:
    made = make_rig(backup_store_url=store_of(tmp_path))
    made.usual = VALKEY
    return made


def lost(former: Rig) -> tuple[str, str, dict[str, Any]]:
    """An instance with a backup, of which the former cell has all: both ids, and the credential."""
    instance_id = former.make()
    login = former.reveal(instance_id)
    former.add(instance_id, login["password"], 1)
    backup_id = back_up(former, instance_id)["backup_id"]
    former.add(instance_id, login["password"], 2)
    return instance_id, backup_id, login


def taken_over(rig: Rig, instance_id: str, *known: str) -> Any:
    return asked(rig, instance_id, "take-over-backups", {"known_sha256": list(known)})


def test_an_instance_begins_with_its_backup_and_with_a_new_credential(
    make_rig: MakeRig, former: Rig
) -> None:
    instance_id, backup_id, login = lost(former)
    early = former.token(instance_id, "reveal", iat=time.time())
    cell = recovered(make_rig, former, *KEPT)
    seen = cell.observe(instance_id)
    assert (seen["status"], seen["status_reason"], seen["data_lost"]) == ("failed", REASON, True)
    (found,) = taken_over(cell, instance_id).json()["items"]
    assert found["backup_id"] == backup_id
    source = f"{instance_id}/{backup_id}"
    begun = cell.put(instance_id, **VALKEY, source_backup=source)
    assert (begun["status"], begun["data_lost"]) == ("running", False)
    with cell.client() as http:
        # No URL shows a credential that was made after it.
        assert http.get(f"/v1/reveal/{early}").json()["code"] == "rotated"
    assert begun["credentials"] == {"generation": 2, "overlap_until": None}
    new = cell.reveal(instance_id)
    assert cell.numbers(instance_id, new["password"]) == [1]
    with pytest.raises(redis.exceptions.AuthenticationError):
        cell.numbers(instance_id, login["password"])
    # Its user is one of this home's, and what a later cell finds is no loss any more.
    with closing(sqlite3.connect(cell.home / "cell.db")) as file:
        (uid,) = file.execute("SELECT uid FROM instances").fetchone()
    assert uid in uids_of(cell_name(Layout.make(cell.home)))
    cell.add(instance_id, new["password"], 3)
    cell.terminate()
    cell.start()
    cell.status_is(instance_id, "running")
    assert cell.numbers(instance_id, new["password"]) == [1, 3]


@pytest.mark.nightly
def test_one_that_was_deleted_begins_with_its_backup_when_it_is_undeleted(
    make_rig: MakeRig, former: Rig
) -> None:
    instance_id, backup_id, _ = lost(former)
    former.action(instance_id, "delete")
    former.status_is(instance_id, "stopped")
    cell = recovered(make_rig, former, *KEPT)
    assert cell.observe(instance_id)["data_lost"]
    taken_over(cell, instance_id)
    cell.put(instance_id, **VALKEY, source_backup=f"{instance_id}/{backup_id}")
    cell.action(instance_id, "resume")
    cell.status_is(instance_id, "running")
    assert not cell.observe(instance_id)["data_lost"]
    assert cell.numbers(instance_id, cell.reveal(instance_id)["password"]) == [1]


@pytest.mark.nightly
def test_until_then_nothing_of_it_is_started_copied_or_replaced(
    make_rig: MakeRig, former: Rig
) -> None:
    instance_id, backup_id, _ = lost(former)
    cell = recovered(make_rig, former, *KEPT)
    refused = (
        ("pause", None, 200),
        ("resume", None, 409),
        ("back-up", {"backup_id": new_backup_id(), "kind": "manual"}, 409),
        ("restore", {"backup_id": backup_id}, 409),
        ("snapshot", {"label": "x"}, 503),
    )
    for verb, body, status in refused:
        answer = asked(cell, instance_id, verb, body)
        assert answer.status_code == status, (verb, answer.text)
        assert status == 200 or REASON in answer.json()["detail"]
    # One that is there already is answered all the same.
    body = {"backup_id": backup_id, "kind": "manual"}
    assert asked(cell, instance_id, "back-up", body).status_code == 200
    assert cell.wake(instance_id).json()["detail"] == REASON
    assert cell.observe(instance_id)["status"] == "failed"
    assert asked(cell, instance_id, "erase", None).status_code == 200
    assert not (cell.home / "instances" / instance_id).exists()
    assert not list(Path(cell.settings["backup_store_url"][7:]).rglob("manifest"))


@pytest.mark.nightly
def test_a_cell_that_knew_nothing_takes_the_key_by_the_recovery_key(
    make_rig: MakeRig, former: Rig
) -> None:
    instance_id, backup_id, _ = lost(former)
    cell = recovered(make_rig, former)
    (cell.home / "recovery.key").unlink(missing_ok=True)
    missing = taken_over(cell, instance_id)
    assert missing.status_code == 503
    assert "the operator must put recovery.key into the cell's home" in missing.json()["detail"]
    shutil.copyfile(former.home / "recovery.key", cell.home / "recovery.key")
    (found,) = taken_over(cell, instance_id).json()["items"]
    source = f"{instance_id}/{backup_id}"
    assert cell.put(instance_id, **VALKEY, source_backup=source)["status"] == "running"
    assert cell.numbers(instance_id, cell.reveal(instance_id)["password"]) == [1]
    assert found["backup_id"] == backup_id
    # It has the data now.
    again = taken_over(cell, instance_id)
    assert (again.status_code, again.json()["code"]) == (409, "conflict")


@pytest.mark.nightly
def test_what_another_put_into_the_store_is_not_believed_where_a_backup_is_known(
    make_rig: MakeRig, former: Rig, tmp_path: Path
) -> None:
    """Whoever writes to the store and knows the public half can make what the key opens."""
    instance_id = former.make()
    known = back_up(former, instance_id)
    recipient = pyrage.x25519.Recipient.from_str((former.home / "recovery.pub").read_text().strip())
    cell = recovered(make_rig, former, "recovery.key")
    (tmp_path / "forged").mkdir()
    (tmp_path / "forged" / "appendonly.aof.manifest").write_text("theirs")
    key, name = b"k" * 32, BackupName(instance_id, new_backup_id())
    store = Store(former.settings["backup_store_url"])
    content = writing.write(store, key, name, tmp_path / "forged")
    theirs = Manifest(instance_id, name.backup_id, "manual", "valkey", "9.1", 1, 1.0, 2.0, content)
    store.put(name.manifest, theirs.seal(key, pyrage.encrypt(key, [recipient])))
    found = taken_over(cell, instance_id, known["sha256"]).json()["items"]
    assert [each["backup_id"] for each in found] == [known["backup_id"]]
    refused = taken_over(cell, "inst_01JD0000000000000000000000", "0" * 64)
    assert refused.json() == {"items": []}


@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_moments_before_the_loss_can_be_restored_and_another_chain_begins(
    make_rig: MakeRig, tmp_path: Path
) -> None:
    one = Archived.make(make_rig(backup_store_url=store_of(tmp_path), **FAST))
    instance_id, given = one.instance_id, {"engine": "postgres", "engine_version": one.version}
    one.write(1)
    base = one.base()
    moment = one.write(2)
    one.archived_until(moment)
    one.rig = recovered(make_rig, one.rig, *KEPT, **FAST)
    told = until(lambda: one.archiving.get("gap") and one.archiving, "it is told")
    assert told["gap"]["reason"] == "the data was lost with its machine"
    (found,) = taken_over(one.rig, instance_id).json()["items"]
    assert found["wal_chain_id"] is not None
    source = f"{instance_id}/{base}"
    one.rig.put(instance_id, **given, continuous_archiving=True, source_backup=source)
    assert one.read() == [1]
    until(lambda: one.archiving["needs_base"], "its WAL is of another chain")
    assert one.archiving["ranges"] == told["ranges"], "no moment after the loss"
    assert one.restored(base, moment) == [1, 2]
    one.rig.action(instance_id, "erase")
    assert one.stored == []
