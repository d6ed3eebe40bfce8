"""Networks and domains as the JSON that openapi.yaml describes."""

from typing import Any

from control.policy import networks as rules
from handlers.instants import timestamp, timestamp_or_none
from storage.instances.instances import GONE, Instance
from storage.network.domains import Domain
from storage.network.networks import Network

Json = dict[str, Any]


def etag(record: Network) -> str:
    return f'"{record.version}"'


def network(record: Network, instance: Instance) -> Json:
    return {
        "instance_id": instance.id,
        "allow_cidrs": record.allow_cidrs,
        "open_to_the_world": rules.is_open(record.allow_cidrs),
        "client_ca_pem": record.client_ca_pem,
        "client_authorities": [
            {
                "subject": each.subject,
                "sha256": each.sha256,
                "not_after": timestamp(each.not_after),
            }
            for each in rules.authorities(record.client_ca_pem)
        ],
        "applied": record.is_applied,
        "status_reason": _reason(record, instance),
        "updated_by": record.updated_by,
        "updated_at": timestamp(record.updated_at),
    }


def _reason(record: Network, instance: Instance) -> str | None:
    if record.is_applied:
        return None
    if instance.desired_status in GONE:
        return "the instance is deleted; the settings apply once it is restored"
    return record.status_reason or "the settings are being sent to the instance's cell"


def audited(wanted: Json) -> Json:
    """What goes to the audit log: the list in full, of a bundle its certificates."""
    told = {name: value for name, value in wanted.items() if name != "client_ca_pem"}
    if "client_ca_pem" in wanted:
        found = rules.authorities(wanted["client_ca_pem"])
        told["client_authorities"] = [each.sha256 for each in found]
    return told


def domain(record: Domain) -> Json:
    return {
        "id": record.id,
        "instance_id": record.instance_id,
        "hostname": record.hostname,
        "status": record.status,
        "status_reason": record.status_reason,
        "cname": {"name": record.hostname, "target": record.cname_target},
        "created_at": timestamp(record.created_at),
        "checked_at": timestamp_or_none(record.checked_at),
        "verified_at": timestamp_or_none(record.verified_at),
        "certificate": record.certificate,
    }
