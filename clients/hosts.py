"""Which hosts are this machine, told by their names, and whether those resolve here."""

import functools
import ipaddress
import socket
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


def needs_address(host: str) -> bool:
    """Whether programs must be told the address: many systems do not resolve `*.localhost`."""
    return is_local(host) and not _leads_here(host)


@functools.cache
def _leads_here(host: str) -> bool:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return LOOPBACK in {address[4][0] for address in found}
