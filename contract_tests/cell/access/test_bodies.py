"""Nothing of a body is held of whoever has not shown who they are."""

import asyncio
import base64
import hashlib
import json
import socket

import httpx
import psutil
import pytest

from contract_tests.cell.rig import Rig, new_id, spec
from contract_tests.specserver.wire import answers, connect
from instance_services.queues.service import BODY_BYTES_MAX

MIB = 2**20
CROWD = 24
QUEUE = "/v1/instances/inst_x/queues/q/messages"
NOBODY = "inst_01JD0000000000000000000000"
UNKNOWN = f"/v1/instances/{NOBODY}"


def announced(path: str, size: int, fields: str = "", method: str = "POST") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: cell\r\nContent-Type: application/json\r\n"
    return f"{head}{fields}Content-Length: {size}\r\n\r\n".encode()


def head_of(received: bytes) -> tuple[int, str]:
    (answer,) = answers(received)
    return answer.status, answer.document["code"]


def receive(client: socket.socket) -> bytes:
    received = b""
    while b"}" not in received:
        chunk = client.recv(65_536)
        assert chunk, received
        received += chunk
    return received


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("POST", QUEUE, "not_signed"),
        ("PUT", UNKNOWN, "not_signed"),
        ("POST", f"{UNKNOWN}/actions/pause", "not_signed"),
        ("POST", f"/v1/abandoned/{NOBODY}", "unauthenticated"),
        ("POST", f"/v1/wake/{NOBODY}", "unauthenticated"),
    ],
)
def test_strangers_are_refused_by_their_head(
    shared_rig: Rig, method: str, path: str, code: str
) -> None:
    with connect(shared_rig.socket) as client:
        client.sendall(announced(path, MIB, method=method))
        assert head_of(receive(client)) == (401, code)


def test_a_made_up_signature_is_refused_by_its_head(shared_rig: Rig) -> None:
    fields = shared_rig.sign("POST", QUEUE, b"x")
    fields["Menagerie-Signature"] = "A" * 86
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    with connect(shared_rig.socket) as client:
        client.sendall(announced(QUEUE, BODY_BYTES_MAX, lines))
        assert head_of(receive(client)) == (401, "bad_signature")


def test_what_anybody_may_ask_takes_a_small_body_only(shared_rig: Rig) -> None:
    with connect(shared_rig.socket) as client:
        client.sendall(announced("/v1/rotate/made-up", 16_385))
        assert head_of(receive(client)) == (413, "content_too_large")


@pytest.mark.parametrize("told", ["that of another body", "none", "no digest"])
def test_a_body_is_the_one_that_was_signed(shared_rig: Rig, told: str) -> None:
    instance_id = new_id()
    path = f"/v1/instances/{instance_id}"
    signed, sent = json.dumps(spec(instance_id)), json.dumps(spec(instance_id, idle_pause_s=60))
    headers = {
        **shared_rig.sign("PUT", path, signed.encode()),
        "Operation-Key": f"{instance_id}:put",
        "Operation-Lease": "1",
        "Content-Type": "application/json",
    }
    if told == "none":
        del headers["Content-Digest"]
    elif told == "no digest":
        headers["Content-Digest"] = "md5=:1B2M2Y8AsgTpgAmY7PhCfg==:"
    with shared_rig.client() as http:
        answer = http.put(path, content=sent, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (401, "bad_signature")
    assert shared_rig.get(path).status_code == 404


def test_a_digest_of_the_wrong_body_is_not_believed(shared_rig: Rig) -> None:
    """The head's digest is what was signed, and not what suits the body."""
    path = f"/v1/instances/{new_id()}"
    headers = shared_rig.sign("PUT", path, b"{}")
    digest = base64.b64encode(hashlib.sha256(b"[]").digest()).decode()
    headers["Content-Digest"] = f"sha-256=:{digest}:"
    with shared_rig.client() as http:
        answer = http.put(path, content=b"[]", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (401, "bad_signature")


def test_a_crowd_of_strangers_takes_no_memory_of_the_cell(shared_rig: Rig) -> None:
    assert shared_rig.process is not None
    process = psutil.Process(shared_rig.process.pid)
    before = process.memory_info().rss

    async def stay(size: int) -> None:
        reader, writer = await asyncio.open_unix_connection(shared_rig.socket)
        try:
            writer.write(announced(QUEUE, size))
            writer.write(b"x" * (size - 1))
            await writer.drain()
            assert b" 401 " in await reader.readuntil(b"\r\n")
        finally:
            crowd.append(writer)

    crowd: list[asyncio.StreamWriter] = []

    async def come() -> int:
        await asyncio.gather(*(stay(BODY_BYTES_MAX) for _ in range(CROWD)))
        held = process.memory_info().rss - before
        for writer in crowd:
            writer.close()
        return held

    assert asyncio.run(come()) < CROWD * BODY_BYTES_MAX // 8
    with shared_rig.client() as http:
        assert http.get("/v1/cell", headers=shared_rig.sign("GET", "/v1/cell")).status_code == 200


def test_engines_hold_no_body_of_whoever_has_no_password(shared_rig: Rig) -> None:
    instance_id = shared_rig.make()
    password = shared_rig.reveal(instance_id)["password"]
    route = shared_rig.route(instance_id)
    assert route is not None
    with connect(route["socket"]) as client:
        client.sendall(announced("/query", MIB))
        (answer,) = answers(receive(client))
    assert answer.status == 401
    assert shared_rig.query(instance_id, password, "SELECT 1").status_code == httpx.codes.OK
