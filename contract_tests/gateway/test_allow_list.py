"""The allow-list is checked before anything else, for both families, and changes within 2 s."""

import contextlib
import ipaddress
import ssl
import struct

import pytest

from contract_tests.gateway.backends import http
from contract_tests.gateway.conftest import MakeGateway
from contract_tests.gateway.rig import ZONE, GatewayRig, has_ipv6, raw_get, until
from gateway.proxy_header import SIGNATURE

CHANGE_APPLIES_S = 2.0


def is_let_in(
    gateway: GatewayRig, host: str, address: str = "127.0.0.1", source: str | None = None
) -> bool:
    try:
        with gateway.connect(host, address=address, source=source) as connection:
            return raw_get(connection)[0] == 200
    except (ssl.SSLError, ConnectionError, AssertionError):
        # The last where the list changed between the handshake and the request.
        return False


def test_only_listed_ipv4_clients_get_in(gateway: GatewayRig) -> None:
    host = gateway.add_instance("listed", allow_cidrs=["127.0.0.2/32", "10.0.0.0/8"])
    assert is_let_in(gateway, host, source="127.0.0.2")
    assert not is_let_in(gateway, host, source="127.0.0.3")


def test_an_empty_list_admits_nobody_and_none_everybody(gateway: GatewayRig) -> None:
    assert not is_let_in(gateway, gateway.add_instance("nobody", allow_cidrs=[]))
    assert is_let_in(gateway, gateway.add_instance("everybody", allow_cidrs=None))
    assert is_let_in(gateway, gateway.add_instance("flagged", allow_cidrs=["0.0.0.0/0"]))


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 loopback on this machine")
def test_only_listed_ipv6_clients_get_in(gateway: GatewayRig) -> None:
    host = gateway.add_instance("six", allow_cidrs=["::1/128"])
    assert is_let_in(gateway, host, address="::1")
    assert not is_let_in(gateway, host, address="127.0.0.1")
    other = gateway.add_instance("six-other", allow_cidrs=["2001:db8::/32", "0.0.0.0/0"])
    assert not is_let_in(gateway, other, address="::1")


def test_a_refused_client_gets_no_byte_of_tls_and_reaches_no_backend(
    make_gateway: MakeGateway,
) -> None:
    # Only the refusal can end the connection before the test's own patience does.
    gateway = make_gateway(handshake_timeout_s=3600.0)
    host = gateway.add_instance("before", backend=False, allow_cidrs=["192.0.2.0/24"])
    backend = gateway.serve(gateway.home / "run" / "before.sock", _never)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = gateway.context().wrap_bio(incoming, outgoing, server_hostname=host)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    with gateway.dial() as connection:
        connection.sendall(outgoing.read())
        assert connection.recv(100) == b""
    assert backend.connections == 0


async def _never(reader: object, writer: object) -> None:
    raise AssertionError("a refused client reached the backend")


@pytest.mark.exclusive  # it holds a promised time
def test_a_change_applies_within_two_seconds_and_cuts_nobody(gateway: GatewayRig) -> None:
    host = gateway.add_instance("change")
    with gateway.connect(host) as established:
        assert raw_get(established)[0] == 200
        gateway.set_route(host, allow_cidrs=["192.0.2.0/24"])
        until(lambda: not is_let_in(gateway, host), "the list applies", CHANGE_APPLIES_S)
        assert raw_get(established)[0] == 200
        gateway.set_route(host, allow_cidrs=["127.0.0.1"])
        until(lambda: is_let_in(gateway, host), "the list applies", CHANGE_APPLIES_S)
        del gateway.routes[host]
        gateway.write_routes()
        until(lambda: not gateway.knows(host), "the route is gone", CHANGE_APPLIES_S)
        assert raw_get(established)[0] == 200


