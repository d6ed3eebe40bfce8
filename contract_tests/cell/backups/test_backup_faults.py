"""What is killed, changed or full while backups are made and restored; and what is left then."""

import contextlib
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from cell.backups import writing
from cell.backups.manifest import BackupName, Manifest, Verification
from cell.backups.store import Store
from cell.runtime.process import mark_of, strays
from cell.sealing import Sealer, read_or_make_key
from contract_tests import small_disks
from contract_tests.by_day import one_in
from contract_tests.cell.backups.backup_calls import (
    asked,
    back_up,
    in_store,
    left_beside,
    listed,
    new_backup_id,
)
from contract_tests.cell.rig import VALKEY, Rig, new_id, until

STORE_BYTES = 3 * 2**20


def password_of(rig: Rig, instance_id: str) -> str:
    return str(rig.reveal(instance_id)["password"])


def fill(rig: Rig, instance_id: str, mebibytes: int) -> None:
    """With what cannot be compressed, so that a backup of it takes a while."""
    with rig.keys(instance_id, password_of(rig, instance_id)) as client:
        for number in range(mebibytes):
            content = Path("/dev/urandom").open("rb").read(2**20)  # noqa: SIM115
            client.set(f"filler-{number}", content)


def in_background(work: Callable[[], Any]) -> threading.Thread:
    """A request whose cell is killed."""

    def ask() -> None:
        with contextlib.suppress(httpx.HTTPError):
            work()

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


def flip(path: Path, place: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(place * (len(content) - 1))] ^= 0x10
    path.write_bytes(content)


@pytest.fixture
def subject(light_rig: Rig) -> str:
    instance_id = light_rig.make()
    light_rig.add(instance_id, password_of(light_rig, instance_id), 1)
    return instance_id


def refused(rig: Rig, instance_id: str, backup_id: str, told: str) -> None:
    """And nothing has changed."""
    before = rig.engine_pid(instance_id)
    answer = asked(rig, instance_id, "restore", {"backup_id": backup_id})
    assert answer.status_code == 409, answer.text
    assert told in answer.json()["detail"]
    assert rig.engine_pid(instance_id) == before, "its engine ran on"
    assert left_beside(rig, instance_id) == set()


@pytest.mark.parametrize("place", [0.0, 0.03, 0.3, 0.9, 1.0])
def test_a_flipped_byte_is_found_wherever_it_is(light_rig: Rig, subject: str, place: float) -> None:
    made = back_up(light_rig, subject)["backup_id"]
    for path in in_store(light_rig, subject):
        before = path.read_bytes()
        flip(path, place)
        refused(light_rig, subject, made, "damaged")
        assert len(listed(light_rig, subject)) == (path.name != "manifest")
        path.write_bytes(before)
    light_rig.action(subject, "restore", {"backup_id": made})


def test_what_is_of_another_backup_is_found(light_rig: Rig, subject: str) -> None:
    first, second = (back_up(light_rig, subject)["backup_id"] for _ in range(2))
    other = light_rig.make()
    others = back_up(light_rig, other)["backup_id"]
    root = light_rig.home / "backups"
    own = root / subject / first
    kept = {path: path.read_bytes() for path in own.iterdir()}
    for wrong in (root / subject / second, root / other / others):
        for name in ("manifest", "part-000000"):
            shutil.copyfile(wrong / name, own / name)
            refused(light_rig, subject, first, "damaged")
            own.joinpath(name).write_bytes(kept[own / name])
    (own / "part-000000").unlink()
    refused(light_rig, subject, first, "missing")
    (own / "part-000000").write_bytes(kept[own / "part-000000"][:-40])
    refused(light_rig, subject, first, "damaged")
    (own / "manifest").unlink()
    refused(light_rig, subject, first, "no backup")
    # A whole backup of somebody else's, put where the instance's are.
    shutil.copytree(root / other / others, root / subject / others)
    refused(light_rig, subject, others, "damaged")
    light_rig.action(subject, "restore", {"backup_id": second})


