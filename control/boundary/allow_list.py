"""Whether a caller may connect to an instance by the API: by the address that the request has."""

from typing import TYPE_CHECKING

from control.boundary import subjects
from control.policy import networks as rules
from specserver import Forbidden
from storage.errors import StateConflict
from storage.network import networks
from storage.network.networks import Network

if TYPE_CHECKING:  # the boundary makes calls, and asks this of them
    from control.boundary.call import Call


def check(network: Network, ip: str, feature: str) -> None:
    """The console and the queues are asked for from an address that may connect.

    The gateway cannot hold a caller of the API to the instance's network.

    Raises Forbidden for an address that is not on the allow-list, and StateConflict where clients
    must show certificates, which neither a page nor a request to the API can.
    """
    if network.client_ca_pem is not None:
        raise StateConflict(
            f"the instance requires client certificates, which {feature} cannot present"
        )
    if not rules.admits(network.allow_cidrs, ip):
        raise Forbidden(f"{ip} is not on the instance's allow-list", code="address_not_allowed")


def check_again(call: "Call") -> None:
    """Of who repeats a request: what a cell answered is the content of a database.

    The list may have changed since then.
    """
    instance = subjects.resolve(call, lock=False).get("instance")
    if instance is not None:
        check(networks.of_instance(call.db, instance), call.ip, "the queue API")
