"""Entries and events as the Open Cybersecurity Schema Framework (OCSF) 1.5 has them.

What has no class of its own is a base event. All of it is kept in `unmapped`, as it is in the
envelope, so that nothing is lost where a class has no place for it.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

from control.events.envelope import timestamp
from control.siem.told import AUDIT, EGRESS, Told

Json = dict[str, Any]

VERSION: Final = "1.5.0"
PRODUCT: Final = MappingProxyType({"name": "Menagerie", "vendor_name": "Menagerie"})
BASE: Final = 0
NETWORK_ACTIVITY: Final = 4001
ACCOUNT_CHANGE: Final = 3001
AUTHENTICATION: Final = 3002
ENTITY_MANAGEMENT: Final = 3004
API_ACTIVITY: Final = 6003
OTHER: Final = 99
_TRAFFIC: Final = 6
_OUTBOUND: Final = 2
_READ: Final = 2
_INFORMATIONAL, _LOW, _HIGH = 1, 2, 4
_SUCCESS, _FAILURE = 1, 2
_MILLISECOND: Final = timedelta(milliseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

SIGN_INS: Final = {
    "session.create": 1,
    "session.revoke": 2,
    "session.step_up": OTHER,
    "workload_identity.exchange": 4,
}
"""Activities of the class Authentication, by the action of an entry."""
ACCOUNTS: Final = {
    "api_key.create": 1,
    "api_key.report_leak": OTHER,
    "api_key.revoke": 6,
    "api_key.suspend": 5,
    "api_key.unsuspend": 2,
    "invite.accept": 1,
    "member.remove": 6,
    "member.update": OTHER,
    "project_member.remove": 8,
    "project_member.set": 7,
    "role_assignment.create": 7,
    "role_assignment.delete": 8,
    "service_account.create": 1,
    "service_account.create_key": OTHER,
    "service_account.disable": 5,
    "team.member.remove": 8,
    "team.member.set": 7,
    "user.create": 1,
    "user.email.change": OTHER,
    "user.email.request": OTHER,
    "user.passkey.create": 10,
    "user.passkey.delete": 11,
    "user.passkey.update": OTHER,
    "user.password.change": 3,
    "user.password.reset": 4,
    "user.recovery_codes.renew": OTHER,
    "user.totp.confirm": 10,
    "user.totp.enrol": OTHER,
    "user.totp.remove": 11,
}
"""Activities of the class Account Change, by the action of an entry."""
ENTITIES: Final = {
    "create": 1,
    "attach": 1,
    "branch": 1,
    "update": 3,
    "replace": 3,
    "rotate": 3,
    "reset": 3,
    "switch": 3,
    "delete": 4,
    "detach": 4,
    "erase": 4,
    "revoke": 4,
    "pause": 12,
    "resume": 13,
}
"""Activities of the class Entity Management, by the verb of an action that has a target."""
REFUSED: Final = ".refused"
"""How actions end that were tried and refused."""
READS: Final = frozenset(
    {"console.open", "download", "dump", "export", "logs", "reveal", "source_url"}
)
"""How actions end that take something away to read it: of the class API Activity."""
INSTANCES: Final = {
    "instance.requested.v1": 1,
    "instance.ready.v1": 10,
    "instance.failed.v1": OTHER,
    "instance.paused.v1": 12,
    "instance.resumed.v1": 13,
    "instance.resized.v1": 3,
    "instance.deleted.v1": 4,
    "instance.credentials.rotated.v1": 3,
}
"""Activities of the class Entity Management, by the kind of an event."""


def event(told: Told) -> Json:
    if told.type == EGRESS:
        return _egress(told)
    if told.type == AUDIT:
        return _entry(told)
    if told.type in INSTANCES:
        entity = {"uid": told.data["instance_id"], "type": "instance"}
        severity = _HIGH if told.type == "instance.failed.v1" else _INFORMATIONAL
        activity = INSTANCES[told.type]
        return _of(told, ENTITY_MANAGEMENT, activity, severity=severity, entity=entity)
    return _of(told, BASE, OTHER)


def _entry(told: Told) -> Json:
    data = told.data
    target = data["target"]
    action = data["action"].removesuffix(REFUSED)
    refused = action != data["action"]
    members: Json = {"actor": _actor(data), "severity": _LOW if refused else _INFORMATIONAL}
    members["status_id"] = _FAILURE if refused else _SUCCESS
    if data["ip"]:
        members["src_endpoint"] = {"ip": data["ip"]}
    verb = action.rpartition(".")[2]
    if action in SIGN_INS:
        about: Json = {"user": _user(data, target), "service": {"name": PRODUCT["name"]}}
        return _of(told, AUTHENTICATION, SIGN_INS[action], **about, **members)
    if action in ACCOUNTS:
        return _of(told, ACCOUNT_CHANGE, ACCOUNTS[action], user=_user(data, target), **members)
    if verb in ENTITIES and target:
        entity = {"uid": target, "type": action.rpartition(".")[0]}
        return _of(told, ENTITY_MANAGEMENT, ENTITIES[verb], entity=entity, **members)
    activity = _READ if action.endswith(tuple(READS)) else OTHER
    members.setdefault("src_endpoint", {"svc_name": PRODUCT["name"]})
    resources: Json = {"resources": [{"uid": target}]} if target else {}
    return _of(told, API_ACTIVITY, activity, api={"operation": action}, **resources, **members)


def _actor(data: Mapping[str, Any]) -> Json:
    if data["actor_id"] is None:
        return {"app_name": PRODUCT["name"], "invoked_by": data["actor_kind"]}
    return {"user": {"uid": data["actor_id"], "type": data["actor_kind"]}}


def _user(data: Mapping[str, Any], target: str | None) -> Json:
    """Whose account it is: the target, or whoever did it."""
    uid = target or data["actor_id"]
    return {"uid": uid} if uid else {"name": "unknown"}


def _egress(told: Told) -> Json:
    data = told.data
    instance = {"instance_uid": data["instance_id"]}
    members: Json = {"src_endpoint": instance, "traffic": {"bytes_out": data["bytes_out"]}}
    if data["connection_id"]:
        instance["svc_name"] = data["protocol"]
        connection = {"uid": data["connection_id"], "direction_id": _OUTBOUND}
        members |= {"connection_info": connection, "dst_endpoint": {"ip": data["client_ip"]}}
    return _of(told, NETWORK_ACTIVITY, _TRAFFIC, **members)


def _of(
    told: Told, class_uid: int, activity_id: int, *, severity: int = _INFORMATIONAL, **members: Any
) -> Json:
    data = told.data
    name = str(data.get("action", told.type))
    metadata: Json = {
        "version": VERSION,
        "product": dict(PRODUCT),
        "uid": told.id,
        "event_code": name,
        "log_name": told.stream,
        "original_time": timestamp(told.time),
        "sequence": told.seq,
        "tenant_uid": told.org_id,
    }
    if data.get("request_id"):
        metadata["correlation_uid"] = data["request_id"]
    other = {"activity_name": name} if activity_id == OTHER else {}
    return {
        "metadata": metadata,
        "time": (told.time - _EPOCH) // _MILLISECOND,
        "category_uid": class_uid // 1_000,
        "class_uid": class_uid,
        "activity_id": activity_id,
        "type_uid": class_uid * 100 + activity_id,
        "severity_id": severity,
        "message": name,
        **other,
        **members,
        "unmapped": data,
    }
