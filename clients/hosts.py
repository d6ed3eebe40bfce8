"""Which hosts are this machine, told by their names alone."""

import ipaddress
from typing import Final

LOOPBACK: Final = "127.0.0.1"


def is_local(host: str) -> bool:
    """Whether the host is this machine by its name alone."""
    host = host.rstrip(".").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
