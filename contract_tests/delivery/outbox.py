"""An organization with events and endpoints, and a deliverer for them."""

import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import select

from clients import webhook_signing as signing
from contract_tests.workflows.stage import Stage
from control import events
from control.delivery.deliverer import Deliverer
from control.webhooks.deliverer import make_deliverer
from control.webhooks.sending import secret_context
from storage.access import memberships, users
from storage.events import delivery_lanes, webhook_endpoints
from storage.events.delivery_lanes import DeliveryLane
from storage.events.webhook_deliveries import WebhookDelivery
from storage.events.webhook_endpoints import WebhookEndpoint
from storage.identifiers import new


class Outbox:
    def __init__(self, url: str, cell_path: Path) -> None:
        self.stage = Stage(url, cell_path)
        settings = replace(self.stage.services.settings, webhook_insecure_localhost=True)
        self.services = replace(self.stage.services, settings=settings)
        self.database, self.org_id = self.stage.database, self.stage.org_id
        self._deliverers: list[Deliverer] = []
        with self.database.write() as db:
            owner = users.create(db, email=f"{new('').lower()}@example.com", name="Owner")
            memberships.create(db, self.org_id, owner.id, "owner")
            self.owner_email = owner.email

    def close(self) -> None:
        for each in self._deliverers:
            each.stop()
        self.stage.close()

    def deliver(self, **options: Any) -> Deliverer:
        made = make_deliverer(self.services, **options)
        self._deliverers.append(made)
        made.start()
        return made

    def stop(self, deliverer: Deliverer) -> None:
        deliverer.stop()
        self._deliverers.remove(deliverer)

    def endpoint(
        self, url: str, patterns: tuple[str, ...] = ("*",), filters: Any = None
    ) -> tuple[str, str]:
        """Its id and its secret."""
        made, secret = webhook_endpoints.new_id(), signing.new_secret()
        sealed = self.services.sealer.seal(secret.encode(), secret_context(made))
        of = {"url": url, "description": "", "events": list(patterns), "filters": filters or {}}
        with self.database.write() as db:
            webhook_endpoints.create(
                db,
                made,
                self.org_id,
                self.database.now(db),
                **of,
                enabled=True,
                secret_sealed=sealed,
                created_by="usr_x",
            )
        return made, secret

    def publish(self, count: int) -> list[str]:
        """So many events; their ids in their order."""
        ids: list[str] = []
        for _ in range(count):
            with self.database.write() as db:
                told = {"user_id": new("usr_"), "role": "member", "left": True}
                events.publish(db, self.org_id, "org.member.removed.v1", told)
                ids += [each.id for each in db.info["menagerie_events"]]
        return ids

    def publish_many(self, count: int) -> list[str]:
        """As `publish`, hundreds in a transaction."""
        ids: list[str] = []
        while len(ids) < count:
            with self.database.write() as db:
                for _ in range(min(500, count - len(ids))):
                    told = {"user_id": new("usr_"), "role": "member", "left": True}
                    events.publish(db, self.org_id, "org.member.removed.v1", told)
                ids += [each.id for each in db.info["menagerie_events"]]
        return ids

    def record(self, endpoint_id: str) -> WebhookEndpoint:
        with self.database.read() as db:
            found = webhook_endpoints.find(db, endpoint_id)
            assert found is not None
            return found

    def lane(self, endpoint_id: str) -> DeliveryLane:
        with self.database.read() as db:
            return delivery_lanes.fetch(db, endpoint_id)

    def deliveries(self, endpoint_id: str) -> list[WebhookDelivery]:
        rows = select(WebhookDelivery).where(WebhookDelivery.webhook_id == endpoint_id)
        with self.database.read() as db:
            return list(db.scalars(rows.order_by(WebhookDelivery.id)))

    @contextmanager
    def changed(self, endpoint_id: str) -> Any:
        with self.database.write() as db:
            yield (
                db,
                db.get_one(WebhookEndpoint, endpoint_id),
                delivery_lanes.fetch(db, endpoint_id),
            )

    def retry_now(self, endpoint_id: str) -> None:
        """As if the time until the next attempt had passed."""
        with self.database.write() as db:
            moment = self.database.now(db)
            rows = select(WebhookDelivery).where(
                WebhookDelivery.webhook_id == endpoint_id,
                WebhookDelivery.next_attempt_at.is_not(None),
            )
            for one in db.scalars(rows):
                one.next_attempt_at = moment
            delivery_lanes.fetch(db, endpoint_id).retry_at = moment


def until(holds: Callable[[], Any], deadline_s: float = 60, *, every_s: float = 0.01) -> None:
    """`every_s`: how often is looked, which takes from what is looked at."""
    end = time.monotonic() + deadline_s
    while not holds():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(every_s)
