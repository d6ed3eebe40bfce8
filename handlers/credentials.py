"""Credentials: one-time URLs to see and to replace them."""

from typing import Any

from handlers import one_time
from handlers.calls import OrgCall
from storage import instances


def reveal(call: OrgCall, instance_id: str) -> dict[str, Any]:
    instance = instances.fetch(call.db, call.org.id, instance_id)
    one_time.check_has_credentials(instance, "reveal")
    call.audit(target=instance.id, name=instance.name)
    return one_time.url(call, instance, "reveal", "GET")


def rotate(call: OrgCall, instance_id: str) -> dict[str, Any]:
    instance = instances.fetch(call.db, call.org.id, instance_id)
    one_time.check_has_credentials(instance, "rotate")
    call.audit(target=instance.id, name=instance.name)
    return one_time.url(call, instance, "rotate", "POST")
