"""Cells with a second store, and what is asked of the copies there."""

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from contract_tests.cell.rig import VALKEY, Rig, until

# Looked at and compared more often than in a cell that serves.
OFTEN: dict[str, Any] = {
    "backup_copy_look_s": 0.1,
    "backup_copy_check_s": 1.0,
    "backup_copy_retry_s": 0.1,
    "backup_copy_retry_max_s": 0.5,
    "backup_copy_late_after_s": 1.0,
}


def second_folder(rig: Rig) -> Path:
    return rig.home.parent / f"{rig.home.name}-second"


def copying_rig(make_rig: Callable[..., Rig], folder: Path, **settings: Any) -> Rig:
    """Whose second store is a folder."""
    folder.mkdir(parents=True)
    rig = make_rig(backup_copy_store_url=folder.as_uri(), **{**OFTEN, **settings})
    rig.usual = {**VALKEY, "backups_copied": True}
    return rig


def files(folder: Path) -> dict[str, bytes]:
    """By name of the object; what is removed meanwhile is left out."""
    found = {}
    for here, _, names in os.walk(folder):
        for path in (Path(here) / name for name in names):
            with suppress(FileNotFoundError):
                found[str(path.relative_to(folder))] = path.read_bytes()
    return found


def copies(rig: Rig, instance_id: str) -> dict[str, Any]:
    """Once the cell has looked at them, which it does after an instance is made."""
    return dict(until(lambda: rig.observe(instance_id)["copies"], "the copies are told"))


def copied(rig: Rig, instance_id: str) -> dict[str, str]:
    """By backup, when it was copied."""
    answer = rig.get(f"/v1/instances/{instance_id}/backup-copies")
    assert answer.status_code == 200, answer.text
    return {each["backup_id"]: each["copied_at"] for each in answer.json()["items"]}


def all_copied(rig: Rig, instance_id: str) -> dict[str, Any]:
    """Once nothing waits."""

    def current() -> dict[str, Any] | None:
        told = copies(rig, instance_id)
        return told if told["status"] == "current" else None

    found: dict[str, Any] = until(current, "all is copied")
    return found


def lose(folder: Path) -> None:
    """A store that is gone, with what was in it."""
    shutil.rmtree(folder)
