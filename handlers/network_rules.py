"""What an instance's network means where the gateway cannot hold a caller to it."""

from control.policy import networks as rules
from specserver import Forbidden
from storage.errors import Conflict
from storage.networks import Network


def check_console(network: Network, ip: str) -> None:
    """The console is on the cell's host; so it is asked for from an address that may connect.

    Raises Forbidden for an address that is not on the allow-list, and Conflict where clients must
    show certificates, which a page cannot.
    """
    if network.client_ca_pem is not None:
        raise Conflict(
            "the instance requires client certificates, which the console cannot present"
        )
    if not rules.admits(network.allow_cidrs, ip):
        raise Forbidden(f"{ip} is not on the instance's allow-list", code="address_not_allowed")
