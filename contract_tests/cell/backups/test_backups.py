"""Holds promise 50 for every engine: what is backed up is verified, and can be restored."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyrage
import pytest

from cell.backups.__main__ import main as recover
from cell.backups.manifest import Manifest, StoredContent
from cell.engines.driver import Driver, Login
from cell.instances.hosted import HostedInstance
from cell.instances.records import InstanceRecord
from cell.instances.restores import refuse_what_does_not_fit
from cell.layout import Layout, Site
from cell.runtime.engine_files import EnginePath
from cell.specification import Size, Spec
from contract_tests.by_day import one_in
from contract_tests.cell.backups.backup_calls import (
    asked,
    back_up,
    in_store,
    left_beside,
    listed,
    new_backup_id,
)
from contract_tests.cell.rig import Rig, new_id, spec
from contract_tests.engines.speakers import SPEAKERS
from specserver import Conflict

REFUSED = r"(?i)password|denied|auth|credential"
# One driver runs Redis and Valkey.
# By day those whose logs are restored by day (test_recovery.py, test_log_recovery.py) are left out.
ENGINES = one_in(6, ["duckdb", "mariadb", "postgres", "redis", "valkey", "meilisearch"])


@dataclass
class Hosted:
    """An instance of a cell, and a client of its engine."""

    rig: Rig
    engine: str
    version: str
    instance_id: str

    @property
    def login(self) -> Login:
        found = self.rig.reveal(self.instance_id)
        return Login(found["username"], found["password"])

    @property
    def site(self) -> Site:
        return Layout.make(self.rig.home).site(self.instance_id, 0)

    def make_table(self) -> None:
        SPEAKERS[self.engine].make(self.site, self.login)

    def write(self, *numbers: int) -> None:
        SPEAKERS[self.engine].write(self.site, self.login, numbers)

    def read(self, login: Login | None = None) -> list[int]:
        return SPEAKERS[self.engine].read(self.site, login or self.login)

    def another(self, **changes: Any) -> "Hosted":
        given = {"engine": self.engine, "engine_version": self.version, **changes}
        return Hosted(self.rig, self.engine, self.version, self.rig.make(**given))


def hosted(rig: Rig, engine: str) -> Hosted:
    found = {each["engine"]: each["versions"] for each in rig.get("/v1/cell").json()["engines"]}
    if engine not in found:
        pytest.skip(f"{engine} is not installed here")
    version = found[engine][0]
    # A credential ends with its rotation.
    usual = {"engine": engine, "engine_version": version, "rotation_overlap_s": 0}
    return Hosted(rig, engine, version, rig.make(**usual))


@pytest.fixture
def light(shared_rig: Rig) -> Hosted:
    """Of the engine that takes least, where any would do."""
    made = hosted(shared_rig, "valkey")
    made.make_table()
    return made


# Two backups and two restores, each of which starts engines.
@pytest.mark.timeout(400)
@pytest.mark.parametrize("engine", ENGINES)
def test_what_was_committed_comes_back(shared_rig: Rig, engine: str) -> None:
    source = hosted(shared_rig, engine)
    rig, instance_id = source.rig, source.instance_id
    source.make_table()
    source.write(1, 2)
    former = source.login
    running = back_up(rig, instance_id, "scheduled")
    assert (running["engine"], running["engine_version"]) == (engine, source.version)
    assert running["kind"] == "scheduled"
    assert running["verification"]["method"] == "restored"
    assert running["started_at"] <= running["verification"]["at"] <= running["completed_at"]
    sizes = [path.stat().st_size for path in in_store(rig, instance_id)]
    assert running["stored_bytes"] == sum(sizes)
    assert running["size_bytes"] > 0
    assert left_beside(rig, instance_id) == set()

    source.write(3)
    rig.action(instance_id, "pause")
    stopped = back_up(rig, instance_id)
    assert listed(rig, instance_id) == [running, stopped]
    counts_rows = engine not in {"redis", "valkey"}
    digests = {each["verification"]["digest"] for each in (running, stopped)}
    assert len(digests) == 1 + counts_rows
    assert rig.observe(instance_id)["status"] == "paused"
    rig.action(instance_id, "resume")
    source.write(4)

    # In place, with the credential that the instance has by then.
    rig.action(instance_id, "restore", {"backup_id": running["backup_id"]})
    assert source.read() == [1, 2]
    source.write(5)
    rig.rotate(instance_id)
    rig.action(instance_id, "pause")
    restored = rig.action(instance_id, "restore", {"backup_id": stopped["backup_id"]})
    assert restored["status"] == "paused"
    assert restored["restore"] is None
    rig.action(instance_id, "resume")
    assert source.read() == [1, 2, 3]
    with pytest.raises(Exception, match=REFUSED):
        source.read(former)
    assert left_beside(rig, instance_id) == set()

    rig.action(instance_id, "erase")
    assert in_store(rig, instance_id) == []


@pytest.mark.nightly
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "engine", one_in(2, ["duckdb", "postgres", "valkey", "meilisearch", "mariadb", "redis"])
)
def test_another_instance_begins_with_a_backup(shared_rig: Rig, engine: str) -> None:
    source = hosted(shared_rig, engine)
    rig, instance_id = source.rig, source.instance_id
    source.make_table()
    source.write(1, 2)
    former = source.login
    name = f"{instance_id}/{back_up(rig, instance_id)['backup_id']}"
    rig.rotate(instance_id)
    other = source.another(source_backup=name)
    assert other.read() == [1, 2]
    for login in (former, source.login):
        with pytest.raises(Exception, match=REFUSED):
            other.read(login)
    assert left_beside(rig, other.instance_id) == set()
    other.write(9)
    rig.action(other.instance_id, "pause")
    rig.put(other.instance_id, engine=engine, engine_version=source.version, source_backup=name)
    rig.action(other.instance_id, "resume")
    assert other.read() == [1, 2, 9], "it begins with it once"


def test_the_recovery_key_opens_a_backup_of_a_lost_cell(light: Hosted, tmp_path: Path) -> None:
    light.write(5)
    made = back_up(light.rig, light.instance_id)["backup_id"]
    home, folder = light.rig.home, tmp_path / "recovered"
    words = ["--store", (home / "backups").as_uri(), "--recovery-key", str(home / "recovery.key")]
    words += [f"{light.instance_id}/{made}", str(folder)]
    assert recover(words) == 0
    assert {path.name for path in folder.iterdir()} >= {"appendonly.aof.manifest"}
    (tmp_path / "other.key").write_text(str(pyrage.x25519.Identity.generate()))
    assert recover([*words[:3], str(tmp_path / "other.key"), words[4], str(tmp_path / "no")]) == 1
    assert recover([*words[:4], f"{light.instance_id}/none", str(tmp_path / "no")]) == 1
    assert not (tmp_path / "no").exists()


def test_a_backup_is_made_once(light: Hosted) -> None:
    body = {"backup_id": new_backup_id(), "kind": "manual"}
    first = light.rig.action(light.instance_id, "back-up", body)
    light.write(1)
    again = light.rig.action(light.instance_id, "back-up", body)
    assert again == first
    assert len(listed(light.rig, light.instance_id)) == 1


def test_backups_are_removed_also_of_what_is_deleted(light: Hosted) -> None:
    rig, instance_id = light.rig, light.instance_id
    made = [back_up(rig, instance_id)["backup_id"] for _ in range(3)]
    dropped = {"backup_ids": [made[0], new_backup_id()]}
    assert rig.action(instance_id, "drop-backups", dropped) == {"dropped": dropped["backup_ids"]}
    assert [each["backup_id"] for each in listed(rig, instance_id)] == made[1:]
    rig.action(instance_id, "delete")
    assert [each["backup_id"] for each in listed(rig, instance_id)] == made[1:]
    rig.action(instance_id, "drop-backups", {"backup_ids": [made[1]]})
    rig.action(instance_id, "drop-backups", {"backup_ids": [made[1]]})
    assert [each["backup_id"] for each in listed(rig, instance_id)] == made[2:]
    # A deleted one can be backed up, too, and is brought back before it is restored.
    back_up(rig, instance_id)
    refused = asked(rig, instance_id, "restore", {"backup_id": made[2]})
    assert refused.status_code == 409
    rig.action(instance_id, "erase")
    assert in_store(rig, instance_id) == []
    refused = asked(rig, instance_id, "back-up", {"backup_id": new_backup_id(), "kind": "manual"})
    assert refused.status_code == 409
    assert "erased" in refused.json()["detail"]


def test_only_a_backup_of_the_instance_is_restored(light: Hosted) -> None:
    rig = light.rig
    other = light.another()
    made = back_up(rig, other.instance_id)["backup_id"]
    light.write(7)
    for wrong in (made, new_backup_id()):
        refused = asked(rig, light.instance_id, "restore", {"backup_id": wrong})
        assert refused.status_code == 409
        assert "no backup" in refused.json()["detail"]
    assert light.read() == [7]
    assert left_beside(rig, light.instance_id) == set()


def test_an_instance_begins_with_a_backup_that_is_there(light: Hosted) -> None:
    rig, instance_id = light.rig, new_id()
    path = f"/v1/instances/{instance_id}"
    usual = {"engine": light.engine, "engine_version": light.version}
    made = back_up(rig, light.instance_id)["backup_id"]
    unknown = f"{new_id()}/{made}"
    refused = rig.act("PUT", path, spec(instance_id, **usual, source_backup=unknown))
    assert refused.status_code == 409
    assert rig.get(path).status_code == 404
    missing = f"{light.instance_id}/{new_backup_id()}"
    refused = rig.act("PUT", path, spec(instance_id, **usual, source_backup=missing))
    assert refused.status_code == 409
    assert "no backup" in refused.json()["detail"]
    rig.action(instance_id, "erase")
    # Of another engine; nothing of it starts.
    instance_id = new_id()
    wrong = spec(instance_id, source_backup=f"{light.instance_id}/{made}")
    refused = rig.act("PUT", f"/v1/instances/{instance_id}", wrong)
    assert refused.status_code == 409
    assert "valkey" in refused.json()["detail"]
    rig.action(instance_id, "erase")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"size_bytes": 10**12}, "larger"),
        ({"engine_version": "8"}, "of valkey 8, not valkey 9.1"),
        ({"engine": "redis"}, "of redis"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], told: str) -> None:
    size = Size("s0", 1.0, 2**30, 2**30, 10)
    of = Spec("valkey", "9.1", size, "x.local", None, None, 0.0)
    site = Site("inst_1", 1, Path("/nowhere"), EnginePath(Path("/nowhere")))
    driver = cast("Driver", SimpleNamespace())
    instance = HostedInstance(InstanceRecord("inst_1", 1, of, "running", None, 0.0), site, driver)
    content = StoredContent(1, "0" * 64, ())
    made = Manifest("inst_1", "bkp_1", "manual", "valkey", "9.1", 2**30, 1.0, 2.0, content)
    refuse_what_does_not_fit(instance, made)
    with pytest.raises(Conflict, match=told):
        refuse_what_does_not_fit(instance, replace(made, **changes))


def test_names_in_the_store_tell_ids_only(light: Hosted) -> None:
    light.write(1234567)
    made = back_up(light.rig, light.instance_id)
    stored = in_store(light.rig, light.instance_id)
    root = light.rig.home / "backups"
    assert root.stat().st_mode & 0o777 == 0o700
    prefix = f"{light.instance_id}/{made['backup_id']}"
    assert {str(path.relative_to(root)) for path in stored} == {
        f"{prefix}/manifest",
        f"{prefix}/part-000000",
    }
    for path in stored:
        assert path.stat().st_mode & 0o077 == 0
        assert b"1234567" not in path.read_bytes()
        assert b"valkey" not in path.read_bytes()


@pytest.mark.nightly
def test_a_backup_too_large_to_restore_is_read_back(make_rig: Any) -> None:
    rig: Rig = make_rig(backup_verify_bytes_max=10)
    source = hosted(rig, "valkey")
    source.make_table()
    source.write(*range(100))
    made = back_up(rig, source.instance_id)
    assert made["verification"]["method"] == "checksums"
    source.write(100)
    rig.action(source.instance_id, "restore", {"backup_id": made["backup_id"]})
    assert source.read() == list(range(100))
    events = [json.loads(line) for line in rig.log_path.read_text().splitlines() if "{" in line]
    assert not [each for each in events if "inst_verify" in str(each.get("instance_id"))]


@pytest.mark.nightly
def test_a_copy_that_takes_longer_than_a_backup_may_is_ended(make_rig: Any) -> None:
    """It holds the instance's lock, and WAL."""
    rig: Rig = make_rig(backup_timeout_s=0)
    source = hosted(rig, "postgres")
    body = {"backup_id": new_backup_id(), "kind": "manual"}
    answer = asked(rig, source.instance_id, "back-up", body)
    assert answer.status_code == 503, answer.text
    assert "the snapshot failed: it took longer than 0 s" in answer.json()["detail"]
    assert in_store(rig, source.instance_id) == []
    assert left_beside(rig, source.instance_id) == set()
