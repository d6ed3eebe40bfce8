"""Snapshots of an instance's data in its own folder, and instances that begin with one."""

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson
import structlog
from ulid import ULID

from cell.engines.driver import EngineError, Login
from cell.instances.ceilings import FullError
from cell.instances.residents import ROUTED, Resident
from cell.layout import Layout, write_atomically
from cell.runtime import budget
from cell.runtime.host import size_bytes

log = structlog.get_logger("cell.snapshots")

KEPT = 3
"""Of each label; older ones are dropped when one is made."""
FOR_BRANCH = "branch"
"""The label of snapshots that are dropped as soon as an instance has begun with them."""
NOTE = "snapshot.json"
BEGUN = "begun-with"
STOPPED_FACTOR = 2
"""What may have been written past the ceiling before an engine was stopped (decision 0025)."""
ABANDONED_AFTER_S = 60.0
"""A branch begins with its snapshot at once, unless it was deleted meanwhile."""
WAITING_MAX = 3
"""Snapshots of one instance that wait for their branches; each may be as large as it is."""


async def make(resident: Resident, label: str, login: Login) -> dict[str, Any]:
    """Copies everything committed by now. Raises EngineError, and leaves nothing behind then."""
    if label == FOR_BRANCH:
        await asyncio.to_thread(_check_room, resident)
    name = f"snap_{ULID()}"
    target = resident.site.snapshots / name
    process = resident.process if resident.usable else None
    allowed_bytes = resident.record.spec.size.ceiling_bytes
    if process is None:
        # One that was stopped for being full is copied before it is given more.
        allowed_bytes *= STOPPED_FACTOR
    try:
        used_bytes = await asyncio.to_thread(size_bytes, resident.site.data)
        if used_bytes > allowed_bytes:
            raise budget.exceeded(allowed_bytes)
        with budget.limit(allowed_bytes, process, resident.why_work_ends):
            made = await resident.driver.snapshot(resident.site, process, login, target)
    except (EngineError, OSError) as error:
        shutil.rmtree(target, ignore_errors=True)
        raise EngineError(f"the snapshot failed: {error}") from error
    spec = resident.record.spec
    note = {
        "snapshot_id": name,
        "label": label,
        "engine": spec.engine,
        "engine_version": spec.engine_version,
        "size_bytes": made.size_bytes,
        "sha256": made.sha256,
    }
    write_atomically(target / NOTE, orjson.dumps(note))
    await asyncio.to_thread(_drop_old, resident, label)
    log.info("cell.snapshot", instance_id=resident.instance_id, snapshot_id=name)
    return {"snapshot_id": name, "size_bytes": made.size_bytes}


def find(layout: Layout, name: str) -> tuple[Path, dict[str, Any]] | None:
    """The folder and the note of `<instance_id>/<snapshot_id>`; None where there is no such."""
    instance_id, _, snapshot_id = name.partition("/")
    folder = layout.site(instance_id, 0).snapshots / snapshot_id
    note = _read(folder / NOTE)
    return None if note is None else (folder, note)


def is_owed(resident: Resident) -> bool:
    """Whether the instance has yet to begin with a snapshot."""
    source = resident.record.spec.source_snapshot
    return source is not None and not (resident.site.directory / BEGUN).exists()


async def begin(resident: Resident, layout: Layout) -> None:
    """Puts the snapshot in place that the instance is to begin with, where that `is_owed`.

    Raises EngineError where the snapshot is not there or does not fit.
    """
    name = resident.record.spec.source_snapshot
    assert name is not None
    found = find(layout, name)
    if found is None:
        raise EngineError(f"the cell has no snapshot {name}")
    folder, note = found
    spec = resident.record.spec
    if (note["engine"], note["engine_version"]) != (spec.engine, spec.engine_version):
        taken = f"{note['engine']} {note['engine_version']}"
        raise EngineError(
            f"snapshot {name} is from {taken}, not {spec.engine} {spec.engine_version}"
        )
    if note["size_bytes"] > spec.size.ceiling_bytes:
        # Not tried again before the instance has more.
        raise FullError(str(budget.exceeded(spec.size.ceiling_bytes)))
    with budget.limit(spec.size.ceiling_bytes):
        await resident.driver.restore(resident.site, folder)
    write_atomically(resident.site.directory / BEGUN, name.encode())
    if note["label"] == FOR_BRANCH:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def renew(residents: Iterable[Resident]) -> None:
    """When a cell starts: a control plane that was away as well finds what it had made."""
    for resident in residents:
        for note in _labelled(resident, FOR_BRANCH):
            os.utime(note)


async def sweep(residents: Mapping[str, Resident]) -> None:
    """Removes what no branch began with in time, and what a killed cell left half made."""
    old = await asyncio.to_thread(_old, list(residents.values()))
    # Nothing is awaited until the notes are gone, so no instance is made with one of them.
    awaited = {_awaits(resident) for resident in residents.values()}
    gone = [
        folder
        for resident, folder in old
        # A snapshot is made under the lock, and has no note until it is complete.
        if not resident.lock.locked() and f"{resident.instance_id}/{folder.name}" not in awaited
    ]
    for folder in gone:
        (folder / NOTE).unlink(missing_ok=True)
    for folder in gone:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        log.info("cell.snapshot_abandoned", snapshot_id=folder.name)


def _awaits(resident: Resident) -> str | None:
    """The snapshot that the instance will begin with, once it can."""
    source = resident.record.spec.source_snapshot
    if source is None or resident.record.desired not in ROUTED:
        return None
    return None if (resident.site.directory / BEGUN).exists() else source


def _old(residents: Iterable[Resident]) -> list[tuple[Resident, Path]]:
    before = time.time() - ABANDONED_AFTER_S
    found = []
    for resident in residents:
        for folder in resident.site.snapshots.glob("*"):
            note = _read(folder / NOTE)
            with contextlib.suppress(FileNotFoundError):
                made_at = (folder if note is None else folder / NOTE).stat().st_mtime
                if made_at < before and (note is None or note["label"] == FOR_BRANCH):
                    found.append((resident, folder))
    return found


def _drop_old(resident: Resident, label: str) -> None:
    """But for those that wait for their branches, the newest are kept, as far as there is room."""
    if label == FOR_BRANCH:
        return
    notes = _labelled(resident, label)
    while len(notes) > KEPT or (len(notes) > 1 and _bytes(notes) > _room(resident)):
        shutil.rmtree(notes.pop(0).parent, ignore_errors=True)


def _check_room(resident: Resident) -> None:
    """For one more that waits for its branch; one always may. Raises EngineError."""
    waiting = _labelled(resident, FOR_BRANCH)
    together = _bytes(waiting) + resident.metrics.storage_bytes
    if waiting and (len(waiting) >= WAITING_MAX or together > _room(resident)):
        raise EngineError(
            "other branches of the instance are being created; try again, or erase those that "
            "failed"
        )


def _room(resident: Resident) -> int:
    """Snapshots of one label take no more, unless there is but one."""
    return resident.record.spec.size.ceiling_bytes


def _bytes(notes: Iterable[Path]) -> int:
    return sum(note["size_bytes"] for path in notes if (note := _read(path)) is not None)


def _labelled(resident: Resident, label: str) -> list[Path]:
    """Names are ULIDs, so their order is that of time; one that is being made has no note yet."""
    notes = sorted(resident.site.snapshots.glob(f"*/{NOTE}"))
    return [path for path in notes if (note := _read(path)) is not None and note["label"] == label]


def _read(note: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = orjson.loads(note.read_bytes())
    except FileNotFoundError:
        return None
    return found
