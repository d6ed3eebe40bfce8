"""The console held to its instance's network, by the address that the gateway announces."""

import http.client
import json
import re
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contract_tests.cell.rig import Rig
from contract_tests.gateway.authorities import Authority
from gateway import proxy_header

COOKIE = "__Secure-console"
INSIDE, OUTSIDE = "192.0.2.7", "198.51.100.7"
LIST = ["192.0.2.0/24", "2001:db8:1::/48"]
FORGED = {
    "X-Forwarded-For": INSIDE,
    "Forwarded": f"for={INSIDE}",
    "X-Real-IP": INSIDE,
    "Remote-Addr": INSIDE,
    "Remote_Addr": INSIDE,
    "Client-IP": INSIDE,
}

Answer = tuple[int, dict[str, str], str]


class Connection(http.client.HTTPConnection):
    """To the cell's socket, as one that says `first` before any HTTP, and all in one piece.

    The cell hangs up on what is no HTTP, which may be so before a second piece is sent.
    """

    def __init__(self, rig: Rig, first: bytes) -> None:
        super().__init__("cell", timeout=60)
        self._rig, self._said = rig, first

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self._rig.socket)

    def send(self, data: Any) -> None:
        self._said += data

    def getresponse(self) -> http.client.HTTPResponse:
        self.connect()
        self.sock.sendall(self._said)
        return super().getresponse()


class Visitor:
    """A browser with a session of one instance, at whatever address its gateway announces."""

    def __init__(self, rig: Rig, instance_id: str) -> None:
        self.rig = rig
        self.instance_id = instance_id
        self.path = f"/console/{instance_id}/"
        status, headers, _ = self.open(self.token(), INSIDE)
        assert status == 303
        self.secret = re.findall(rf"{COOKIE}=([^;]+)", headers["set-cookie"])[0]
        page = self.load(INSIDE)
        self.proof = re.findall(r'data-proof="([0-9a-f]+)"', page[2])[0]

    def token(self) -> str:
        return self.rig.token(self.instance_id, "console", name="orders")

    def announced(self, address: str) -> bytes:
        token = (self.rig.home / "run" / "gateway.token").read_bytes()
        return proxy_header.build(address, token)

    def open(self, token: str, address: str) -> Answer:
        return self.ask("GET", f"/v1/console/{token}", self.announced(address))

    def load(self, address: str) -> Answer:
        return self.ask("GET", self.path, self.announced(address))

    def post(self, verb: str, address: str, **headers: str) -> Answer:
        return self.ask("POST", f"{self.path}{verb}", self.announced(address), **headers)

    def ask(self, method: str, path: str, first: bytes, **headers: str) -> Answer:
        given = {"Content-Type": "application/json", **headers}
        if hasattr(self, "secret"):
            given["Cookie"] = f"{COOKIE}={self.secret}"
        if hasattr(self, "proof"):
            given["X-Console-Proof"] = self.proof
        connection = Connection(self.rig, first)
        try:
            connection.request(method, path, json.dumps({"sql": "SELECT 42"}), given)
            answer = connection.getresponse()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, headers, answer.read().decode()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def visitor(sql_rig: Rig) -> Visitor:
    return Visitor(sql_rig, sql_rig.make(allow_cidrs=LIST))


def is_refused(answer: Answer, address: str = "") -> bool:
    """As an error of the page's script, as a page, or as a problem; each says what to do."""
    status, headers, text = answer
    if status != 403:
        return False
    if headers["content-type"].startswith("application/json"):
        text = json.loads(text)["error"]
    elif headers["content-type"].startswith("application/problem+json"):
        assert json.loads(text)["code"] == "address_not_allowed"
    else:
        assert "<h1>This request was refused</h1>" in text
    assert address in text
    assert "have yours added" in text
    return True


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        (INSIDE, OUTSIDE),
        (f"::ffff:{INSIDE}", f"::ffff:{OUTSIDE}"),
        ("2001:db8:1::7", "2001:db8:2::7"),
    ],
)
def test_every_request_is_held_to_the_list(visitor: Visitor, inside: str, outside: str) -> None:
    token = visitor.token()
    assert is_refused(visitor.open(token, outside))
    assert visitor.open(token, inside)[0] == 303  # the refusal has not used it up
    assert is_refused(visitor.load(outside))
    for verb in ("run", "stop", "end"):
        assert is_refused(visitor.post(verb, outside))
    assert visitor.load(inside)[0] == 200
    status, _, answer = visitor.post("run", inside)
    assert (status, json.loads(answer)["rows"]) == (200, [["42"]])
    assert visitor.post("stop", inside)[0] == 204


