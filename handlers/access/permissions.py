"""Permissions: what a caller may do in an organization."""

from typing import Any

from handlers.calls import OrgCall


def mine(call: OrgCall) -> dict[str, Any]:
    return {
        "org_id": call.org.id,
        "role": call.caller.role,
        "permissions": sorted(call.caller.rights.anywhere),
    }
