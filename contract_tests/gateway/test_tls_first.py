"""MongoDB's and ClickHouse's protocols, spoken to peers that stand in for their engines."""

import asyncio
import hashlib
import os
import socket
import ssl
import struct
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from contract_tests.gateway.backends import http
from contract_tests.gateway.conftest import MakeGateway
from contract_tests.gateway.rig import WAIT_S, GatewayRig, raw_get, receive, until

MEGABYTE = 1_000_000
OP_REPLY, OP_QUERY, OP_MSG = 1, 2004, 2013
CLICKHOUSE_HELLO = b"\x00\x11ClickHouse client\x18\x0c\xb2\xa9\x03\x00\x07default\x00"
LIMITS: dict[str, Any] = {"state": "running", "connections_max": 0}
PAUSED: dict[str, Any] = {"state": "paused", "refusal": "the instance is paused"}


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()


def dial(gateway: GatewayRig, protocol: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", gateway.ports[protocol]), WAIT_S)


def connect(gateway: GatewayRig, protocol: str, host: str) -> ssl.SSLSocket:
    return gateway.context().wrap_socket(dial(gateway, protocol), server_hostname=host)


def receive_all(connection: socket.socket) -> bytes:
    received = b""
    while data := connection.recv(65_536):
        received += data
    return received


# Both: bytes go through as they are.


@pytest.mark.parametrize(
    ("protocol", "first"),
    [("mongodb", b"\x14\0\0\0\1\0\0\0\0\0\0\0\xdd\x07\0\0\0\0\0\0"), ("clickhouse", b"\0")],
)
def test_bytes_go_both_ways_unchanged(
    protocols_gateway: GatewayRig, protocol: str, first: bytes
) -> None:
    host = protocols_gateway.add_instance(f"echo-{protocol}", _echo, protocol=protocol)
    content = first + os.urandom(5 * MEGABYTE)
    with connect(protocols_gateway, protocol, host) as connection:
        seen, position = hashlib.sha256(), 0
        while position < len(content):
            sent = content[position : position + 100_000]
            connection.sendall(sent)
            position += len(sent)
            left = len(sent)
            while left:
                data = receive(connection)
                seen.update(data)
                left -= len(data)
    assert seen.digest() == hashlib.sha256(content).digest()


def test_a_host_is_found_on_the_port_of_its_protocol_only(protocols_gateway: GatewayRig) -> None:
    host = protocols_gateway.add_instance("own-port", _echo, protocol="mongodb")
    connect(protocols_gateway, "mongodb", host).close()
    for protocol in ("clickhouse", "resp", "https"):
        with pytest.raises(ssl.SSLError, match="UNRECOGNIZED_NAME"):
            connect(protocols_gateway, protocol, host)


# MongoDB.


def message(operation: int = OP_MSG, request_id: int = 77) -> bytes:
    """A hello, as drivers say it: by OP_MSG today, by OP_QUERY where they are older."""
    document = struct.pack("<i", 25) + b"\x10hello\0\1\0\0\0\2$db\0\1\0\0\0\0\0"
    body = bytes(4) + b"\0" + document
    if operation == OP_QUERY:
        body = bytes(4) + b"admin.$cmd\0" + struct.pack("<ii", 0, -1) + document
    return struct.pack("<iiii", 16 + len(body), request_id, 0, operation) + body


def read_answer(data: bytes) -> dict[str, float | int | str]:
    """The document of an answer to request 77."""
    size, _, answers, operation = struct.unpack_from("<iiii", data)
    assert (size, answers) == (len(data), 77)
    if operation == OP_MSG:
        assert data[16:21] == bytes(5)  # no flags; one document
        return read_document(data[21:])
    assert operation == OP_REPLY
    assert struct.unpack_from("<iqii", data, 16) == (0, 0, 0, 1)
    return read_document(data[36:])


def read_document(data: bytes) -> dict[str, float | int | str]:
    assert struct.unpack_from("<i", data)[0] == len(data)
    position, found = 4, {}
    while kind := data[position]:
        end = data.index(b"\0", position)
        name, position = data[position + 1 : end].decode(), end + 1
        if kind == 1:
            value: float | int | str = struct.unpack_from("<d", data, position)[0]
            position += 8
        elif kind == 16:
            value = struct.unpack_from("<i", data, position)[0]
            position += 4
        else:
            assert kind == 2
            length = struct.unpack_from("<i", data, position)[0]
            text = data[position + 4 : position + 4 + length]
            assert text.endswith(b"\0")
            value, position = text[:-1].decode(), position + 4 + length
        found[name] = value
    assert position == len(data) - 1
    return found


@pytest.mark.parametrize("operation", [OP_MSG, OP_QUERY])
def test_mongodb_is_answered_in_the_form_of_its_question(
    protocols_gateway: GatewayRig, operation: int
) -> None:
    host = protocols_gateway.add_instance(
        f"mongo-full-{operation}", _echo, protocol="mongodb", **LIMITS
    )
    with connect(protocols_gateway, "mongodb", host) as connection:
        for byte in message(operation):
            connection.sendall(bytes((byte,)))
        answer = read_answer(receive_all(connection))
    assert answer["ok"] == 0.0
    assert (answer["code"], answer["codeName"]) == (462, "IngressRequestRateLimitExceeded")
    assert answer["errmsg"] == "too many connections: this size allows 0"


def test_mongodb_paused_is_a_host_to_try_later(protocols_gateway: GatewayRig) -> None:
    host = protocols_gateway.add_instance("mongo-paused", _echo, protocol="mongodb", **PAUSED)
    with connect(protocols_gateway, "mongodb", host) as connection:
        connection.sendall(message())
        answer = read_answer(receive_all(connection))
    assert answer == {
        "ok": 0.0,
        "errmsg": "the instance is paused",
        "code": 6,
        "codeName": "HostUnreachable",
    }


@pytest.mark.parametrize("operation", [OP_MSG, OP_QUERY])
def test_mongodb_in_plaintext_is_told_to_use_tls(
    protocols_gateway: GatewayRig, operation: int
) -> None:
    with dial(protocols_gateway, "mongodb") as plain:
        plain.sendall(message(operation)[:10])
        plain.sendall(message(operation)[10:])
        answer = read_answer(receive_all(plain))
    assert (answer["code"], answer["codeName"]) == (141, "SSLHandshakeFailed")
    assert "tls=true" in str(answer["errmsg"])


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 40, message(1)])
def test_what_is_no_message_of_mongodb_is_hung_up_on(
    protocols_gateway: GatewayRig, sent: bytes
) -> None:
    with dial(protocols_gateway, "mongodb") as plain:
        plain.sendall(sent)
        assert not receive_all(plain)


