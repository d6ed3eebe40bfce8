"""The addresses of a host name, asked of the DNS without holding a thread.

The system's own look-up holds one for as long as a name server does not answer, which a tenant may
own: some slow ones would stop all deliveries. What is only in the system's file of hosts is not
found.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

import dns.asyncresolver
import dns.exception
import dns.resolver

from control.workflows.network.dns import servers_of

LOOKUP_S: Final = 3.0


class NameUnknown(Exception):  # noqa: N818 -- a state of the DNS
    """The name has no address now; the message says why."""


class Names(Protocol):
    async def addresses(self, host: str) -> list[str]:
        """All that it has, those of IPv4 first. Raises NameUnknown."""


class DnsNames:
    """Asks the servers given, as DnsResolver does, or the system's."""

    def __init__(self, servers: Sequence[str] = (), lookup_s: float = LOOKUP_S) -> None:
        self._servers, self._lookup_s = servers, lookup_s
        self._resolver: dns.asyncresolver.Resolver | None = None

    async def addresses(self, host: str) -> list[str]:
        if host == "localhost":
            return ["127.0.0.1", "::1"]
        found = await asyncio.gather(self._ask(host, "A"), self._ask(host, "AAAA"))
        failed = next((each for each in found if isinstance(each, NameUnknown)), None)
        known = [address for each in found if isinstance(each, list) for address in each]
        if not known:
            raise failed or NameUnknown("the host name has no address")
        return known

    async def _ask(self, host: str, kind: str) -> list[str] | NameUnknown:
        if self._resolver is None:
            # Late: a machine without a configuration of the DNS can still send to addresses.
            self._resolver = servers_of(self._servers)
        try:
            answer = await self._resolver.resolve(
                f"{host}.", kind, search=False, lifetime=self._lookup_s
            )
        except dns.resolver.NXDOMAIN:
            return NameUnknown("the host name does not exist in DNS")
        except dns.resolver.NoAnswer:
            return []
        except (dns.exception.DNSException, OSError):
            return NameUnknown("DNS does not answer for the host name")
        return [str(each.address) for each in answer]
