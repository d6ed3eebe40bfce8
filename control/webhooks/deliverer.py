"""The deliverer of an installation: all kinds of receivers, by its settings."""

from collections.abc import Sequence
from typing import Any

from control.delivery.deliverer import Deliverer
from control.delivery.dns_names import DnsNames
from control.delivery.guarded import GuardedClient
from control.delivery.lanes import LaneTarget
from control.services import Services
from control.siem.lane import SiemLanes
from control.webhooks.retries import WebhookRetries
from control.webhooks.sending import WebhookTarget, reach_of


def make_deliverer(
    services: Services, dns_servers: Sequence[str] = (), **options: Any
) -> Deliverer:
    """`options` are those of Deliverer, for tests."""

    def client() -> GuardedClient:
        return GuardedClient(reach_of(services), DnsNames(dns_servers))

    targets: list[LaneTarget] = [
        WebhookTarget(services),
        SiemLanes(services.sealer, reach_of(services)),
    ]
    return Deliverer(services.database, targets, [WebhookRetries(services)], client, **options)