def test_half_a_message_is_no_request(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(ports={"mongodb": 0}, first_request_timeout_s=0.5)
    host = gateway.add_instance("mongo-half", backend=False, protocol="mongodb")
    backend = gateway.serve(gateway.home / "run" / "mongo-half.sock", _echo)
    with connect(gateway, "mongodb", host) as connection:
        connection.sendall(message()[:-1])
        assert not receive_all(connection)
    assert backend.connections == 0


# ClickHouse.


def read_exception(data: bytes) -> tuple[int, str, str]:
    """Code, name and message, as a native client reads them."""
    assert data[0] == 2  # an exception
    code = struct.unpack_from("<i", data, 1)[0]
    position, strings = 5, []
    for _ in range(3):
        length, shift = 0, 0
        while True:
            byte = data[position]
            position += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        strings.append(data[position : position + length].decode())
        position += length
    assert data[position:] == b"\0"  # nothing nested
    assert strings[2] == ""
    return code, strings[0], strings[1]


def test_clickhouse_gets_exceptions(protocols_gateway: GatewayRig) -> None:
    full = protocols_gateway.add_instance("house-full", _echo, protocol="clickhouse", **LIMITS)
    text = "the instance is paused: " + "long " * 100
    paused = protocols_gateway.add_instance(
        "house-paused", _echo, protocol="clickhouse", state="paused", refusal=text
    )
    answers = []
    for host in (full, paused):
        with connect(protocols_gateway, "clickhouse", host) as connection:
            connection.sendall(CLICKHOUSE_HELLO)
            answers.append(read_exception(receive_all(connection)))
    assert answers[0][:2] == (202, "DB::Exception")
    assert "this size allows 0" in answers[0][2]
    assert answers[1] == (210, "DB::Exception", f"DB::Exception: {text}")


def test_clickhouse_in_plaintext_is_told_to_use_tls(protocols_gateway: GatewayRig) -> None:
    with dial(protocols_gateway, "clickhouse") as plain:
        plain.sendall(CLICKHOUSE_HELLO)
        code, _, text = read_exception(receive_all(plain))
    assert code == 210
    assert "--secure" in text


@pytest.fixture
def house(protocols_gateway: GatewayRig) -> Iterator[str]:
    """One instance with both of ClickHouse's ways in."""
    path = protocols_gateway.home / "run" / "house-http.sock"
    backend = protocols_gateway.serve(path, http("over https"))
    yield protocols_gateway.add_instance(
        "house", _echo, protocol="clickhouse", https_socket=str(path), connections_max=1
    )
    backend.stop()


def test_clickhouse_speaks_https_on_a_port_of_its_own(
    protocols_gateway: GatewayRig, house: str
) -> None:
    with connect(protocols_gateway, "clickhouse_https", house) as connection:
        assert raw_get(connection)[2] == b"over https"
        # Both ways in are one instance, with one limit.
        with connect(protocols_gateway, "clickhouse", house) as native:
            native.sendall(CLICKHOUSE_HELLO)
            assert read_exception(receive_all(native))[0] == 202
    with httpx.Client(timeout=WAIT_S) as client:
        answer = client.get(f"http://127.0.0.1:{protocols_gateway.ports['clickhouse_https']}/ping")
    assert answer.status_code == 400
    assert "TLS only" in answer.json()["error"]


def test_places_are_given_back(protocols_gateway: GatewayRig) -> None:
    host = protocols_gateway.add_instance(
        "house-one", _echo, protocol="clickhouse", connections_max=1
    )

    def is_served() -> bool:
        with connect(protocols_gateway, "clickhouse", host) as connection:
            connection.sendall(CLICKHOUSE_HELLO)
            return receive(connection)[:1] == b"\0"

    for _ in range(3):
        until(is_served, "the place is free")
