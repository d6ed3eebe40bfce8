"""DNS as the control plane asks it: where a host name leads by CNAME, and what its TXT says."""

import asyncio
import contextlib
import ipaddress
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import urlsplit

import dns.asyncresolver
import dns.exception
import dns.nameserver
import dns.resolver

from gateway.peer_texts import printable

LOOKUP_S: Final = 2.0
CHAIN_MAX: Final = 8
DNS_PORT: Final = 53
REASON_MAX: Final = 300


class LookupFailed(Exception):  # noqa: N818 - a state of the DNS
    """The DNS gave no answer now; the same question may be answered later."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


@dataclass(frozen=True)
class Found:
    """The names that a host name leads to, nearest first; `reason` says why there is none."""

    targets: tuple[str, ...]
    reason: str | None = None


@dataclass(frozen=True)
class Texts:
    """The TXT records at a name itself; `is_alias` where it is an alias (CNAME) of another."""

    values: frozenset[str] = frozenset()
    is_alias: bool = False


class Resolver(Protocol):
    def cnames(self, hostnames: Collection[str]) -> dict[str, Found | LookupFailed]:
        """What was found for each, all of them asked for at once."""

    def texts(self, names: Collection[str]) -> dict[str, Texts | LookupFailed]:
        """As `cnames`, the TXT records at each."""


class DnsResolver:
    """Asks the servers given (`address`, `address:port`, `[address]:port`), or the system's.

    Raises ValueError for a server that is none of these.
    """

    def __init__(self, servers: Sequence[str] = (), lookup_s: float = LOOKUP_S) -> None:
        self._resolver = servers_of(servers)
        self._lookup_s = lookup_s

    def cnames(self, hostnames: Collection[str]) -> dict[str, Found | LookupFailed]:
        return asyncio.run(self._look_up(list(hostnames)))

    async def _look_up(self, hostnames: Sequence[str]) -> dict[str, Found | LookupFailed]:
        found = await asyncio.gather(*map(self._cname, hostnames))
        return dict(zip(hostnames, found, strict=True))

    async def _cname(self, hostname: str) -> Found | LookupFailed:
        targets: list[str] = []
        name, reason = hostname, None
        # In all: whoever asks has a thread of a worker, which every organization needs.
        deadline = time.monotonic() + self._lookup_s
        while len(targets) < CHAIN_MAX:
            try:
                answer = await self._resolver.resolve(
                    f"{name}.",
                    "CNAME",
                    search=False,
                    lifetime=max(deadline - time.monotonic(), 0.001),
                )
            except dns.resolver.NXDOMAIN:
                reason = f"{name} does not exist in DNS"
                break
            except dns.resolver.NoAnswer:
                reason = f"{name} has no CNAME record"
                break
            except dns.exception.DNSException as error:
                return LookupFailed(f"DNS did not answer for {name}: {_said(error)}")
            name = str(answer[0].target).rstrip(".").lower()
            targets.append(name)
        return Found(tuple(targets), None if targets else reason)

    def texts(self, names: Collection[str]) -> dict[str, Texts | LookupFailed]:
        return asyncio.run(self._look_up_texts(list(names)))

    async def _look_up_texts(self, names: Sequence[str]) -> dict[str, Texts | LookupFailed]:
        found = await asyncio.gather(*map(self._texts, names))
        return dict(zip(names, found, strict=True))

    async def _texts(self, name: str) -> Texts | LookupFailed:
        """An alias is not followed: a wildcard of it would let others speak for the name."""
        try:
            answer = await self._resolver.resolve(
                f"{name}.", "TXT", search=False, lifetime=self._lookup_s
            )
        except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
            return Texts()
        except dns.exception.DNSException as error:
            return LookupFailed(f"DNS did not answer for {name}: {_said(error)}")
        if answer.canonical_name != answer.qname:
            return Texts(is_alias=True)
        # One record is at most 64 KiB, in texts of at most 255 bytes that belong together.
        values = (b"".join(one.strings) for one in answer)
        return Texts(frozenset(value.decode(errors="replace") for value in values))


def servers_of(servers: Sequence[str]) -> dns.asyncresolver.Resolver:
    """A resolver that asks these, or the system's; ValueError for one that is none."""
    resolver = dns.asyncresolver.Resolver(configure=not servers)
    if servers:
        resolver.nameservers = [_server(each) for each in servers]
    # Whoever verifies has just changed the record.
    resolver.cache = None
    return resolver


def _server(text: str) -> dns.nameserver.Nameserver:
    with contextlib.suppress(ValueError):
        return dns.nameserver.Do53Nameserver(str(ipaddress.ip_address(text)))
    place = urlsplit(f"//{text}")
    address = str(ipaddress.ip_address(place.hostname or ""))
    return dns.nameserver.Do53Nameserver(address, place.port or DNS_PORT)


def _said(error: dns.exception.DNSException) -> str:
    if isinstance(error, dns.exception.Timeout):
        return type(error).__name__
    return printable(str(error), REASON_MAX)
