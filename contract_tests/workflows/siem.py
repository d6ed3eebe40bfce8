"""Deliveries to a SIEM, and what cells report for them."""

from typing import Any

from contract_tests.workflows.stage import Stage
from control.siem import targets
from storage import identifiers
from storage.database import now
from storage.events import siem_deliveries
from storage.events.siem_deliveries import SiemDelivery

SECRET = "whsec_Y2FuYXJ5LXNpZ25pbmctc2VjcmV0LW9mLTMyLWJ5dGVz"


def delivery(stage: Stage, org_id: str | None = None) -> SiemDelivery:
    """One that is enabled, to a URL that nobody serves."""
    made = SiemDelivery(
        id=identifiers.new("siem_"),
        org_id=org_id or stage.org_id,
        format="envelope",
        kind="webhook",
        target={"url": "https://siem.example.com/", "header_name": None},
        created_by="usr_x",
    )
    secrets = {targets.SIGNING_SECRET: SECRET}
    made.sealed = targets.seal(stage.services.sealer, made.id, secrets)
    with stage.database.write() as db:
        siem_deliveries.add(db, made, None, now(db))
    return made


def report(instance_id: str, **members: Any) -> dict[str, Any]:
    """Of a connection that has sent something."""
    return {
        "instance_id": instance_id,
        "connection_id": "con_0a1b2c3d4e5f6071",
        "client_ip": "198.51.100.7",
        "protocol": "postgres",
        "bytes_out": 5,
        **members,
    }
