"""One-time URLs: what the control plane signs for a cell to answer, once, out of its sight."""

import hashlib
from datetime import datetime, timedelta
from typing import Any

from control.boundary import allow_list
from handlers import instants
from handlers.calls import OrgCall
from storage import identifiers
from storage.catalogue import cells
from storage.errors import StateConflict
from storage.instances.instances import GONE, Instance
from storage.instances.one_time_urls import OneTimeUrl
from storage.network import networks


def url(
    call: OrgCall,
    instance: Instance,
    action: str,
    method: str,
    *,
    ttl_s: float | None = None,
    **claims: str | int,
) -> dict[str, Any]:
    """A URL on the instance's cell, good for one use within `ttl_s`, by default `reveal_ttl_s`.

    `claims` are told to the cell beside those that every URL has.
    """
    cell = cells.fetch(call.db, instance.cell_id)
    expires_at = call.now + timedelta(seconds=ttl_s or call.services.settings.reveal_ttl_s)
    token = _token(call, cell.id, _noted(call, instance, action, expires_at), claims)
    return {
        "url": f"{cell.public_url}/v1/{action.replace('_', '-')}/{token}",
        "method": method,
        "expires_at": instants.timestamp(expires_at.replace(microsecond=0)),
    }


def _noted(call: OrgCall, instance: Instance, action: str, expires_at: datetime) -> OneTimeUrl:
    """Until it expires, so that it can end with the right of whoever asks for it."""
    found = OneTimeUrl(
        id=identifiers.new(""),
        org_id=instance.org_id,
        instance_id=instance.id,
        holder=call.caller.credential_id,
        action=action,
        expires_at=expires_at,
    )
    call.db.add(found)
    return found


def _token(call: OrgCall, cell_id: str, found: OneTimeUrl, more: dict[str, str | int]) -> str:
    claims = {
        "instance_id": found.instance_id,
        "action": found.action,
        "jti": found.id,
        # To the microsecond: a rotation ends what was signed before it.
        "iat": call.now.timestamp(),
        "exp": int(found.expires_at.timestamp()),
        "request_id": call.request_id,
        "holder": found.holder,
        "person": _person(call),
        **more,
    }
    return call.services.signer.token(cell_id, claims)


def _person(call: OrgCall) -> str:
    """As an instance's `tenant`, a hash: enough to share by, and of nobody's name."""
    return hashlib.sha256(call.caller.user.id.encode()).hexdigest()[:32]


def check_provisioned(instance: Instance, verb: str) -> None:
    """StateConflict before the cell has heard of the instance, and once it is asked to go."""
    if instance.status == "requested" or instance.desired_status in GONE:
        raise StateConflict(f"cannot {verb} an instance that is {instance.status}")


def check_has_credentials(instance: Instance, verb: str) -> None:
    """StateConflict unless the instance was usable once and is not asked to go."""
    if instance.ready_at is None or instance.desired_status in GONE:
        raise StateConflict(
            f"cannot {verb} the credential of an instance that is {instance.status}"
        )


def check_reach(call: OrgCall, instance: Instance, feature: str) -> None:
    """Data leaves by a URL only to where clients may connect from; see `allow_list`."""
    allow_list.check(networks.of_instance(call.db, instance), call.ip, feature)
