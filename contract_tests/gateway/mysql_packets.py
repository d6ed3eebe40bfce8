"""Packets of MySQL that clients and servers send and the gateway only reads."""

import struct

from gateway.protocols import mysql_wire as wire


def ssl_request(
    capabilities: int = wire.PROTOCOL_41 | wire.SSL,
    packet_max_bytes: int = 0,
    collation: int = wire.UTF8MB4_GENERAL_CI,
) -> bytes:
    low, extended = capabilities & 0xFFFF_FFFF, capabilities >> wire.EXTENDED_SHIFT
    fixed = struct.pack("<IIB", low, packet_max_bytes, collation)
    return fixed + bytes(wire.RESERVED_BYTES) + struct.pack("<I", extended)


def auth_switch(plugin: bytes, data: bytes) -> bytes:
    return bytes((wire.AUTH_SWITCH,)) + plugin + b"\0" + data + b"\0"
