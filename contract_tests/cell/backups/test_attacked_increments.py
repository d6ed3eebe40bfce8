"""Backups that build on each other, in a store that others write to: nothing wrong is restored."""

import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cell.backups.manifest import BackupName, Manifest, Parent
from cell.backups.sealed_objects import clear_text
from cell.sealing import Sealer, read_or_make_key
from contract_tests.cell.backups.backup_calls import asked, back_up, left_beside, listed
from contract_tests.cell.backups.increasing import UNVERIFIED, ids, series
from contract_tests.cell.backups.test_backup_faults import flip
from contract_tests.cell.backups.test_backups import Hosted, hosted
from contract_tests.cell.rig import Rig

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]


class Attacked:
    """Three backups that build on each other, in a store that somebody else writes to."""

    def __init__(self, source: Hosted) -> None:
        self.source, self.rig, self.instance_id = source, source.rig, source.instance_id
        self.made = ids(series(source, 3))
        self.store = source.rig.home / "backups" / source.instance_id
        self._kept = shutil.copytree(self.store, source.rig.home.parent / "kept")

    def refused(self, backup_id: str, *told: str) -> None:
        """With its reason, and nothing was replaced; afterwards the store is as it was."""
        before = self.rig.engine_pid(self.instance_id)
        answer = asked(self.rig, self.instance_id, "restore", {"backup_id": backup_id})
        assert answer.status_code == 409, answer.text
        for each in told:
            assert each in answer.json()["detail"], answer.text
        assert self.rig.engine_pid(self.instance_id) == before, "its engine ran on"
        assert left_beside(self.rig, self.instance_id) == set()
        shutil.rmtree(self.store)
        shutil.copytree(self._kept, self.store)

    def sealed(self, backup_id: str, **changes: Any) -> None:
        resealed(self.rig, self.instance_id, backup_id, **changes)


@pytest.fixture
def attacked(make_rig: Callable[..., Rig]) -> Attacked:
    source = hosted(make_rig(**UNVERIFIED), "postgres")
    source.make_table()
    return Attacked(source)


def test_what_a_backup_builds_on_that_was_changed_is_found_first(attacked: Attacked) -> None:
    store, (full, first, second) = attacked.store, attacked.made
    (store / full / "manifest").unlink()
    there = listed(attacked.rig, attacked.instance_id)
    assert there == [], "nothing of it can be restored"
    attacked.refused(second, full, "is missing")
    (store / full / "part-000000").unlink()
    attacked.refused(second, full, "part 0 of the backup is missing")
    for each in (full, first):
        flip(store / each / "part-000000", 0.5)
        attacked.refused(second, each, "not the one that was written")
        flip(store / each / "manifest", 0.9)
        attacked.refused(second, each, "damaged")
    # Another in its place, as it lies there.
    shutil.rmtree(store / full)
    shutil.copytree(store / first, store / full)
    attacked.refused(first, full, "damaged")
    assert attacked.source.read() == [1, 2, 3]


def test_no_other_is_taken_for_what_a_backup_builds_on(attacked: Attacked) -> None:
    """Whoever has the key can name and seal anything."""
    store, (full, first, second) = attacked.store, attacked.made
    attacked.sealed(full, kind="manual")
    attacked.refused(first, full, "it is another one")
    # Around in a circle, on itself, and on what is of another instance.
    for parent in (second, first):
        attacked.sealed(first, parent=Parent(parent, "0" * 64))
        attacked.refused(first, parent, "it is another one")
    other = attacked.source.another()
    theirs = back_up(attacked.rig, other.instance_id, "scheduled")
    for is_copied, told in ((False, "is missing"), (True, "damaged")):
        if is_copied:
            folder = store.with_name(other.instance_id) / theirs["backup_id"]
            shutil.copytree(folder, store / theirs["backup_id"])
        attacked.sealed(first, parent=Parent(theirs["backup_id"], theirs["sha256"]))
        attacked.refused(first, theirs["backup_id"], told)
    attacked.sealed(first, parent=Parent("../../somewhere", "0" * 64))
    attacked.refused(first, "does not say what a backup is")
    # As if an increment were all there is.
    attacked.sealed(first, parent=None)
    answer = asked(attacked.rig, attacked.instance_id, "restore", {"backup_id": first})
    assert answer.status_code in {409, 503}
    assert attacked.source.read() == [1, 2, 3]


def resealed(rig: Rig, instance_id: str, backup_id: str, **changes: Any) -> None:
    """By somebody who has the key."""
    sealer = Sealer(read_or_make_key(rig.home / "seal.key"), "cell backups v1")
    with sqlite3.connect(rig.home / "cell.db") as database:
        query = "SELECT sealed FROM backup_keys WHERE instance_id = ?"
        (sealed,) = database.execute(query, [instance_id]).fetchone()
    key = bytes.fromhex(sealer.open(sealed, instance_id))
    name = BackupName(instance_id, backup_id)
    path = rig.home / "backups" / name.manifest
    content = path.read_bytes()
    found = replace(Manifest.unseal(key, name, content), **changes)
    path.write_bytes(found.seal(key, clear_text(content)))
