"""What the tests of backups ask of a cell, and how they look into its store."""

from pathlib import Path
from typing import Any

import httpx
from ulid import ULID

from contract_tests.cell.rig import Rig


def new_backup_id() -> str:
    return f"bkp_{ULID()}"


def asked(rig: Rig, instance_id: str, verb: str, body: Any) -> httpx.Response:
    return rig.act("POST", f"/v1/instances/{instance_id}/actions/{verb}", body)


def back_up(rig: Rig, instance_id: str, kind: str = "manual") -> dict[str, Any]:
    body = {"backup_id": new_backup_id(), "kind": kind}
    return rig.action(instance_id, "back-up", body)


def listed(rig: Rig, instance_id: str) -> list[dict[str, Any]]:
    answer = rig.get(f"/v1/instances/{instance_id}/backups")
    assert answer.status_code == 200, answer.text
    return list(answer.json()["items"])


def in_store(rig: Rig, instance_id: str) -> list[Path]:
    folder = rig.home / "backups" / instance_id
    return sorted(path for path in folder.rglob("*") if path.is_file())


def left_beside(rig: Rig, instance_id: str) -> set[str]:
    """What lies in the folder of the instance, or of scratch instances."""
    own = {path.name for path in (rig.home / "instances" / instance_id).iterdir()}
    usual = {"data", "conf", "log", "snapshots", "process.json", "begun-with"}
    usual |= {"fresh", "logins.json", "logins.applied", "backup-mark.json"}
    scratch = {path.name for path in (rig.home / "instances").glob("inst_verify_*")}
    return (own - usual - {name for name in own if name.startswith("unused-")}) | scratch
