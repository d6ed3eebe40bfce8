"""Moments that instances are restored to: whether they can be, and from which backup."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from control.cells.client import CellRefused, CellUnavailable
from control.policy import recovery as rules
from control.policy.plans import PLANS
from control.policy.recovery import MomentRange, RecoveryBase
from handlers import instants
from handlers.calls import OrgCall
from handlers.instants import timestamp
from specserver import Conflict
from storage.data import backups, recovery_windows
from storage.data.backups import Backup
from storage.instances.instances import Instance


def asked(body: Mapping[str, Any]) -> datetime | None:
    """The point in time of a request; None for that of a backup."""
    told = body.get("at")
    return None if told is None else instants.read(told, pointer="/at")


def base(call: OrgCall, instance: Instance, at: datetime) -> Backup:
    """The backup that the moment is recovered from. Conflict if it is not in the window."""
    told = recovery_windows.of_instance(call.db, instance).ranges
    found = window(call, told)
    completed = backups.completed(call.db, instance)
    bases = [
        RecoveryBase(each.id, each.consistent_at)
        for each in completed
        if each.consistent_at is not None
    ]
    chosen = rules.base_for(bases, at)
    if chosen is None or not rules.can_restore(at, found, call.now):
        raise Conflict(f"cannot restore to {timestamp(at)}: {_why(instance, found)}")
    return next(each for each in completed if each.id == chosen)


def base_of_version(call: OrgCall, instance: Instance, at: datetime) -> Backup:
    """The same, of the version that the instance has now. Conflict if it had another then."""
    found = base(call, instance, at)
    if found.engine_version != instance.engine_version:
        raise Conflict(
            f"at {timestamp(at)} the instance was of {found.engine} {found.engine_version}: restore"
            " a backup of it to that moment instead, into a new instance"
        )
    return found


def window(call: OrgCall, told: Iterable[Mapping[str, str]]) -> list[MomentRange]:
    """As far as the plan goes back."""
    days = PLANS[call.org.plan].pitr_days
    return rules.window(rules.moment_ranges(told), days, call.now)


def observed(call: OrgCall, instance: Instance) -> Mapping[str, Any] | None:
    """What the cell says of it now; None if it does not respond, or has no such instance."""
    cell, instance_id = call.services.cells.for_instance(call.db, instance), instance.id
    call.release_connection()
    try:
        told = cell.observe(instance_id)
    except (CellUnavailable, CellRefused):
        return None
    return told and told.get("archiving")


def _why(instance: Instance, found: list[MomentRange]) -> str:
    if not rules.is_supported(instance.engine):
        return f"{instance.engine} does not support point-in-time recovery"
    if not found:
        return "the instance has no moments that can be restored yet; its PITR window says why"
    spans = [f"from {timestamp(one.begins_at)} to {timestamp(one.ends_at)}" for one in found[-3:]]
    return f"choose a moment {', or '.join(spans)}"
