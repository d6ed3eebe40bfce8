"""The gateway's pure parts: what a ClientHello, a PROXY header and a route say."""

import contextlib
import ipaddress
import json
import socket
import ssl
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import client_hello, proxy_header
from gateway.addresses import plain_address
from gateway.client_hello import ClientHello, NotTlsError
from gateway.listening import listen
from gateway.proxy_header import NotProxyError, ProxyHeader
from gateway.routes import Routes
from gateway.settings import GatewaySettings

labels = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
hosts = st.lists(labels, min_size=1, max_size=5).map(".".join).filter(lambda h: not h[-1].isdigit())


def hello(
    host: str | None,
    alpn: list[str] | None = None,
    most: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
) -> bytes:
    """What this machine's OpenSSL really sends."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.maximum_version = most
    context.check_hostname = False
    if alpn:
        context.set_alpn_protocols(alpn)
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=host)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def recut(record: bytes, cuts: list[int]) -> bytes:
    """The same handshake message in other records."""
    message, out, start = record[5:], b"", 0
    for end in [*sorted({cut % len(message) for cut in cuts} - {0}), len(message)]:
        out += struct.pack("!BBBH", 22, 3, 1, end - start) + message[start:end]
        start = end
    return out


@given(host=hosts, cuts=st.lists(st.integers(1, 10_000), max_size=8))
def test_the_host_is_read_however_the_message_is_cut(host: str, cuts: list[int]) -> None:
    sent = recut(hello(host, ["h2", "http/1.1"]), cuts)
    assert client_hello.parse(sent) == ClientHello(host, (b"h2", b"http/1.1"), offers_tls_1_3=True)


@given(host=hosts, cuts=st.lists(st.integers(1, 10_000), max_size=4), data=st.data())
def test_no_part_of_it_is_enough(host: str, cuts: list[int], data: st.DataObject) -> None:
    sent = recut(hello(host), cuts)
    count = data.draw(st.integers(0, len(sent) - 1))
    assert client_hello.parse(sent[:count]) is None


@given(host=hosts, data=st.data())
def test_damage_never_does_more_than_refuse(host: str, data: st.DataObject) -> None:
    sent = bytearray(hello(host))
    for _ in range(data.draw(st.integers(1, 5))):
        sent[data.draw(st.integers(0, len(sent) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(NotTlsError):
        client_hello.parse(sent)


@given(st.binary(max_size=200))
def test_noise_never_does_more_than_refuse(noise: bytes) -> None:
    with contextlib.suppress(NotTlsError):
        client_hello.parse(noise)
    with contextlib.suppress(NotTlsError):
        client_hello.parse(b"\x16\x03\x01" + noise)
    with contextlib.suppress(NotProxyError):
        proxy_header.parse(noise)
    with contextlib.suppress(NotProxyError):
        proxy_header.parse(proxy_header.SIGNATURE + noise)


def test_a_client_without_a_name_has_none() -> None:
    assert client_hello.parse(hello(None)) == ClientHello(None, (), offers_tls_1_3=True)


def test_a_client_that_has_tls_1_2_alone_is_known() -> None:
    sent = hello("a.example", most=ssl.TLSVersion.TLSv1_2)
    assert client_hello.parse(sent) == ClientHello("a.example", (), offers_tls_1_3=False)


def test_a_hello_that_claims_to_be_endless_is_refused() -> None:
    with pytest.raises(NotTlsError):
        client_hello.parse(b"\x16\x03\x01\x40\x00\x01\xff\xff\xff" + b"\x00" * 100)


def test_a_hello_in_many_records_is_refused() -> None:
    sent = hello("a.example", ["h2", "http/1.1"])
    few = recut(sent, list(range(1, client_hello.RECORDS_MAX)))
    assert client_hello.parse(few) == ClientHello(
        "a.example", (b"h2", b"http/1.1"), offers_tls_1_3=True
    )
    with pytest.raises(NotTlsError):
        client_hello.parse(recut(sent, list(range(1, client_hello.RECORDS_MAX + 1))))


addresses = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6))


@given(client=addresses, trailing=st.binary(max_size=50), extra=st.binary(max_size=50))
def test_a_proxy_header_names_its_client(
    client: ipaddress.IPv4Address | ipaddress.IPv6Address, trailing: bytes, extra: bytes
) -> None:
    body = client.packed * 2 + b"\x00\x01\x00\x02" + extra
    family = 0x11 if client.version == 4 else 0x21
    header = proxy_header.SIGNATURE + struct.pack("!BBH", 0x21, family, len(body)) + body
    found = proxy_header.parse(header + trailing)
    assert found is not None
    assert (found.client, found.size_bytes) == (str(client), len(header))
    assert proxy_header.parse(header[:-1]) is None


@given(client=addresses, token=st.binary(max_size=80), trailing=st.binary(max_size=50))
def test_what_is_announced_is_read_again(
    client: ipaddress.IPv4Address | ipaddress.IPv6Address, token: bytes, trailing: bytes
) -> None:
    header = proxy_header.build(str(client), token)
    assert proxy_header.parse(header + trailing) == ProxyHeader(str(client), len(header), token)


def test_a_balancers_own_check_names_no_client() -> None:
    header = proxy_header.SIGNATURE + b"\x20\x00\x00\x00"
    assert proxy_header.parse(header) == ProxyHeader(None, 16)


@given(client=st.ip_addresses(v=4), prefix=st.integers(0, 32), network=st.ip_addresses(v=4))
def test_an_address_is_admitted_as_arithmetic_says(
    tmp_path: Path, client: ipaddress.IPv4Address, prefix: int, network: ipaddress.IPv4Address
) -> None:
    path = tmp_path / "routes.json"
    entry = {"instance_id": "i", "socket": "s", "state": "running"}
    entry["allow_cidrs"] = [f"{network}/{prefix}"]  # type: ignore[assignment]
    path.write_text(json.dumps({"instances": {"h": entry}}))
    routes = Routes(path)
    assert routes.refresh()
    route = routes.find("h", ("https",))
    assert route is not None
    same = int(client) >> (32 - prefix) == int(network) >> (32 - prefix)
    assert route.admits(str(client)) == same
    assert route.admits(f"::ffff:{client}") == same
    assert not route.admits("2001:db8::1")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
entries = st.one_of(
    json_values,
    st.fixed_dictionaries(
        {"instance_id": json_values, "socket": json_values, "state": json_values},
        optional={"allow_cidrs": json_values, "connections_max": json_values, "cell": json_values},
    ),
)


@given(entry=entries, cell=json_values)
def test_a_nonsensical_entry_never_harms_the_others(
    tmp_path: Path, entry: object, cell: object
) -> None:
    path = tmp_path / "routes.json"
    good = {"instance_id": "i", "socket": "s", "state": "running", "allow_cidrs": ["192.0.2.0/24"]}
    path.write_text(json.dumps({"instances": {"bad": entry, "good": good}, "cell": cell}))
    routes = Routes(path)
    assert routes.refresh()
    route = routes.find("good", ("https",))
    assert route is not None
    assert not route.admits("127.0.0.1")
    routes.instance_ids()


def test_peers_that_are_gone_are_noticed(tmp_path: Path) -> None:
    settings = GatewaySettings(tmp_path, ports={"https": 0}, keepalive_s=40)
    (listening,) = listen(settings, frozenset({"https"}))[0]
    with listening.socket as listener, socket.create_connection(listener.getsockname()):
        listener.setblocking(True)
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 40
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 900_000
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


def test_an_ipv4_client_on_an_ipv6_socket_is_an_ipv4_client() -> None:
    assert str(plain_address("::ffff:192.0.2.1")) == "192.0.2.1"
    assert str(plain_address("fe80::1%eth0")) == "fe80::1"
