"""What an instance's network means where the gateway cannot hold a caller to it."""

from control.policy import networks as rules
from specserver import Forbidden
from storage.errors import Conflict
from storage.network.networks import Network


def check(network: Network, ip: str, way_in: str) -> None:
    """The console and the queues are asked for from an address that may connect.

    Raises Forbidden for an address that is not on the allow-list, and Conflict where clients must
    show certificates, which neither a page nor a request to the API can.
    """
    if network.client_ca_pem is not None:
        raise Conflict(f"the instance requires client certificates, which {way_in} cannot present")
    if not rules.admits(network.allow_cidrs, ip):
        raise Forbidden(f"{ip} is not on the instance's allow-list", code="address_not_allowed")