# By day every request of one list.
@pytest.mark.nightly
def test_a_list_that_changes_holds_for_open_sessions_at_once(sql_rig: Rig) -> None:
    instance_id = sql_rig.make(allow_cidrs=None)
    visitor = Visitor(sql_rig, instance_id)
    assert visitor.post("run", OUTSIDE)[0] == 200
    lists: list[tuple[list[str], set[str]]] = [
        (LIST, {INSIDE, "2001:db8:1::1"}),
        (["0.0.0.0/0"], {INSIDE, OUTSIDE}),
        ([], set()),
        (["::/0"], {"2001:db8:1::1"}),
        ([f"{INSIDE}/32"], {INSIDE}),
    ]
    for cidrs, admitted in lists:
        sql_rig.put(instance_id, allow_cidrs=cidrs)
        for address in (INSIDE, OUTSIDE, "2001:db8:1::1"):
            answer = visitor.post("run", address)
            if address in admitted:
                assert answer[0] == 200
            else:
                assert is_refused(answer, address)
    assert visitor.post("end", INSIDE)[0] == 200


def firsts(visitor: Visitor) -> Iterator[bytes]:
    """What one might say first who has not the gateway's token, or came by a gateway already."""
    yield b""
    yield proxy_header.build(INSIDE, b"")
    yield proxy_header.build(INSIDE, b"another token")
    yield proxy_header.build(INSIDE, b"another token") + visitor.announced(INSIDE)
    yield visitor.announced(OUTSIDE)
    yield visitor.announced(OUTSIDE) + visitor.announced(INSIDE)
    yield visitor.announced(OUTSIDE) + b"PROXY TCP4 192.0.2.7 192.0.2.8 1 2\r\n"
    yield b"PROXY TCP4 192.0.2.7 192.0.2.8 1 2\r\n"
    yield visitor.announced(INSIDE)[:-1] + b"?"
    yield b"\r\n" + visitor.announced(INSIDE)


def test_an_address_cannot_be_forged(visitor: Visitor) -> None:
    for first in firsts(visitor):
        for headers in ({}, FORGED):
            for method, path in (("GET", visitor.path), ("POST", f"{visitor.path}run")):
                status = visitor.ask(method, path, first, **headers)[0]
                # What is no HTTP any more is told so.
                assert status in {400, 403, 501}
    # Nor by who calls from the machine itself, as others do by a balancer that runs there.
    for local in ("127.0.0.1", "::1"):
        for answer in (
            visitor.ask("GET", visitor.path, visitor.announced(local), **FORGED),
            visitor.post("run", local, **FORGED),
        ):
            assert is_refused(answer, local)
    unknown = visitor.ask("GET", visitor.path, b"")
    assert is_refused(unknown, "which is not known")


@pytest.mark.nightly
def test_where_there_is_no_list_nobody_needs_an_address(sql_rig: Rig) -> None:
    visitor = Visitor(sql_rig, sql_rig.make())
    assert visitor.ask("GET", visitor.path, b"")[0] == 200
    assert visitor.ask("POST", f"{visitor.path}run", b"", **FORGED)[0] == 200


def test_what_is_announced_may_come_in_pieces_and_counts_for_the_connection(
    visitor: Visitor,
) -> None:
    head = f"GET {visitor.path} HTTP/1.1\r\nHost: cell\r\nCookie: {COOKIE}={visitor.secret}\r\n"
    requests = f"{head}\r\n{head}Connection: close\r\n\r\n".encode()
    local = proxy_header.SIGNATURE + struct.pack("!BBH", 0x20, 0, 0)
    for first, status in ((visitor.announced(INSIDE), b"200"), (local, b"403")):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(60)
            connection.connect(visitor.rig.socket)
            for byte in first + requests:
                connection.sendall(bytes((byte,)))
            received = b"".join(iter(lambda: connection.recv(65_536), b""))
        assert re.findall(rb"HTTP/1.1 (\d+)", received) == [status, status]


@pytest.mark.nightly
def test_an_instance_that_asks_for_certificates_has_no_console(
    sql_rig: Rig, tmp_path: Path
) -> None:
    instance_id = sql_rig.make()
    visitor = Visitor(sql_rig, instance_id)
    pem: Any = Authority("clients", tmp_path).pem
    sql_rig.put(instance_id, client_ca_pem=pem)
    for answer in (visitor.load(INSIDE), visitor.post("run", INSIDE)):
        assert answer[0] == 409
        assert "client certificates" in answer[2]
    assert visitor.open(visitor.token(), INSIDE)[0] == 409


def test_other_one_time_urls_are_not_held_to_it(light_rig: Rig) -> None:
    """They lead to nothing inside the instance, and whoever is locked out needs them."""
    instance_id = light_rig.make(allow_cidrs=[])
    assert light_rig.reveal(instance_id)["username"] == "app"
    assert light_rig.rotate(instance_id)["username"] == "app"
    with light_rig.client() as client:
        assert client.get(f"/v1/logs/{light_rig.token(instance_id, 'logs')}").status_code == 200
