"""Backups and restores that are begun together fit on the disk together, or are refused."""

import shutil
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from cell.engines.driver import EngineError
from cell.instances.disk_room import COPIES, SPARE_BYTES, DiskRoom
from cell.instances.hosted import HostedInstance

DATA_BYTES = 10**9


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def instance(folder: Path, name: str) -> HostedInstance:
    site: Any = type("Site", (), {"directory": folder})
    return cast("HostedInstance", type("Instance", (), {"instance_id": name, "site": site}))


def test_a_disk_without_room_for_copies_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free_bytes = SPARE_BYTES + COPIES * DATA_BYTES
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: Usage(10**12, 0, free_bytes))
    one = instance(tmp_path, "one")
    DiskRoom().take(one, DATA_BYTES)
    with pytest.raises(EngineError, match="no room for copies"):
        DiskRoom().take(one, DATA_BYTES + 1)


def test_what_has_begun_is_reckoned_with_until_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Free space alone says nothing of what others are about to write."""
    free_bytes = 2 * COPIES * DATA_BYTES + SPARE_BYTES - 1
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: Usage(10**12, 0, free_bytes))
    room, one, other = DiskRoom(), instance(tmp_path, "one"), instance(tmp_path, "other")
    room.take(one, DATA_BYTES)
    for _ in range(2):
        with pytest.raises(EngineError, match="no room for copies"):
            room.take(other, DATA_BYTES)
    room.leave(other)
    with pytest.raises(EngineError):
        room.take(other, DATA_BYTES)
    room.leave(one)
    room.take(other, DATA_BYTES)
    room.leave(other)
    room.take(one, DATA_BYTES)
