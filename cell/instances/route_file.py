"""The file that the gateway reads: which host leads where, and what to say where none does."""

import contextlib
from collections.abc import Iterable
from typing import Any

import orjson

from cell.instances.hosted import ROUTED, HostedInstance
from cell.layout import Layout, write_atomically


class RouteFile:
    def __init__(self, layout: Layout, cell_host: str) -> None:
        self._layout = layout
        self._cell_host = cell_host
        self._written: dict[str, Any] = {}
        self._version = 0
        # On the first start there is none, and versions begin at one.
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            self._version = int(orjson.loads(layout.routes.read_bytes())["version"])

    def write(self, instances: Iterable[HostedInstance]) -> None:
        """Does nothing where nothing changed."""
        entries = {
            instance.record.spec.host: _route(instance)
            for instance in instances
            if instance.record.desired in ROUTED
        }
        if entries == self._written and self._layout.routes.exists():
            return
        self._version += 1
        document = {
            "version": self._version,
            "cell": {
                "host": self._cell_host,
                "socket": str(self._layout.socket),
                # An older gateway says nothing of who calls, and an older cell would not take it.
                "proxy_header": True,
            },
            "instances": entries,
        }
        write_atomically(self._layout.routes, orjson.dumps(document))
        self._written = entries


def _route(instance: HostedInstance) -> dict[str, Any]:
    spec = instance.record.spec
    state = instance.route_state
    refusals = {
        "paused": "the instance is paused; resume it to connect",
        "failed": "the instance has failed; see its status_reason",
    }
    return {
        "instance_id": instance.instance_id,
        "tenant": instance.record.tenant,
        "socket": str(instance.driver.socket(instance.site)),
        "protocol": instance.driver.protocol,
        "state": state,
        "allow_cidrs": None if spec.allow_cidrs is None else list(spec.allow_cidrs),
        "connections_max": spec.size.connections_max,
        "refusal": refusals.get(state),
        "domains": list(spec.domains),
        "client_ca_pem": spec.client_ca_pem,
        "logins": instance.proofs,
    }
