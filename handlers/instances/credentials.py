"""Credentials: one-time URLs to see and to replace them."""

from typing import Any

from handlers.calls import OrgCall
from handlers.instances import one_time
from storage.instances.instances import Instance


def reveal(call: OrgCall, instance: Instance) -> dict[str, Any]:
    one_time.check_has_credentials(instance, "reveal")
    call.audit(target=instance.id, detail={"name": instance.name})
    return one_time.url(call, instance, "reveal", "GET")


def rotate(call: OrgCall, instance: Instance, body: dict[str, Any] | None = None) -> dict[str, Any]:
    one_time.check_has_credentials(instance, "rotate")
    wanted = body or {}
    call.audit(target=instance.id, detail={"name": instance.name, **wanted})
    overlap_s = wanted.get("overlap_s", call.services.settings.rotation_overlap_s)
    return one_time.url(call, instance, "rotate", "POST", overlap_s=overlap_s)
