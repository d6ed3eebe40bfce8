"""Who may connect to an instance: the rules for allow-lists and for bundles of client CAs."""

import ipaddress
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from control.policy.violations import Violation
from gateway.client_chains import KEYS_ALLOWED, key_fault

AUTHORITIES_MAX: Final = 20
_KEY_MARK: Final = "PRIVATE KEY-----"
_EXAMPLE: Final = "203.0.113.0/24"


@dataclass(frozen=True)
class Authority:
    """A certificate that client certificates may come from."""

    subject: str
    sha256: str
    not_after: datetime


def normal_cidrs(cidrs: Sequence[str]) -> tuple[list[str], list[Violation]]:
    """The networks as they are kept, doubles left out; and everything that is wrong with them."""
    kept: dict[str, None] = {}
    wrong: list[Violation] = []
    for index, text in enumerate(cidrs):
        try:
            kept[str(_network(text))] = None
        except ValueError as error:
            wrong.append(
                Violation(
                    pointer=f"/allow_cidrs/{index}",
                    keyword="format",
                    message=f"{text!r} is not a valid CIDR network: {error}",
                )
            )
    return list(kept), wrong


def is_open(cidrs: Sequence[str] | None) -> bool:
    """Whether every address of IPv4 or of IPv6 may connect."""
    return cidrs is None or any(ipaddress.ip_network(each).prefixlen == 0 for each in cidrs)


def admits(cidrs: Sequence[str] | None, address: str) -> bool:
    """Whether the address is on the list, as the gateway finds it."""
    if cidrs is None:
        return True
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        # Not even the server knows who is calling.
        return False
    found = getattr(found, "ipv4_mapped", None) or found
    return any(found in ipaddress.ip_network(each) for each in cidrs)


def normal_authorities(pem: str, now: datetime) -> tuple[str, list[Violation]]:
    """The bundle as it is kept, its certificates written anew; and everything wrong with it.

    What was sent may be read in one way here and in another by the gateway, or not at all.
    """
    if _KEY_MARK in pem:
        return pem, [
            _wrong_bundle("contains a private key; send certificates only, and replace that key")
        ]
    try:
        found = _certificates(pem)
        kept = "".join(each.public_bytes(Encoding.PEM).decode() for each in found)
        # As the gateway will load it.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=kept)
    except (ValueError, ssl.SSLError):
        return pem, [_wrong_bundle("must be one or more PEM certificates, one after the other")]
    if len(found) > AUTHORITIES_MAX:
        return pem, [
            _wrong_bundle(f"has {len(found)} certificates; at most {AUTHORITIES_MAX} are allowed")
        ]
    return kept, [_wrong_bundle(fault) for each in found for fault in _faults(each, now)]


def _certificates(pem: str) -> list[x509.Certificate]:
    if any(not character.isprintable() and character not in "\t\r\n" for character in pem):
        raise ValueError("this is not text")
    return x509.load_pem_x509_certificates(pem.encode())


def authorities(pem: str | None) -> list[Authority]:
    """What a bundle that was checked holds."""
    if pem is None:
        return []
    return [
        Authority(
            subject=each.subject.rfc4514_string(),
            sha256=each.fingerprint(hashes.SHA256()).hex(),
            not_after=each.not_valid_after_utc,
        )
        for each in x509.load_pem_x509_certificates(pem.encode())
    ]


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        network = ipaddress.ip_network(text)
    except ValueError:
        try:
            loose = ipaddress.ip_network(text, strict=False)
        except ValueError:
            raise ValueError(f"write an address or a network, such as {_EXAMPLE}") from None
        raise ValueError(f"host bits are set; use {loose}") from None
    if isinstance(network, ipaddress.IPv6Network) and network.network_address.ipv4_mapped:
        raise ValueError("this is an IPv4 network in IPv6 form; write it as IPv4")
    if isinstance(network, ipaddress.IPv6Network) and network.network_address.scope_id:
        raise ValueError("zone identifiers are not allowed")
    return network


def _faults(certificate: x509.Certificate, now: datetime) -> Iterator[str]:
    name = certificate.subject.rfc4514_string() or "without a name"
    try:
        basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except (x509.ExtensionNotFound, ValueError):
        basic = None
    if basic is None or not basic.ca:
        yield f"certificate {name} is not a CA certificate (basicConstraints CA is not set)"
    if certificate.not_valid_after_utc <= now:
        yield f"certificate {name} expired at {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
    fault = key_fault(certificate)
    if fault is not None:
        yield f"certificate {name} {fault}; allowed are {KEYS_ALLOWED}"


def _wrong_bundle(fault: str) -> Violation:
    message = f"the bundle {fault}" if not fault.startswith("certificate") else fault
    return Violation(pointer="/client_ca_pem", keyword="format", message=message)
