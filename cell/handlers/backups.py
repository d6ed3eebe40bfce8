"""Operations of the tag Backups."""

from dataclasses import asdict
from typing import Any

from cell.agent import Cell
from cell.backups.manifest import Manifest
from cell.timestamps import moment, unix
from specserver import Conflict

Body = dict[str, Any]


async def list_(cell: Cell, instance_id: str) -> Body:
    found = await cell.backups.complete(cell.lifecycle.find(instance_id))
    return {"items": [_view(each) for each in found]}


async def make(cell: Cell, instance_id: str, body: Body) -> Body:
    instance = cell.lifecycle.find(instance_id)
    return _view(await cell.backups.make(instance, body["backup_id"], body["kind"]))


async def take_over(cell: Cell, instance_id: str, body: Body) -> Body:
    found = await cell.backups.take_over(instance_id, body["known_sha256"])
    return {"items": [_view(each) for each in found]}


async def drop(cell: Cell, instance_id: str, body: Body) -> Body:
    dropped = await cell.backups.drop(cell.lifecycle.find(instance_id), body["backup_ids"])
    return {"dropped": sorted(dropped)}


async def restore(cell: Cell, instance_id: str, body: Body) -> Body:
    instance = cell.lifecycle.find(instance_id)
    cell.console.end_all(instance_id)
    await cell.restores.restore(instance, body["backup_id"], unix(body.get("at")))
    return cell.lifecycle.observation(instance)


async def set_archiving(cell: Cell, instance_id: str, body: Body) -> Body:
    instance = cell.lifecycle.find(instance_id)
    instance.refuse_erased()
    instance.archive_continuously(wanted=body["wanted"])
    cell.supervisor.save(instance)
    return cell.lifecycle.observation(instance)


async def set_copying(cell: Cell, instance_id: str, body: Body) -> Body:
    instance = cell.lifecycle.find(instance_id)
    instance.refuse_erased()
    if body["wanted"] and not cell.copies.has_store:
        raise Conflict("the cell has no second store of backups: its operator has to name one")
    instance.copy_backups(wanted=body["wanted"])
    cell.supervisor.save(instance)
    return cell.lifecycle.observation(instance)


async def list_copies(cell: Cell, instance_id: str) -> Body:
    found = cell.copied.backups(cell.lifecycle.find(instance_id).instance_id)
    return {
        "items": [
            {"backup_id": backup_id, "copied_at": moment(at)}
            for backup_id, at in sorted(found.items())
        ]
    }


def _view(made: Manifest) -> Body:
    assert made.verification is not None
    return {
        "backup_id": made.backup_id,
        "kind": made.kind,
        "method": "full" if made.parent is None else "incremental",
        "parent_id": None if made.parent is None else made.parent.backup_id,
        "engine": made.engine,
        "engine_version": made.engine_version,
        "size_bytes": made.size_bytes,
        "stored_bytes": made.stored_bytes,
        "started_at": moment(made.started_at),
        "completed_at": moment(made.completed_at),
        "sha256": made.stored_sha256,
        "extensions": list(made.extensions),
        "wal_chain_id": made.wal and made.wal.chain_id,
        "consistent_at": moment(made.wal.consistent_at if made.wal else None),
        "verification": {**asdict(made.verification), "at": moment(made.verification.at)},
    }
