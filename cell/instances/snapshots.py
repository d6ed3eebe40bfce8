"""Snapshots of an instance's data in its own folder, and instances that begin with one."""

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import orjson
import structlog
from ulid import ULID

from cell.engines.driver import EngineError, Login, Snapshot
from cell.instances.ceilings import FullError
from cell.instances.hosted import ROUTED, HostedInstance
from cell.instances.lost_data import LOST
from cell.layout import Layout, write_atomically
from cell.runtime import budget, engine_files
from cell.runtime.folder_sizes import size_bytes
from cell.runtime.own_threads import in_own_thread
from cell.runtime.process import Process

log = structlog.get_logger("cell.snapshots")

T = TypeVar("T")

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


async def make(instance: HostedInstance, label: str, login: Login) -> dict[str, Any]:
    """Copies everything committed by now. Raises EngineError, and leaves nothing behind then."""
    if label == FOR_BRANCH:
        await asyncio.to_thread(_check_room, instance)
    name = f"snap_{ULID()}"
    target = instance.site.snapshots / name
    made = await copy(instance, login, target)
    spec = instance.record.spec
    note = {
        "snapshot_id": name,
        "label": label,
        "engine": spec.engine,
        "engine_version": spec.engine_version,
        "size_bytes": made.size_bytes,
        "sha256": made.sha256,
    }
    write_atomically(target / NOTE, orjson.dumps(note))
    await in_own_thread(_drop_old, instance, label)
    log.info("cell.snapshot", instance_id=instance.instance_id, snapshot_id=name)
    return {"snapshot_id": name, "size_bytes": made.size_bytes}


async def copy(instance: HostedInstance, login: Login, target: Path) -> Snapshot:
    """Into the new folder `target` of the cell's. Raises EngineError, as `make` does."""
    driver, site = instance.driver, instance.site
    return await copied(
        instance, lambda process: driver.snapshot(site, process, login, target), target
    )


async def copied(
    instance: HostedInstance,
    copies: Callable[[Process | None], Awaitable[T]],
    target: Path,
    why_late: Callable[[], str | None] = lambda: None,
) -> T:
    """By another way into a new folder, which is removed where that fails.

    It ends as well once `why_late` says why.
    """

    def why_ends() -> str | None:
        return instance.why_work_ends() or why_late()

    if instance.data_lost:
        raise EngineError(LOST)
    process = instance.process if instance.usable else None
    allowed_bytes = instance.ceiling_bytes
    if process is None:
        # One that was stopped for being full is copied before it is given more.
        allowed_bytes *= STOPPED_FACTOR
    try:
        used_bytes = await in_own_thread(size_bytes, instance.site.data)
        if used_bytes > allowed_bytes:
            raise budget.exceeded(allowed_bytes)
        with budget.limit(allowed_bytes, process, why_ends):
            return await copies(process)
    except (EngineError, OSError) as error:
        await in_own_thread(_remove, target)
        raise EngineError(f"the snapshot failed: {error}") from error


def find(layout: Layout, name: str) -> tuple[Path, dict[str, Any]] | None:
    """The folder and the note of `<instance_id>/<snapshot_id>`; None where there is no such."""
    instance_id, _, snapshot_id = name.partition("/")
    folder = layout.site(instance_id, 0).snapshots / snapshot_id
    note = _read(folder / NOTE)
    return None if note is None else (folder, note)


async def begin(instance: HostedInstance, layout: Layout) -> None:
    """Puts the snapshot in place that the instance is to begin with, which has not begun yet.

    Raises EngineError where the snapshot is not there or does not fit.
    """
    name = instance.record.spec.source_snapshot
    assert name is not None
    found = find(layout, name)
    if found is None:
        raise EngineError(f"the cell has no snapshot {name}")
    folder, note = found
    spec = instance.record.spec
    if (note["engine"], note["engine_version"]) != (spec.engine, spec.engine_version):
        taken = f"{note['engine']} {note['engine_version']}"
        raise EngineError(
            f"snapshot {name} is from {taken}, not {spec.engine} {spec.engine_version}"
        )
    if note["size_bytes"] > instance.ceiling_bytes:
        # Not tried again before the instance has more.
        told = str(budget.exceeded(instance.ceiling_bytes))
        raise FullError(told, note["size_bytes"])
    with budget.limit(instance.ceiling_bytes):
        await instance.driver.restore(instance.site, folder)
    write_atomically(instance.site.directory / BEGUN, name.encode())
    if note["label"] == FOR_BRANCH:
        await in_own_thread(_remove, folder)