def test_two_backups_of_one_instance_exclude_each_other(light_rig: Rig, subject: str) -> None:
    threads = [threading.Thread(target=back_up, args=(light_rig, subject)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made = sorted(listed(light_rig, subject), key=lambda each: str(each["started_at"]))
    assert len(made) == 3
    for former, later in pairwise(made):
        assert former["completed_at"] <= later["started_at"]


def phase_is(rig: Rig, instance_id: str, work: str, phase: str) -> None:
    def seen() -> bool:
        found = rig.observe(instance_id)[work]
        return found is not None and found["phase"] == phase

    until(seen, f"the {work} is {phase}")


@pytest.mark.nightly
@pytest.mark.parametrize("phase", one_in(2, ["verifying", "copying"]))
def test_a_killed_cell_leaves_no_half_backup(make_rig: Callable[..., Rig], phase: str) -> None:
    rig = make_rig()
    rig.usual = VALKEY
    instance_id = rig.make()
    fill(rig, instance_id, 40)
    kept = back_up(rig, instance_id)
    whole = in_store(rig, instance_id)
    body = {"backup_id": new_backup_id(), "kind": "manual"}
    thread = in_background(lambda: asked(rig, instance_id, "back-up", body))
    phase_is(rig, instance_id, "backup", phase)
    rig.kill()
    thread.join()
    rig.start()
    assert listed(rig, instance_id) == [kept]
    until(lambda: in_store(rig, instance_id) == whole, "what was half made is gone")
    until(lambda: left_beside(rig, instance_id) == set(), "and so are its copies")
    rig.status_is(instance_id, "running")
    again = rig.action(instance_id, "back-up", body)
    assert listed(rig, instance_id) == [kept, again]


def test_no_route_leads_to_a_scratch_instance_and_nothing_of_it_is_left(light_rig: Rig) -> None:
    instance_id = light_rig.make()
    fill(light_rig, instance_id, 40)
    thread = threading.Thread(target=back_up, args=(light_rig, instance_id))
    thread.start()
    phase_is(light_rig, instance_id, "backup", "verifying")
    seen: set[Path] = set()
    while thread.is_alive():
        seen |= set((light_rig.home / "instances").glob("inst_verify_*"))
        assert "inst_verify_" not in str(light_rig.routes())
        assert "inst_verify_" not in light_rig.get("/v1/instances").text
        backup = light_rig.observe(instance_id)["backup"]
        assert backup is None or backup["done_bytes"] <= backup["total_bytes"]
    thread.join()
    assert len(seen) == 1
    (scratch,) = seen
    assert not scratch.exists()
    assert strays(f"{mark_of(str(light_rig.home.resolve()))}/{scratch.name}") == []
    assert light_rig.status_is(instance_id, "running")["restarts"] == 0


@pytest.mark.nightly
@pytest.mark.parametrize("phase", one_in(2, ["verifying", "copying"]))
def test_a_cell_that_is_asked_to_end_waits_for_no_backup(
    make_rig: Callable[..., Rig], phase: str
) -> None:
    rig = make_rig()
    rig.usual = VALKEY
    instance_id = rig.make()
    fill(rig, instance_id, 60)
    body = {"backup_id": new_backup_id(), "kind": "manual"}
    thread = in_background(lambda: asked(rig, instance_id, "back-up", body))
    phase_is(rig, instance_id, "backup", phase)
    assert rig.terminate() == 0
    thread.join()
    assert left_beside(rig, instance_id) == set()
    assert strays(f"{mark_of(str(rig.home.resolve()))}/") == []
    rig.start()
    # It may have been made within the time that requests are given to end.
    made = {each["backup_id"] for each in listed(rig, instance_id)}
    until(
        lambda: {path.parent.name for path in in_store(rig, instance_id)} == made,
        "what was half made is gone",
    )


@pytest.mark.nightly
@pytest.mark.parametrize("phase", one_in(2, ["starting", "downloading"]))
def test_a_killed_cell_has_the_former_data_or_all_of_the_backup(
    make_rig: Callable[..., Rig], phase: str
) -> None:
    rig = make_rig()
    rig.usual = VALKEY
    instance_id = rig.make()
    fill(rig, instance_id, 60)
    password = password_of(rig, instance_id)
    rig.add(instance_id, password, 1)
    made = back_up(rig, instance_id)["backup_id"]
    rig.add(instance_id, password, 2)
    body = {"backup_id": made}
    thread = in_background(lambda: asked(rig, instance_id, "restore", body))
    phase_is(rig, instance_id, "restore", phase)
    rig.kill()
    thread.join()
    rig.start()
    rig.status_is(instance_id, "running")
    assert rig.numbers(instance_id, password) == [1, 2]
    assert left_beside(rig, instance_id) == set()
    rig.action(instance_id, "restore", body)
    assert rig.numbers(instance_id, password) == [1]


def forged(rig: Rig, instance_id: str, folder: Path) -> str:
    """A backup that its cell takes for its own, of what it would never have written."""
    sealer = Sealer(read_or_make_key(rig.home / "seal.key"), "cell backups v1")
    with sqlite3.connect(rig.home / "cell.db") as database:
        query = "SELECT sealed FROM backup_keys WHERE instance_id = ?"
        (sealed,) = database.execute(query, [instance_id]).fetchone()
    key = bytes.fromhex(sealer.open(sealed, instance_id))
    name, store = BackupName(instance_id, new_backup_id()), Store((rig.home / "backups").as_uri())
    content = writing.write(store, key, name, folder)
    engine, version = VALKEY["engine"], VALKEY["engine_version"]
    checked = Verification("restored", 1.0, "0" * 64)
    made = Manifest(
        *(instance_id, name.backup_id, "manual", engine, version, 100, 1.0, 2.0, content),
        verification=checked,
    )
    assert store.create(name.manifest, made.seal(key, b""))
    return name.backup_id


@pytest.fixture
def unreadable(light_rig: Rig, subject: str, tmp_path: Path) -> str:
    """A backup with which no engine starts."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "appendonly.aof.manifest").write_text("file missing.rdb seq 1 type b\n")
    back_up(light_rig, subject)
    return forged(light_rig, subject, folder)


def test_an_engine_that_does_not_start_gets_its_former_data_back(
    light_rig: Rig, subject: str, unreadable: str
) -> None:
    password = password_of(light_rig, subject)
    light_rig.add(subject, password, 2)
    answer = asked(light_rig, subject, "restore", {"backup_id": unreadable})
    assert answer.status_code == 503, answer.text
    assert "former data" in answer.json()["detail"]
    assert light_rig.observe(subject)["status"] == "running"
    assert light_rig.numbers(subject, password) == [1, 2]
    assert left_beside(light_rig, subject) == set()
    light_rig.action(subject, "pause")
    answer = asked(light_rig, subject, "restore", {"backup_id": unreadable})
    assert answer.status_code == 503
    assert light_rig.observe(subject)["status"] == "paused"
    light_rig.action(subject, "resume")
    assert light_rig.numbers(subject, password) == [1, 2]


def test_a_branch_of_what_does_not_start_is_not_made(
    light_rig: Rig, subject: str, unreadable: str
) -> None:
    instance_id = new_id()
    with pytest.raises(AssertionError, match="503"):
        light_rig.put(instance_id, source_backup=f"{subject}/{unreadable}")
    assert light_rig.action(instance_id, "erase")["status"] == "erased"


@pytest.fixture
def small_store(tmp_path: Path) -> Iterator[Path]:
    with small_disks.mounted(tmp_path / "disk", STORE_BYTES) as disk:
        yield disk


@pytest.mark.nightly
def test_a_full_store_is_told_and_keeps_nothing(
    make_rig: Callable[..., Rig], small_store: Path
) -> None:
    (small_store / "backups").mkdir()
    rig = make_rig(backup_store_url=(small_store / "backups").as_uri())
    rig.usual = VALKEY
    instance_id = rig.make()
    kept = back_up(rig, instance_id)
    fill(rig, instance_id, 8)
    body = {"backup_id": new_backup_id(), "kind": "manual"}
    answer = asked(rig, instance_id, "back-up", body)
    assert answer.status_code == 503, answer.text
    assert int(answer.headers["Retry-After"]) > 0
    assert "is full" in answer.json()["detail"]
    assert str(small_store) not in answer.text
    assert listed(rig, instance_id) == [kept]
    there = {path.parent.name for path in small_store.rglob("*") if path.is_file()}
    assert there == {kept["backup_id"]}
    assert left_beside(rig, instance_id) == set()
    assert rig.observe(instance_id)["backup"] is None
    with rig.keys(instance_id, password_of(rig, instance_id)) as client:
        client.flushall()
    assert rig.action(instance_id, "back-up", body)["backup_id"] == body["backup_id"]


@pytest.mark.nightly
def test_an_erasure_ends_a_backup_that_is_being_made(light_rig: Rig) -> None:
    instance_id = light_rig.make()
    fill(light_rig, instance_id, 60)
    body = {"backup_id": new_backup_id(), "kind": "manual"}
    answers: list[httpx.Response] = []
    thread = threading.Thread(
        target=lambda: answers.append(asked(light_rig, instance_id, "back-up", body))
    )
    thread.start()
    phase_is(light_rig, instance_id, "backup", "copying")
    dropped = asked(light_rig, instance_id, "drop-backups", {"backup_ids": [body["backup_id"]]})
    assert dropped.status_code == 409
    began = time.monotonic()
    light_rig.action(instance_id, "erase")
    assert time.monotonic() - began < 30
    thread.join()
    assert answers[0].status_code in {409, 503}, answers[0].text
    assert in_store(light_rig, instance_id) == []
    assert not (light_rig.home / "instances" / instance_id).exists()
    assert not list((light_rig.home / "instances").glob("inst_verify_*"))


@pytest.mark.nightly
def test_an_erasure_is_done_once_the_store_is_back(
    make_rig: Callable[..., Rig], tmp_path: Path
) -> None:
    rig = make_rig(erased_told_s=0)
    rig.usual = VALKEY
    instance_id = rig.make()
    back_up(rig, instance_id)
    store, aside = rig.home / "backups", rig.home / "aside"
    store.rename(aside)
    store.write_text("in the way of a folder")
    assert asked(rig, instance_id, "erase", None).status_code == 503
    # It is not forgotten before nothing is left of it.
    for _ in range(3):
        assert instance_id in rig.get("/v1/instances").text
        time.sleep(0.2)
    answer = rig.get(f"/v1/instances/{instance_id}/backups")
    assert answer.status_code == 503
    assert str(rig.home) not in answer.text
    store.unlink()
    aside.rename(store)
    rig.action(instance_id, "erase")
    assert in_store(rig, instance_id) == []
    until(lambda: instance_id not in rig.get("/v1/instances").text, "it is forgotten")
