"""A copy of an instance's data writes no more than its storage allows, and not for the dead."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cell.engines.driver import EngineError
from cell.instances import snapshots
from cell.instances.hosted import HostedInstance
from cell.instances.records import InstanceRecord
from cell.runtime import budget, tools
from cell.runtime.folder_sizes import size_bytes
from contract_tests.engines.conftest import Subject
from contract_tests.engines.postgres_sessions import newest

# Without blocks on the disk until it is copied.
SPARSE_BYTES = 3 * 10**9
LIMIT_BYTES = 400 * 10**6
TOO_LARGE = "larger than 0[.]40 GB"
# A folder of files; the others are that or one file, and have their turn at night. Of PostgreSQL
# a server that runs is copied by day.
MANY = pytest.mark.parametrize(
    "subject",
    [
        ("redis", None),
        *(
            pytest.param((name, None), marks=pytest.mark.nightly)
            for name in ("duckdb", "mariadb", "postgres")
        ),
    ],
    indirect=True,
)


async def _copied(subject: Subject, folder: Path) -> None:
    with budget.limit(LIMIT_BYTES, subject.process):
        await subject.driver.snapshot(subject.site, subject.process, subject.login, folder)


def _sparse(subject: Subject) -> None:
    """The largest file seems larger still."""
    files = [path for path in subject.site.data.outside.rglob("*") if path.is_file()]
    os.truncate(max(files, key=lambda path: path.stat().st_size), SPARSE_BYTES)


def _instance(subject: Subject) -> HostedInstance:
    size = replace(subject.spec.size, storage_bytes=60 * 10**6)
    spec = replace(subject.spec, size=size)
    record = InstanceRecord(
        subject.site.instance_id, subject.site.uid, spec, "running", None, time.time()
    )
    subject.site.snapshots.mkdir(exist_ok=True)
    usable = subject.process is not None
    made = HostedInstance(record, subject.site, subject.driver)
    if subject.process is not None:
        made.engine_started(subject.process)
    if usable:
        made.became_usable(0)
    return made


@pytest.mark.nightly
@MANY
def test_no_snapshot_is_larger_than_it_may_be(running: Subject, folder: Path) -> None:
    running.stop()
    _sparse(running)
    with pytest.raises((EngineError, OSError), match=TOO_LARGE):
        running.run(_copied(running, folder))
    assert size_bytes(folder) <= LIMIT_BYTES + 2**20
    instance = _instance(running)
    with pytest.raises(EngineError, match=r"the snapshot failed: .*choose more storage"):
        running.run(snapshots.make(instance, "manual", running.login))
    assert list(running.site.snapshots.iterdir()) == []


# Slow for what it adds by day.
@pytest.mark.nightly
@newest
def test_a_running_server_is_copied_up_to_its_limit(running: Subject, folder: Path) -> None:
    with (running.site.data.outside / "base" / "sparse").open("wb") as file:
        file.truncate(SPARSE_BYTES)
    with pytest.raises((EngineError, OSError), match=TOO_LARGE):
        running.run(_copied(running, folder))
    assert size_bytes(folder) <= LIMIT_BYTES + 2**20
    with pytest.raises(EngineError, match="the snapshot failed"):
        running.run(snapshots.make(_instance(running), "manual", running.login))
    assert list(running.site.snapshots.iterdir()) == []


@newest
def test_a_copy_ends_with_its_engine(running: Subject, tmp_path: Path) -> None:
    process = running.process
    running.kill()
    reading, writing = tmp_path / "reading", tmp_path / "writing"
    reading.write_bytes(b"x")
    with (
        budget.limit(LIMIT_BYTES, process),
        reading.open("rb") as source,
        writing.open("wb") as target,
        pytest.raises(budget.CopyError, match="the engine ended"),
    ):
        budget.copy(source, target)


def test_a_tool_is_ended_once_it_may_not_go_on() -> None:
    def stop() -> None:
        raise budget.exceeded(LIMIT_BYTES)

    began = time.monotonic()
    with pytest.raises(budget.CopyError):
        tools.run(["/bin/sleep", "60"], b"", 60.0, stop)
    assert time.monotonic() - began < 30
    assert tools.run(["/bin/cat"], b"said", 60.0, lambda: None) == b"said"
