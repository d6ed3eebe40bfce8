"""Incremental backups: what is restored from them is what was committed, and what they need stays."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contract_tests.cell.backups.backup_calls import asked, back_up, in_store, left_beside, listed
from contract_tests.cell.backups.test_backups import Hosted, hosted
from contract_tests.cell.rig import Rig


@pytest.fixture
def source(make_rig: Any) -> Hosted:
    return hosted(make_rig(backup_increment_bytes_min=0), "postgres")


def test_an_increment_is_restored_with_what_it_builds_on(source: Hosted) -> None:
    rig, instance_id = source.rig, source.instance_id
    source.make_table()
    source.write(1)
    full = back_up(rig, instance_id, "scheduled")
    source.write(2)
    first = back_up(rig, instance_id, "scheduled")
    print(full, first)
    assert (full["method"], full["parent_id"]) == ("full", None)
    assert (first["method"], first["parent_id"]) == ("incremental", full["backup_id"])
    assert first["stored_bytes"] < full["stored_bytes"] / 4
    assert first["verification"]["method"] == "restored"
    source.write(3)
    rig.action(instance_id, "restore", {"backup_id": first["backup_id"]})
    assert source.read() == [1, 2]
