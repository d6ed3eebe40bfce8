"""What is killed: the cell, engines, both; and what is found afterwards."""

import contextlib
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import orjson
import pytest

from cell.engines.resp.configuration import LOG_DIRECTORY
from cell.engines.resp.files import MANIFEST
from cell.instances.reasons import for_owner
from cell.runtime.process import MARK, mark_of, strays
from contract_tests.cell.rig import VALKEY, Rig, new_id, spec, until


def gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


def none_is_left(rig: Rig) -> None:
    """What was killed ends when the kernel comes to it, which may be after the cell has ended."""
    until(
        lambda: not strays(f"{mark_of(str(rig.home.resolve()))}/"),
        "no process of the cell's is left",
    )


def test_engines_outlive_a_killed_cell_and_are_adopted(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    rig.usual = VALKEY
    instance_id, sleeper = rig.make(), rig.make()
    rig.action(sleeper, "pause")
    password = rig.reveal(instance_id)["password"]
    rig.add(instance_id, password, 1)
    pid = rig.engine_pid(instance_id)
    rig.kill()
    assert rig.numbers(instance_id, password) == [1]
    rig.start()
    seen = rig.observe(instance_id)
    assert (seen["status"], seen["restarts"]) == ("running", 0)
    assert rig.engine_pid(instance_id) == pid
    assert rig.observe(sleeper)["status"] == "paused"
    assert rig.numbers(instance_id, password) == [1]
    # The adopted engine is this cell's now: it is watched, and it is stopped.
    os.kill(pid, signal.SIGKILL)
    until(lambda: rig.observe(instance_id)["restarts"] == 1, "it is restarted")
    rig.status_is(instance_id, "running")
    assert rig.numbers(instance_id, password) == [1]
    second = rig.engine_pid(instance_id)
    assert rig.terminate() == 0
    assert gone(second)
    none_is_left(rig)
    # The next one starts again what it has stopped.
    rig.start()
    rig.status_is(instance_id, "running")
    assert rig.numbers(instance_id, password) == [1]


# By day a cell that is killed while it makes an instance.
@pytest.mark.nightly
def test_an_engine_that_does_not_answer_keeps_a_cell_from_no_other(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig()
    rig.usual = VALKEY
    slow, other = rig.make(), rig.make()
    password = rig.reveal(other)["password"]
    route = rig.route(slow)
    assert route is not None
    path = Path(route["socket"])
    owner = path.stat().st_uid
    rig.kill()
    path.unlink()
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        os.chown(path, owner, owner)
        silent.listen()
        rig.start()
        assert rig.observe(other)["status"] == "running"
        assert rig.reveal(other)["password"] == password
        assert rig.observe(slow)["status"] != "running", "the cell has not waited for it"


@pytest.mark.nightly
def test_engines_are_left_running_where_that_is_wanted(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(stop_engines=False)
    instance_id = rig.make()
    password = rig.reveal(instance_id)["password"]
    pid = rig.engine_pid(instance_id)
    assert rig.terminate() == 0
    assert rig.query(instance_id, password, "SELECT 1").status_code == 200
    rig.start()
    assert rig.engine_pid(instance_id) == pid


def test_a_crash_loses_no_committed_row(light_rig: Rig) -> None:
    instance_id = light_rig.make()
    password = light_rig.reveal(instance_id)["password"]
    for number in range(3):
        light_rig.add(instance_id, password, number)
    os.kill(light_rig.engine_pid(instance_id), signal.SIGKILL)
    until(lambda: light_rig.observe(instance_id)["restarts"] == 1, "it is restarted")
    light_rig.status_is(instance_id, "running")
    assert light_rig.numbers(instance_id, password) == [0, 1, 2]


def spoil(rig: Rig, instance_id: str) -> Callable[[], object]:
    """No engine starts with what it has now. The answer heals it.

    In one step: an engine that found nothing would begin anew.
    """
    data = rig.home / "instances" / instance_id / "data"
    manifest = data / LOG_DIRECTORY / MANIFEST
    kept = manifest.rename(data / "kept")
    manifest.write_bytes(b"this is no database at all, " * 200)
    return lambda: kept.replace(manifest)


def test_an_engine_that_ended_says_so_before_it_is_back(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(failures_max=50, restart_max_s=0.5)
    rig.usual = VALKEY
    instance_id = rig.make()
    os.kill(rig.engine_pid(instance_id), signal.SIGSTOP)
    heal = spoil(rig, instance_id)
    os.kill(rig.engine_pid(instance_id), signal.SIGKILL)
    seen = until(
        lambda: (told := rig.observe(instance_id))["status"] == "provisioning" and told,
        "it is told to be away",
    )
    assert seen["status_reason"].startswith("being started again, ")
    heal()
    seen = rig.status_is(instance_id, "running")
    assert seen["status_reason"].startswith("started again at ")


@pytest.mark.nightly
def test_an_engine_that_does_not_get_ready_says_so_within_ten_seconds(rig: Rig) -> None:
    instance_id = rig.make()
    rig.action(instance_id, "pause")
    process = rig.home / "instances" / instance_id / "process.json"
    resuming = threading.Thread(target=rig.action, args=(instance_id, "resume"))
    resuming.start()
    pid = until(lambda: process.exists() and rig.engine_pid(instance_id), "it is started")
    os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    seen = until(
        lambda: (told := rig.observe(instance_id))["status_reason"] and told, "it says why"
    )
    assert time.monotonic() - began < 10
    assert seen["status"] == "provisioning"
    assert "taking a long time to start" in seen["status_reason"]
    os.kill(pid, signal.SIGCONT)
    resuming.join()
    assert rig.status_is(instance_id, "running")["status_reason"] is None


def test_what_an_owner_is_told_names_no_place_of_the_host() -> None:
    said = "initdb failed: cannot read /srv/cell/x.conf: Permission denied\n  at 10.0.0.7, 0x7ffe12"
    assert for_owner(said) == "initdb failed: cannot read …: Permission denied at …, …"
    traced = (
        'it died: Traceback (most recent call last):\nTraceback (most\n  File "/a/b"\nOSError: no'
    )
    assert for_owner(traced) == "it died: Traceback (most recent call last): OSError: no"
    assert for_owner("use TLS 1.2 and/or 50% of s0") == "use TLS 1.2 and/or 50% of s0"
    assert len(for_owner("word " * 1000)) <= 400


def test_what_fails_says_no_place_of_the_host(light_rig: Rig) -> None:
    """Neither in the answer to who asked for it, nor in the status."""
    instance_id = light_rig.make()
    snapshots = light_rig.home / "instances" / instance_id / "snapshots"
    shutil.rmtree(snapshots, ignore_errors=True)
    snapshots.write_text("in the way of a folder")
    path = f"/v1/instances/{instance_id}/actions/snapshot"
    answer = light_rig.act("POST", path, {"label": "x"})
    assert answer.status_code == 503
    assert "the snapshot failed" in answer.json()["detail"]
    assert str(light_rig.home) not in answer.text
    assert "/" not in answer.json()["detail"]


def test_an_engine_that_always_dies_is_failed_with_a_reason_and_can_recover(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig(failures_max=2, restart_max_s=0.2)
    rig.usual = VALKEY
    instance_id = rig.make()
    password = rig.reveal(instance_id)["password"]
    rig.add(instance_id, password, 1)
    rig.action(instance_id, "pause")
    heal = spoil(rig, instance_id)
    refused = rig.act("POST", f"/v1/instances/{instance_id}/actions/resume")
    assert refused.status_code == 503
    seen = rig.observe(instance_id)
    assert seen["status"] == "failed"
    assert "the engine did not start" in seen["status_reason"]
    route = rig.route(instance_id)
    assert route is None or route["state"] == "failed"
    heal()
    assert rig.action(instance_id, "resume")["status"] == "running"
    assert rig.numbers(instance_id, password) == [1]

    os.kill(rig.engine_pid(instance_id), signal.SIGSTOP)
    heal = spoil(rig, instance_id)
    os.kill(rig.engine_pid(instance_id), signal.SIGKILL)
    seen = rig.status_is(instance_id, "failed")
    assert "times in a row" in seen["status_reason"]
    heal()
    seen = rig.status_is(instance_id, "running")
    assert seen["status_reason"].startswith("started again at ")


@pytest.mark.nightly
def test_a_cell_killed_while_it_makes_an_instance_makes_one(rig: Rig) -> None:
    instance_id = new_id()
    path = f"/v1/instances/{instance_id}"
    asking = threading.Thread(target=put_in_vain, args=(rig, instance_id))
    asking.start()
    process = rig.home / "instances" / instance_id / "process.json"
    until(process.exists, "the engine is being started")
    rig.kill()
    asking.join()
    rig.start()
    answer = rig.act("PUT", path, spec(instance_id), key=f"{instance_id}:put", lease=2)
    assert answer.json()["status"] == "running"
    # One engine: what the killed cell had begun was adopted or ended.
    pid = rig.engine_pid(instance_id)
    until(lambda: engines(rig, instance_id) == [pid], "there is one engine")


def engines(rig: Rig, instance_id: str) -> list[int]:
    """The processes of the instance, without the sandboxes around them."""
    found = []
    for pid in strays(f"{mark_of(str(rig.home.resolve()))}/{instance_id}\0"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            # Of one that ends nothing is left but its place among the processes.
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            found += [pid] if command and b"bwrap" not in command else []
    return found


def test_a_second_cell_in_the_same_home_is_refused(light_rig: Rig) -> None:
    instance_id = light_rig.make()
    pid = light_rig.engine_pid(instance_id)
    second = Rig(light_rig.home, key=light_rig.key)
    second.launch(home_wait_s=0.1)
    assert second.process is not None
    assert second.process.wait(60) == 1
    assert "another cell is running in" in light_rig.log_path.read_text()
    assert light_rig.observe(instance_id)["restarts"] == 0
    assert light_rig.engine_pid(instance_id) == pid
    assert light_rig.wake(instance_id).status_code == 200, (
        "the gateway's token is still the first cell's"
    )


# By day a cell that is killed while it makes an instance.
@pytest.mark.nightly
def test_a_credential_made_just_before_a_death_is_handed_out_by_the_next_cell(rig: Rig) -> None:
    instance_id = rig.make(rotation_overlap_s=1)
    former = rig.reveal(instance_id)["password"]
    password = rig.rotate(instance_id)["password"]
    pid = rig.engine_pid(instance_id)
    rig.kill()
    users = rig.home / "instances" / instance_id / "conf" / "users.json"
    digest = hashlib.sha256(former.encode()).hexdigest()
    users.write_bytes(orjson.dumps({"app": [digest]}))
    until(lambda: time.time() > users.stat().st_mtime + 1, "the overlap is over")
    rig.start()
    assert rig.query(instance_id, password, "SELECT 1").status_code == 200
    assert rig.query(instance_id, former, "SELECT 1").status_code == 401
    assert rig.engine_pid(instance_id) == pid, "it was adopted and not started anew"


# By day a cell that is killed while it makes an instance.
@pytest.mark.nightly
def test_what_no_instance_knows_of_ends_when_a_cell_starts_and_when_it_stops(rig: Rig) -> None:
    """It would hold a database's lock for ever, or go on after its instance was erased (34)."""
    instance_id = rig.make(**VALKEY)
    unnoted = rig.engine_pid(instance_id)
    rig.kill()
    # As where the cell dies between the start of an engine and the note of its pid.
    (rig.home / "instances" / instance_id / "process.json").unlink()
    with stray(rig) as forgotten:
        rig.start()
        assert forgotten.wait(60) == -signal.SIGKILL
        until(lambda: gone(unnoted), "the engine that nobody noted has ended")
        rig.status_is(instance_id, "running")
    with stray(rig) as late:
        assert rig.terminate() == 0
        assert late.wait(60) == -signal.SIGKILL
    none_is_left(rig)


@contextlib.contextmanager
def stray(rig: Rig) -> Iterator[subprocess.Popen[bytes]]:
    """A process started for an instance that is no more."""
    mark = f"{mark_of(str(rig.home.resolve()))}/{new_id()}"
    with subprocess.Popen(["sleep", "600"], env={**os.environ, MARK: mark}) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.nightly
def test_a_cell_stopped_while_an_engine_starts_leaves_none(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(stop_timeout_s=0.5)
    instance_id = new_id()
    asking = threading.Thread(target=put_in_vain, args=(rig, instance_id))
    asking.start()
    process = rig.home / "instances" / instance_id / "process.json"
    until(process.exists, "the engine is being started")
    # Held still, it takes no login: the start is still under way when the cell has to end.
    os.kill(rig.engine_pid(instance_id), signal.SIGSTOP)
    assert rig.terminate() == 0
    asking.join()
    none_is_left(rig)


def put_in_vain(rig: Rig, instance_id: str) -> None:
    with contextlib.suppress(httpx.HTTPError):
        path = f"/v1/instances/{instance_id}"
        rig.act("PUT", path, spec(instance_id), key=f"{instance_id}:put")


# By day a cell that is killed while it makes an instance.
@pytest.mark.nightly
def test_a_stopped_cell_leaves_no_sockets_outside_its_home(tmp_path: Path) -> None:
    rig = Rig(tmp_path / ("long" * 20) / "cell")
    try:
        rig.start()
        sockets = Path(rig.socket).parent
        assert not sockets.is_relative_to(rig.home)
        rig.make(**VALKEY)
        assert rig.terminate() == 0
        assert not sockets.exists()
    finally:
        rig.destroy()


@pytest.mark.nightly
def test_a_credential_that_an_engine_did_not_take_is_told_again(shared_rig: Rig) -> None:
    """What is revealed after a rotation that failed works as soon as it can."""
    instance_id = shared_rig.make()
    former = shared_rig.reveal(instance_id)["password"]
    users = shared_rig.home / "instances" / instance_id / "conf" / "users.json"
    users.unlink()
    users.mkdir()
    with shared_rig.client() as http:
        answer = http.post(f"/v1/rotate/{shared_rig.token(instance_id, 'rotate')}")
    assert answer.status_code == 503, answer.text
    users.rmdir()
    newest = shared_rig.reveal(instance_id)["password"]
    assert newest != former

    def works() -> bool:
        return shared_rig.query(instance_id, newest, "SELECT 1").status_code == 200

    until(works, "it is told")