def renew(instances: Iterable[HostedInstance]) -> None:
    """When a cell starts: a control plane that was away as well finds what it had made."""
    for instance in instances:
        for note in _labelled(instance, FOR_BRANCH):
            os.utime(note)


async def sweep(instances: Mapping[str, HostedInstance]) -> None:
    """Removes what no branch began with in time, and what a killed cell left half made."""
    old = await asyncio.to_thread(_old, list(instances.values()))
    # Nothing is awaited until the notes are gone, so no instance is made with one of them.
    awaited = {_awaits(instance) for instance in instances.values()}
    gone = [
        folder
        for instance, folder in old
        # A snapshot is made under the lock, and has no note until it is complete.
        if not instance.lock.locked() and f"{instance.instance_id}/{folder.name}" not in awaited
    ]
    for folder in gone:
        (folder / NOTE).unlink(missing_ok=True)
    for folder in gone:
        await in_own_thread(_remove, folder)
        log.info("cell.snapshot_abandoned", snapshot_id=folder.name)


def _awaits(instance: HostedInstance) -> str | None:
    """The snapshot that the instance will begin with, once it can."""
    source = instance.record.spec.source_snapshot
    if source is None or instance.record.desired not in ROUTED:
        return None
    return None if (instance.site.directory / BEGUN).exists() else source


def _old(instances: Iterable[HostedInstance]) -> list[tuple[HostedInstance, Path]]:
    before = time.time() - ABANDONED_AFTER_S
    found = []
    for instance in instances:
        for folder in instance.site.snapshots.glob("*"):
            note = _read(folder / NOTE)
            with contextlib.suppress(FileNotFoundError):
                made_at = (folder if note is None else folder / NOTE).stat().st_mtime
                if made_at < before and (note is None or note["label"] == FOR_BRANCH):
                    found.append((instance, folder))
    return found


def _drop_old(instance: HostedInstance, label: str) -> None:
    """But for those that wait for their branches, the newest are kept, as far as there is room."""
    if label == FOR_BRANCH:
        return
    notes = _labelled(instance, label)
    while len(notes) > KEPT or (len(notes) > 1 and _bytes(notes) > _room(instance)):
        _remove(notes.pop(0).parent)


def _check_room(instance: HostedInstance) -> None:
    """For one more that waits for its branch; one always may. Raises EngineError."""
    waiting = _labelled(instance, FOR_BRANCH)
    together = _bytes(waiting) + instance.metrics.storage_bytes
    if waiting and (len(waiting) >= WAITING_MAX or together > _room(instance)):
        raise EngineError(
            "other branches of the instance are being created; try again, or erase those that "
            "failed"
        )


def _room(instance: HostedInstance) -> int:
    """Snapshots of one label take no more, unless there is but one."""
    return instance.ceiling_bytes


def _bytes(notes: Iterable[Path]) -> int:
    return sum(note["size_bytes"] for path in notes if (note := _read(path)) is not None)


def _labelled(instance: HostedInstance, label: str) -> list[Path]:
    """Names are ULIDs, so their order is that of time; one that is being made has no note yet."""
    notes = sorted(instance.site.snapshots.glob(f"*/{NOTE}"))
    return [path for path in notes if (note := _read(path)) is not None and note["label"] == label]


def _read(note: Path) -> dict[str, Any] | None:
    if note.parent.suffix:
        # A copy that is being made lies in a folder of the engine's, which may say anything.
        return None
    try:
        found: dict[str, Any] = orjson.loads(note.read_bytes())
    except FileNotFoundError:
        return None
    return found


def _remove(folder: Path) -> None:
    """As far as that is possible; what stays is tried again by `sweep`."""
    with contextlib.suppress(OSError):
        engine_files.remove(folder)
