"""How much of its size an instance uses, from its cell or from its last hour."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from control.cells.client import CellRefused, CellUnavailable
from control.policy.sizes import SIZES
from handlers import instants
from handlers.calls import OrgCall
from handlers.instances.one_time import check_provisioned
from specserver import Unavailable
from storage.errors import StateConflict
from storage.instances.instances import Instance
from storage.instances.samples import Sample

_DAY_S = 86_400
_ASKABLE = frozenset({"running", "pausing", "resizing"})


def capacity(call: OrgCall, instance: Instance, week: Sequence[Sample]) -> dict[str, Any]:
    """`week` is the metering of the last seven days, oldest first."""
    if instance.ready_at is None:
        raise StateConflict(f"cannot measure an instance that is {instance.status}")
    check_provisioned(instance, "measure")
    used, observed_at = _used(call, instance, week)
    size = SIZES[instance.size]
    memory = used["memory_bytes"]
    return {
        "instance_id": instance.id,
        "observed_at": instants.timestamp_or_none(observed_at),
        "storage": {
            "used_bytes": used["storage_bytes"],
            "limit_bytes": instance.storage_bytes,
            "growth_bytes_per_day": _growth(week),
        },
        "memory": {
            "used_bytes": memory,
            "limit_bytes": size.memory_bytes,
            "pressure": _pressure(memory / size.memory_bytes),
        },
        "connections": {"used": used.get("connections", 0), "limit": size.connections_max},
    }


def _used(
    call: OrgCall, instance: Instance, week: Sequence[Sample]
) -> tuple[dict[str, int], datetime | None]:
    if instance.status in _ASKABLE:
        return _asked(call, instance), call.now
    # A paused instance holds its storage and nothing else.
    storage_bytes = week[-1].storage_bytes if week else 0
    used = {"storage_bytes": storage_bytes, "memory_bytes": 0, "connections": 0}
    return used, week[-1].hour if week else None


def _asked(call: OrgCall, instance: Instance) -> dict[str, int]:
    try:
        return call.services.cells.for_instance(call.db, instance).capacity(instance.id)
    except (CellUnavailable, CellRefused) as error:
        raise Unavailable(
            "the instance's cell is not responding; try again", headers={"Retry-After": "2"}
        ) from error


def _growth(week: Sequence[Sample]) -> int | None:
    if not week:
        return None
    elapsed_s = (week[-1].hour - week[0].hour).total_seconds()
    if elapsed_s < _DAY_S:
        return None
    return round((week[-1].storage_bytes - week[0].storage_bytes) * _DAY_S / elapsed_s)


def _pressure(share: float) -> str:
    if share < 0.7:  # noqa: PLR2004 -- the thresholds of the document
        return "low"
    return "medium" if share < 0.9 else "high"  # noqa: PLR2004 -- the thresholds of the document
