"""Holds the recovery of engines with log files to any second: what was acknowledged before it."""

import time
from collections.abc import Iterator

import pytest

from contract_tests.cell.backups.backup_calls import left_beside
from contract_tests.cell.backups.recovering import Archived, at, cell, now
from contract_tests.cell.rig import Rig, until

ENGINES = ["valkey", "redis", "mariadb"]


@pytest.fixture(scope="module")
def archiving_rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with cell(tmp_path_factory.mktemp("archiving")) as made:
        yield made


@pytest.mark.timeout(400)
@pytest.mark.parametrize("engine", ENGINES)
def test_any_second_comes_back(archiving_rig: Rig, engine: str) -> None:
    """Between writes, in an idle stretch, and before another restore."""
    one = Archived.make(archiving_rig, engine=engine)
    rig, instance_id = one.rig, one.instance_id
    one.write(1)
    first = one.base()
    two = one.write(2)
    # Another file begins, in the middle of what is archived.
    one.base()
    three = one.write(3)
    idle = one.archived_until(three)["newest_at"]
    told = one.archiving
    assert (told["status"], told["gap"], len(told["ranges"])) == ("archiving", None, 1)
    one.refused(first, at(time.time() + 60), "can be restored")

    assert one.restored(first, two) == [1, 2]
    until(lambda: one.archiving["needs_base"], "the log is of other data now")
    second = one.base()
    four = one.write(4)
    rig.action(instance_id, "pause")
    # Nothing can change any more, so that the newest moment is now.
    paused = until(lambda: one.archiving["newest_at"] > four and now(), "all is archived")
    assert rig.action(instance_id, "restore", {"backup_id": second, "at": paused})
    rig.action(instance_id, "resume")
    assert one.read() == [1, 2, 4]
    # Before the first restore, where nothing was written after the moment.
    assert one.restored(first, idle) == [1, 2, 3]
    assert left_beside(rig, instance_id) == set()
    rig.action(instance_id, "erase")
    assert one.stored == []
