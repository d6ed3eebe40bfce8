"""A Redis or Valkey for which to read its log takes more memory than its data has starts anyway."""

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import pytest

from cell.engines.driver import EngineError, RewritesLog, Room
from cell.engines.resp import files
from cell.instances import starting
from contract_tests.cell.backups.backup_calls import back_up, left_beside
from contract_tests.cell.rig import SMALL, VALKEY, Rig, until
from contract_tests.cell.rig import running as running_cell
from contract_tests.engines.conftest import SIZE, Subject, on_either_resp
from contract_tests.engines.test_resp_upkeep import client

MIB = 2**20
ENTRIES = 150_000
AT_ONCE = 5_000
DATA_BYTES, PART_BYTES = 90 * MIB, 30 * MIB
LITTLE = {**SMALL, "name": "little", "memory_bytes": 256 * MIB}
AMPLE = Room(0, 10**9, 2 * 10**9)


def rewritten(subject: Subject, **changes: Any) -> bool:
    given = {"size": SIZE, "room": AMPLE, **changes}
    assert isinstance(subject.driver, RewritesLog)
    return bool(subject.run(subject.driver.rewrite_log(subject.site, **given)))


def log_bytes(subject: Subject) -> int:
    return sum(path.outside.stat().st_size for path in files.log_files(subject.site.data))


@on_either_resp
def test_a_log_is_rewritten_once_to_what_its_data_needs(running: Subject) -> None:
    with client(running) as own:
        for number in range(1_000):
            own.set("replaced", f"{number:0100}")
        before = log_bytes(running)
        assert rewritten(running)
        until(lambda: log_bytes(running) < before / 10, "the former files are gone")
        assert not rewritten(running)
        own.set("added", "value")
    running.stop()
    running.start()
    with client(running) as own:
        assert own.mget("replaced", "added") == [f"{999:0100}", "value"]


@on_either_resp
def test_a_log_is_not_rewritten_where_that_does_not_help_or_has_no_room(running: Subject) -> None:
    with client(running) as own:
        own.set("key", "x" * 100_000)
    before = log_bytes(running)
    # The data itself takes more than that.
    assert not rewritten(running, size=replace(SIZE, memory_bytes=100_000))
    with pytest.raises(EngineError, match="no room for that; choose more storage"):
        rewritten(running, room=Room(10**9, 10**9, 10**9 + 1_000))
    assert log_bytes(running) == before
    running.kill()
    with pytest.raises(EngineError, match="did not write its log anew"):
        rewritten(running)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with running_cell(tmp_path_factory.mktemp("memory") / "cell") as made:
        if not made.get("/v1/cell").json()["confinement"]["memory"]["enforced"]:
            pytest.skip("memory is not limited here")
        yield made


def with_long_transaction(rig: Rig) -> str:
    """Paused, and little; what a group of consumers read is one transaction of its log."""
    instance_id = rig.make(**VALKEY, size=SMALL)
    with rig.keys(instance_id, rig.reveal(instance_id)["password"]) as own:
        for number in range(DATA_BYTES // PART_BYTES):
            own.setrange(f"part {number}", PART_BYTES - 1, "x")
        own.xgroup_create("stream", "group", "0", mkstream=True)
        for first in range(0, ENTRIES, AT_ONCE):
            pipeline = own.pipeline(transaction=False)
            for number in range(first, first + AT_ONCE):
                pipeline.xadd("stream", {"a": "b"}, id=f"{number + 1}-1")
            pipeline.execute()
        own.xreadgroup("group", "one", {"stream": ">"}, count=ENTRIES)
    rig.action(instance_id, "pause")
    rig.action(instance_id, "resize", {"size": LITTLE})
    return instance_id


def check(rig: Rig, instance_id: str) -> None:
    with rig.keys(instance_id, rig.reveal(instance_id)["password"]) as own:
        assert own.strlen("part 0") == PART_BYTES
        pending: Any = own.xpending("stream", "group")
        assert pending["pending"] == ENTRIES


@pytest.mark.nightly
def test_what_it_took_to_read_a_long_transaction_keeps_no_server_down(rig: Rig) -> None:
    """Nor its backups from being verified, nor what is made of them."""
    instance_id = with_long_transaction(rig)
    made = back_up(rig, instance_id)
    assert (made["verification"]["method"], made["verification"]["notice"]) == ("restored", None)
    assert left_beside(rig, instance_id) == set()
    seen = rig.action(instance_id, "resume")
    assert (seen["status"], seen["status_reason"], seen["restarts"]) == ("running", None, 0)
    check(rig, instance_id)
    log = (rig.home / "instances" / instance_id / "log" / "engine.log").read_text()
    assert log.count(starting.STARTED_ONCE_MORE) == 1
    source = f"{instance_id}/{made['backup_id']}"
    copy = rig.make(**VALKEY, size=LITTLE, source_backup=source)
    check(rig, copy)
    for each in (copy, instance_id):
        rig.action(each, "erase")


@pytest.mark.nightly
def test_a_cell_that_dies_while_a_log_is_rewritten_leaves_it_to_the_next(rig: Rig) -> None:
    instance_id = with_long_transaction(rig)
    log = rig.home / "instances" / instance_id / "log" / "engine.log"
    with contextlib.suppress(httpx.HTTPError), ThreadPoolExecutor(1) as apart:
        resuming = apart.submit(rig.action, instance_id, "resume")
        until(lambda: starting.STARTED_ONCE_MORE in log.read_text(), "its log is to be rewritten")
        rig.kill()
        resuming.result()
    rig.start()
    rig.status_is(instance_id, "running")
    check(rig, instance_id)
    rig.action(instance_id, "erase")
