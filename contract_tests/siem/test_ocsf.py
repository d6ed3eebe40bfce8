"""What is sent as OCSF is as the schema of its class says, for every action and kind there is.

The schemas are those of OCSF itself, as the package ocsf-json-schema has them.
"""

from datetime import UTC, datetime
from functools import cache
from typing import Any

import jsonschema_rs
import pytest
from ocsf_json_schema import OcsfJsonSchemaEmbedded, get_ocsf_schema

from contract_tests.api.rows import DOCUMENT, OPERATIONS
from control.siem import ocsf
from control.siem.told import AUDIT, EGRESS, GAP, Told

AT = datetime(2026, 11, 21, 9, 0, 0, 123_000, tzinfo=UTC)
ORG = "org_01JD7QK3V8Y2M4N6P8R0S2T4V6"
ACTIONS = sorted({one.extension("audit") for one in OPERATIONS} - {"none"})
KINDS = sorted(set(DOCUMENT.raw["webhooks"]) - {EGRESS})
ENTRY: dict[str, Any] = {
    "actor_kind": "user",
    "actor_id": "usr_01JD7QK3V8Y2M4N6P8R0S2T4V6",
    "target": "inst_01JD7QK3V8Y2M4N6P8R0S2T4V6",
    "request_id": "req_01JD7QK3V8Y2M4N6P8R0S2T4V6",
    "ip": "203.0.113.7",
    "detail": {"name": "x", "nested": {"a": [1, None]}},
    "seq": 7,
    "hash": "0" * 64,
}
NOTHING_KNOWN = {"actor_kind": "system", "actor_id": None, "target": None, "ip": None}


@cache
def schemas() -> OcsfJsonSchemaEmbedded:
    return OcsfJsonSchemaEmbedded(get_ocsf_schema(version=ocsf.VERSION))


@cache
def validator(class_uid: int) -> Any:
    name = schemas().lookup_class_name_from_uid(class_uid=class_uid)
    return jsonschema_rs.validator_for(schemas().get_class_schema(class_name=name, profiles=[]))


def checked(told: Told) -> dict[str, Any]:
    made = ocsf.event(told)
    faults = [fault.message for fault in validator(made["class_uid"]).iter_errors(made)]
    assert not faults, (told, faults)
    assert made["unmapped"] == told.data, "nothing is lost"
    assert made["time"] == 1_795_251_600_123
    return made


def entry(action: str, **members: Any) -> Told:
    data = {**ENTRY, **members, "action": action}
    return Told("audit", 7, "aud_01JD7QK3V8Y2M4N6P8R0S2T4V6", AUDIT, AT, ORG, data)


@pytest.mark.parametrize("action", ACTIONS)
def test_every_action_is_an_event_of_its_class(action: str) -> None:
    for members in ({}, NOTHING_KNOWN, {"ip": "2001:db8::1", "actor_kind": "api_key"}):
        made = checked(entry(action, **members))
        assert made["class_uid"] != ocsf.BASE
        assert made["metadata"]["event_code"] == action


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_event_is_one_of_its_class(kind: str) -> None:
    data = {"instance_id": "inst_01JD7QK3V8Y2M4N6P8R0S2T4V6"}
    made = checked(Told("events", 3, "evt_01JD7QK3V8Y2M4N6P8R0S2T4V6", kind, AT, ORG, data))
    assert made["metadata"]["sequence"] == 3


def test_tables_name_only_what_there_is() -> None:
    assert set(ocsf.INSTANCES) <= set(KINDS)
    written_elsewhere = {"api_key.suspend"}
    assert {*ocsf.SIGN_INS, *ocsf.ACCOUNTS} <= {*ACTIONS, *written_elsewhere}


@pytest.mark.parametrize("connection", ["con_0a1b2c3d4e5f6071", None])
def test_egress_is_network_activity(connection: str | None) -> None:
    data = {
        "instance_id": "inst_01JD7QK3V8Y2M4N6P8R0S2T4V6",
        "connection_id": connection,
        "client_ip": connection and "198.51.100.7",
        "protocol": connection and "postgres",
        "bytes_out": 48_213,
        "since": "2026-11-21T08:59:50.123Z",
        "until": "2026-11-21T09:00:00.123Z",
    }
    made = checked(Told("egress", 1, "evt_1", EGRESS, AT, ORG, data))
    assert made["class_uid"] == ocsf.NETWORK_ACTIVITY
    assert made["traffic"] == {"bytes_out": 48_213}


@pytest.mark.parametrize("stream", ["audit", "events", "egress"])
def test_a_gap_is_told_too(stream: str) -> None:
    data = {"stream": stream, "first_seq": 1, "last_seq": 4, "reason": "not kept"}
    made = checked(Told(stream, 5, "gap_audit_1_4", GAP, AT, ORG, data))
    assert made["message"] == GAP


def test_what_they_mean() -> None:
    signed_in = checked(entry("session.create"))
    assert (signed_in["class_uid"], signed_in["activity_id"]) == (3002, 1)
    changed = checked(entry("user.password.change"))
    assert (changed["class_uid"], changed["activity_id"]) == (3001, 3)
    made = checked(entry("instance.create"))
    assert (made["class_uid"], made["activity_id"]) == (3004, 1)
    read = checked(entry("audit.export", target=None))
    assert (read["class_uid"], read["activity_id"]) == (6003, 2)
    refused = checked(entry("session.create.refused"))
    assert (refused["class_uid"], refused["activity_id"]) == (3002, 1)
    assert (refused["status_id"], refused["severity_id"]) == (2, 2)
    assert refused["metadata"]["event_code"] == "session.create.refused"
