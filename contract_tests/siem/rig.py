"""Deliveries of one organization, with times that are short, and all that is sent of it."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from contract_tests.siem.receiver import Receiver
from contract_tests.workflows import siem
from contract_tests.workflows.stage import Stage
from control.delivery.deliverer import Deliverer
from control.delivery.dns_names import DnsNames
from control.delivery.guarded import GuardedClient
from control.delivery.receiver_urls import Reach
from control.siem import targets
from control.siem.lane import SiemLanes, Times
from storage import identifiers
from storage.database import now
from storage.events import audit, audit_chain, egress, events, siem_deliveries
from storage.events.siem_deliveries import SiemDelivery

HERE = Reach(here=True)
FAST = Times(
    every_s=0.02,
    first_retry_s=0.02,
    last_retry_s=0.05,
    interrupted_after_s=0.1,
    nothing_kept_s=0.05,
)
WAIT_S = 20.0


class Rig:
    def __init__(self, stage: Stage, receiver: Receiver) -> None:
        self.stage, self.receiver = stage, receiver
        self.database, self.org_id = stage.database, stage.org_id
        self.running: list[Deliverer] = []

    def close(self) -> None:
        for each in self.running:
            each.stop()
        self.stage.close()

    def deliverer(
        self, times: Times = FAST, reach: Reach = HERE, lease_s: float = 60.0
    ) -> Deliverer:
        """One that runs."""
        made = Deliverer(
            self.database,
            [SiemLanes(self.stage.services.sealer, reach, times)],
            [],
            lambda: GuardedClient(reach, DnsNames()),
            lease_s=lease_s,
        )
        made.start()
        self.running.append(made)
        return made

    def deliver_to(
        self,
        target: dict[str, Any] | None = None,
        *,
        format_: str = "envelope",
        begin_at: datetime | None = None,
        org_id: str | None = None,
        **secrets: str,
    ) -> str:
        """The id of a delivery, to the receiver unless another target is given."""
        shown = target or {"url": self.receiver.url, "header_name": "Authorization"}
        kind = "s3" if "bucket" in shown else "webhook"
        if kind == "webhook":
            secrets = {
                "header_value": "Splunk canary-token",
                "signing_secret": siem.SECRET,
            } | secrets
        made = SiemDelivery(
            id=identifiers.new("siem_"),
            org_id=org_id or self.org_id,
            format=format_,
            kind=kind,
            target=shown,
            created_by="usr_x",
        )
        made.sealed = targets.seal(self.stage.services.sealer, made.id, secrets)
        with self.database.write() as db:
            siem_deliveries.add(db, made, begin_at, now(db))
        return made.id

    def enter(self, count: int = 1, org_id: str | None = None, **detail: Any) -> list[str]:
        """The ids of entries of the audit log, sealed."""
        org_id = org_id or self.org_id
        with self.database.write() as db:
            made = [
                audit.append(db, org_id, "project.create", actor_kind="system", detail=detail)
                for _ in range(count)
            ]
        with self.database.write() as db:
            audit_chain.seal(db, org_id, count)
        return made

    def happen(self, count: int = 1) -> list[str]:
        """The ids of events."""
        ids = []
        for _ in range(count):
            with self.database.write() as db:
                data = {"user_id": "usr_01JD7QK3V8Y2M4N6P8R0S2T4V6", "role": "x", "left": True}
                ids.append(events.append(db, self.org_id, "org.member.removed.v1", data).id)
        return ids

    def send_out(self, count: int = 1) -> None:
        at = "2026-11-21T09:00:00.000Z"
        data = siem.report("inst_01JD7QK3V8Y2M4N6P8R0S2T4V6", since=at, until=at)
        with self.database.write() as db:
            egress.append(
                db, self.org_id, [(identifiers.new("evt_"), datetime.now(UTC), data)] * count
            )

    def delivery(self, delivery_id: str) -> SiemDelivery:
        with self.database.read() as db:
            return db.get_one(SiemDelivery, delivery_id)

    def until(self, found: Callable[[], Any], what: str) -> None:
        end = time.monotonic() + WAIT_S
        while not found():
            assert time.monotonic() < end, f"not within {WAIT_S} s: {what}"
            time.sleep(0.01)

    def until_received(self, *ids: str) -> list[dict[str, Any]]:
        """The lines, once they have all these ids."""
        wanted = set(ids)
        self.until(
            lambda: wanted <= {each["id"] for each in self.receiver.lines},
            f"{len(wanted)} lines are received",
        )
        return self.receiver.lines
