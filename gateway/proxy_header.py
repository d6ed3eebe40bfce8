"""The PROXY v2 header: read where a load balancer puts it, written for the cell."""

import ipaddress
import struct
from dataclasses import dataclass

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
HEADER_BYTES = 16
BODY_MAX_BYTES = 4_096
VERSION_2, LOCAL, PROXY = 0x20, 0x00, 0x01
TCP_OVER_IPV4, TCP_OVER_IPV6 = 0x11, 0x21
IPV4_BYTES, IPV6_BYTES = 12, 36
# One of the types that the format leaves to applications: a secret that the cell knows ours by.
TOKEN = 0xE0
TLV_HEAD = struct.Struct("!BH")


class NotProxyError(Exception):
    """These bytes are not a PROXY v2 header."""


@dataclass(frozen=True, slots=True)
class ProxyHeader:
    """`client` is None where the balancer speaks for itself (a health check)."""

    client: str | None
    size_bytes: int
    token: bytes = b""


def build(client: str, token: bytes) -> bytes:
    """Where the connection leads is of no interest to who reads this, and left zero."""
    packed = ipaddress.ip_address(client).packed
    family = TCP_OVER_IPV4 if len(packed) == 4 else TCP_OVER_IPV6  # noqa: PLR2004 - IPv4's bytes
    addresses = packed + bytes(len(packed) + 4)
    body = addresses + TLV_HEAD.pack(TOKEN, len(token)) + token
    return SIGNATURE + struct.pack("!BBH", VERSION_2 | PROXY, family, len(body)) + body


def parse(data: bytes | bytearray) -> ProxyHeader | None:
    """None while more bytes are needed."""
    if not SIGNATURE.startswith(bytes(data[: len(SIGNATURE)])):
        raise NotProxyError("a PROXY v2 header was expected")
    if len(data) < HEADER_BYTES:
        return None
    command, family, length = struct.unpack_from("!BBH", data, len(SIGNATURE))
    if command & 0xF0 != VERSION_2 or command & 0x0F > PROXY or length > BODY_MAX_BYTES:
        raise NotProxyError("a PROXY v2 header was expected")
    size = HEADER_BYTES + length
    if len(data) < size:
        return None
    if command & 0x0F == LOCAL:
        return ProxyHeader(None, size)
    body = bytes(data[HEADER_BYTES:size])
    if family == TCP_OVER_IPV4 and length >= IPV4_BYTES:
        return ProxyHeader(str(ipaddress.IPv4Address(body[:4])), size, _token(body[IPV4_BYTES:]))
    if family == TCP_OVER_IPV6 and length >= IPV6_BYTES:
        return ProxyHeader(str(ipaddress.IPv6Address(body[:16])), size, _token(body[IPV6_BYTES:]))
    raise NotProxyError("the PROXY v2 header names no TCP client")


def _token(extensions: bytes) -> bytes:
    """What balancers add is theirs; none of it, however broken, makes the address another."""
    while len(extensions) >= TLV_HEAD.size:
        kind, length = TLV_HEAD.unpack_from(extensions)
        value, extensions = (
            extensions[TLV_HEAD.size : TLV_HEAD.size + length],
            extensions[TLV_HEAD.size + length :],
        )
        if kind == TOKEN and len(value) == length:
            return value
    return b""