def test_an_entry_that_cannot_be_read_opens_nothing(gateway: GatewayRig) -> None:
    broken = gateway.add_instance("broken", allow_cidrs=["192.0.2.0/24"])
    other = gateway.add_instance("beside", allow_cidrs=None)
    gateway.routes[broken]["allow_cidrs"] = ["not a network"]
    gateway.set_route(other, allow_cidrs=["192.0.2.0/24"])
    until(lambda: not is_let_in(gateway, other), "changes beside the broken entry apply")
    assert not is_let_in(gateway, broken)
    del gateway.routes[broken]
    gateway.write_routes()


# Behind a load balancer.


def proxied(client: str) -> bytes:
    address = ipaddress.ip_address(client)
    ports = struct.pack("!HH", 50_000, 443)
    body = address.packed * 2 + ports
    family = 0x11 if address.version == 4 else 0x21
    return SIGNATURE + struct.pack("!BBH", 0x21, family, len(body)) + body


def status_through(gateway: GatewayRig, host: str, preface: bytes) -> int | None:
    plain = gateway.dial()
    plain.sendall(preface)
    try:
        with gateway.context().wrap_socket(plain, server_hostname=host) as connection:
            return raw_get(connection)[0]
    except (ssl.SSLError, ConnectionError):
        return None
    finally:
        plain.close()


def test_behind_a_balancer_its_word_is_the_address(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(proxy_cidrs=["127.0.0.1/8"])
    host = f"duckdb-proxied.{ZONE}"
    gateway.routes[host] = {
        "instance_id": "inst_proxied",
        "socket": str(gateway.home / "run" / "proxied.sock"),
        "protocol": "https",
        "state": "running",
        "allow_cidrs": ["203.0.113.7", "2001:db8::7"],
        "connections_max": 10,
    }
    gateway.serve(gateway.home / "run" / "proxied.sock", http("proxied"))
    gateway.write_routes()
    until(lambda: status_through(gateway, host, proxied("203.0.113.7")) == 200, "it is routed")
    assert status_through(gateway, host, proxied("2001:db8::7")) == 200
    assert status_through(gateway, host, proxied("::ffff:203.0.113.7")) == 200
    assert status_through(gateway, host, proxied("203.0.113.8")) is None
    assert status_through(gateway, host, proxied("2001:db8::8")) is None
    # Without its header nothing of it is believed.
    assert status_through(gateway, host, b"") is None


def test_others_cannot_claim_an_address(gateway: GatewayRig) -> None:
    host = gateway.add_instance("claimed", backend=False, allow_cidrs=["203.0.113.7"])
    backend = gateway.serve(gateway.home / "run" / "claimed.sock", http("claimed"))
    assert status_through(gateway, host, proxied("203.0.113.7")) is None
    assert backend.connections == 0


VERSION_1 = b"PROXY TCP4 203.0.113.7 192.0.2.1 50000 443\r\n"


@pytest.mark.parametrize("proxy_cidrs", [[], ["127.0.0.0/8"]])
def test_version_1_of_the_header_is_believed_from_nobody(
    make_gateway: MakeGateway, proxy_cidrs: list[str]
) -> None:
    gateway = make_gateway(proxy_cidrs=proxy_cidrs)
    host = f"duckdb-former.{ZONE}"
    gateway.routes[host] = {
        "instance_id": "inst_former",
        "socket": str(gateway.home / "run" / "former.sock"),
        "protocol": "https",
        "state": "running",
        "allow_cidrs": ["203.0.113.7"] if proxy_cidrs else None,
        "connections_max": 10,
    }
    backend = gateway.serve(gateway.home / "run" / "former.sock", http("former"))
    gateway.write_routes()
    believed = proxied("203.0.113.7") if proxy_cidrs else b""
    until(lambda: status_through(gateway, host, believed) == 200, "it is routed")
    served = backend.connections
    assert status_through(gateway, host, VERSION_1 + believed) is None
    assert status_through(gateway, host, believed + VERSION_1) is None
    assert backend.connections == served
