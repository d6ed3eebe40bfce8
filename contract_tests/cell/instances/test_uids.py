"""Holds which uids engines get: each once, then those of erased instances, and no others."""

import asyncio
import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cell import agent
from cell.agent import Cell
from cell.database import Database
from cell.instances.records import Record, Records
from cell.instances.uids import NoUidError, Uids
from cell.runtime import owners
from cell.settings import CellSettings
from cell.specification import Spec
from contract_tests.cell.rig import VALKEY, new_id, spec, until
from specserver import Unavailable

RANGE = range(5_000, 5_003)
SPEC = Spec.parse(spec(new_id(), **VALKEY))


class Known:
    """The records of a cell with three uids. `in_use` are those that something is left of."""

    def __init__(self, home: Path) -> None:
        self.database = Database(home / "cell.db")
        self.in_use: set[int] = set()
        self.records = Records(self.database, Uids(self.database, RANGE, lambda: self.in_use))

    def make(self) -> Record:
        return self.records.add(new_id(), SPEC)


@pytest.fixture
def known(tmp_path: Path) -> Iterator[Known]:
    made = Known(tmp_path)
    yield made
    made.database.close()


def test_a_uid_is_given_again_only_once_all_were_and_the_one_freed_first(known: Known) -> None:
    first, second = known.make(), known.make()
    known.records.forget(second)
    known.records.forget(first)
    third = known.make()
    assert [each.uid for each in (first, second, third)] == list(RANGE)
    again = [known.make().uid, known.make().uid]
    assert again == [second.uid, first.uid]
    with pytest.raises(NoUidError, match="it has 3"):
        known.make()
    known.records.forget(third)
    assert known.make().uid == third.uid


def test_a_uid_that_something_is_left_of_is_not_given_again(known: Known) -> None:
    for each in [known.make() for _ in RANGE]:
        known.records.forget(each)
    known.in_use = {RANGE[0], RANGE[1]}
    assert known.make().uid == RANGE[2]
    with pytest.raises(NoUidError):
        known.make()
    known.in_use.clear()
    assert known.make().uid == RANGE[0]


def test_what_a_former_version_gave_and_forgot_is_given_again_first(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "cell.db") as former:
        former.execute(
            "CREATE TABLE erased"
            " (instance_id TEXT PRIMARY KEY, uid INTEGER NOT NULL UNIQUE, at REAL NOT NULL)"
        )
        # It gave uids beyond its range, and forgot all but the last after a month.
        rows = [("inst_1", RANGE[1], 1.0), ("inst_2", RANGE[2], 2.0), ("inst_3", RANGE.stop, 3.0)]
        former.executemany("INSERT INTO erased VALUES (?, ?, ?)", rows)
    former.close()
    known = Known(tmp_path)
    assert all(known.records.was_erased(name) for name, _, _ in rows)
    assert [known.make().uid for _ in RANGE] == list(RANGE)
    with pytest.raises(NoUidError):
        known.make()


def test_what_is_left_of_a_uid_is_seen() -> None:
    assert owners.in_use(range(os.geteuid(), os.geteuid() + 1)) == {os.geteuid()}
    if os.geteuid() != 0:
        return
    # Beyond those of all cells, and of tests beside this one.
    uid = 2_000_000_000 + os.getpid()
    uids = range(uid, uid + 1)
    assert owners.in_use(uids) == set()
    left = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        os.chown(left, uid, uid)
        assert owners.in_use(uids) == {uid}
    finally:
        shutil.rmtree(left)
    assert owners.in_use(uids) == set()
    with subprocess.Popen(["/bin/sleep", "60"], user=uid, cwd="/") as process:
        try:
            assert owners.in_use(uids) == {uid}
        finally:
            process.kill()
    until(lambda: not owners.in_use(uids), "nothing is left of the uid")


def test_an_instance_for_which_there_is_no_uid_is_refused_and_made_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "UIDS_PER_CELL", 1)
    key = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    settings = CellSettings(home=tmp_path / "cell", cell_id="cell_1", control_public_key=key)

    async def order() -> None:
        cell = Cell(settings)
        await cell.open()
        try:
            first = await cell.lifecycle.put(new_id(), SPEC)
            other = new_id()
            wanted = replace(SPEC, host=f"duckdb-{other[5:].lower()}.local.localhost")
            with pytest.raises(Unavailable, match="no user ID left for another"):
                await cell.lifecycle.put(other, wanted)
            assert set(cell.supervisor.instances) == {first.instance_id}
            await cell.lifecycle.erase(first.instance_id)
            cell.records.forget(first.record)
            del cell.supervisor.instances[first.instance_id]
            made = await cell.lifecycle.put(other, wanted)
            assert (made.status, made.record.uid) == ("running", first.record.uid)
        finally:
            await cell.close()

    asyncio.run(order())
