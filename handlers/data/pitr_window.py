"""Handlers of the tag PITR window: the moments that an instance can be restored to."""

from typing import Any

from handlers.calls import OrgCall
from handlers.data import moments, pitr_views
from storage.data import backup_settings, recovery_windows
from storage.instances.instances import Instance


def get(call: OrgCall, instance: Instance) -> dict[str, Any]:
    known = recovery_windows.of_instance(call.db, instance)
    chosen = backup_settings.of_instance(call.db, instance).continuous_archiving
    shown = pitr_views.allowed(call, instance, chosen)
    if instance.status == "erased":
        return shown | pitr_views.window(call, pitr_views.NOTHING, None)
    stored = {"status": known.status, "reason": known.reason, "ranges": known.ranges}
    seen_at = known.seen_at
    if (told := moments.observed(call, instance)) is not None:
        return shown | pitr_views.window(call, told, call.now)
    return shown | pitr_views.window(call, stored, seen_at)
