"""The client of cells over a real unix socket: what it sends, and what it makes of each answer."""

import base64
import gzip
import hashlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from contract_tests.workflows.cell_acts import ACTS, ID, OPERATIONS
from contract_tests.workflows.cell_server import Server, said, serving
from control.cells.client import (
    CellFailed,
    CellRefused,
    CellUnavailable,
    HttpCell,
    InstanceUnknown,
)
from control.cells.http_cells import HttpCells
from control.cells.queues import QueueRefused
from control.cells.signing import Signer
from control.cells.slow_cells import OneAtATime
from control.work import Again, GiveUp, LeaseLost
from gateway.bounded_answers import BYTES_MAX
from storage.catalogue.cells import Cell


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as made:
        yield made


@pytest.fixture
def key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.generate()


@pytest.fixture
def client(server: Server, key: Ed25519PrivateKey) -> Iterator[HttpCell]:
    made = HttpCell(
        "cell_1", f"http+unix://{server.server_address!s}", Signer(key, clock=time.time)
    )
    yield made
    made.close()


@pytest.mark.parametrize("name", ACTS)
def test_acts_carry_signature_key_and_lease(
    server: Server, client: HttpCell, key: Ed25519PrivateKey, name: str
) -> None:
    act, method, path, body = ACTS[name]
    operation = OPERATIONS.get(name, f"instances.{name}")
    server.answer = (200, said(operation))
    assert act(client) == said(operation)
    ((asked, at, headers, sent),) = server.asked
    assert (asked, at) == (method, f"/v1/instances/{ID}{path}")
    assert (orjson.loads(sent) if sent else None) == body
    assert (headers["operation-key"], headers["operation-lease"]) == ("op_1:put", "3")
    check_signature(key.public_key(), asked, at, headers, sent)


def check_signature(
    public: Ed25519PublicKey, method: str, path: str, headers: dict[str, str], body: bytes
) -> None:
    assert headers["menagerie-cell"] == "cell_1"
    parts = ("cell_1", method, path, hashlib.sha256(body).hexdigest())
    stamped = (*parts, headers["menagerie-timestamp"], headers["menagerie-nonce"])
    signature = headers["menagerie-signature"]
    padded = signature + "=" * (-len(signature) % 4)
    public.verify(base64.urlsafe_b64decode(padded), "\n".join(stamped).encode())


def test_questions_are_signed_and_carry_no_key(
    server: Server, client: HttpCell, key: Ed25519PrivateKey
) -> None:
    server.answer = (200, {"items": [said("instances.get")]})
    assert client.observations() == [said("instances.get")]
    server.answer = (200, said("cells.get"))
    assert client.describe() == said("cells.get")
    server.answer = (200, said("instances.capacity"))
    assert client.capacity(ID) == said("instances.capacity")
    server.answer = (200, said("instances.get"))
    assert client.observe(ID) == said("instances.get")
    assert [path for _, path, _, _ in server.asked] == [
        "/v1/instances",
        "/v1/cell",
        f"/v1/instances/{ID}/capacity",
        f"/v1/instances/{ID}",
    ]
    for method, path, headers, body in server.asked:
        assert (method, body) == ("GET", b"")
        assert "operation-key" not in headers
        check_signature(key.public_key(), method, path, headers, body)


@pytest.mark.parametrize(
    ("status", "body", "meaning"),
    [
        (409, {"code": "stale_lease", "detail": "older"}, LeaseLost),
        (409, {"code": "conflict", "detail": "is erased"}, CellRefused),
        (409, {"code": "in_flight"}, Again),
        (422, {"detail": "no such version"}, CellRefused),
        (401, {"detail": "the signature is not current"}, CellUnavailable),
        (404, {"detail": "no such instance"}, InstanceUnknown),
        (429, {}, CellUnavailable),
        (500, {}, CellFailed),
        (503, {"detail": "starting"}, CellFailed),
        (502, b"<html>", CellFailed),
    ],
)
def test_what_each_answer_means(
    server: Server, client: HttpCell, status: int, body: Any, meaning: type[Exception]
) -> None:
    server.answer = (status, body)
    with pytest.raises(meaning) as raised:
        client.pause(ID, key="op_1:pause", lease=1)
    assert type(raised.value) is meaning
    if isinstance(body, dict) and "detail" in body:
        assert str(raised.value) == body["detail"]
    assert isinstance(raised.value, GiveUp) == (meaning in {CellRefused, InstanceUnknown})


# A cell that was taken over may answer anything: it takes neither memory nor a thread for long.


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "gzip, identity"])
def test_what_is_compressed_is_refused(server: Server, client: HttpCell, encoding: str) -> None:
    server.answer = (200, gzip.compress(orjson.dumps({"items": []})))
    server.headers = {"Content-Encoding": encoding}
    with pytest.raises(CellUnavailable, match=r"is compressed \(.*\), which was not asked for"):
        client.observations()
    assert {headers["accept-encoding"] for _, _, headers, _ in server.asked} == {"identity"}


@pytest.mark.parametrize("status", [200, 404, 500])
def test_an_answer_beyond_the_bound_is_refused(
    server: Server, client: HttpCell, status: int
) -> None:
    server.answer = (status, b" " * (BYTES_MAX + 1))
    with pytest.raises(CellUnavailable, match="larger than 16 MiB"):
        client.observe(ID)
    server.answer = (200, orjson.dumps({"items": []}).ljust(BYTES_MAX))
    assert client.observations() == []


def test_an_answer_that_comes_byte_by_byte_has_an_end(
    server: Server, client: HttpCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However short each wait for the next one is."""
    monkeypatch.setattr("control.cells.client.OBSERVE_TIMEOUT_S", 0.5)
    server.answer, server.part_bytes, server.pause_s = (200, b" " * 3000), 1, 0.01
    started = time.monotonic()
    with pytest.raises(CellUnavailable, match="did not answer in time"):
        client.describe()
    assert time.monotonic() - started < 25, "and not after the 30 s that it sends for"


@pytest.mark.nightly
def test_of_a_slow_cells_acts_one_finds_out_how_it_is(
    server: Server, client: HttpCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others leave their threads to other cells' work."""
    monkeypatch.setattr("control.cells.client.ACT_TIMEOUT_S", 60)

    def act(name: str) -> Any:
        return client.pause(ID, key=f"op_{name}:pause", lease=1)

    right = said("instances.pause")
    written = orjson.dumps(right).ljust(3000)
    with ThreadPoolExecutor(2) as threads:
        # Whatever time an act takes is too long.
        monkeypatch.setattr(client, "_acts", OneAtATime(slow_after_s=-1))
        for slow in (False, True):
            server.answer, server.part_bytes, server.pause_s = (200, written), 1, 0.01
            asked = len(server.asked)
            long = threads.submit(act, "long")
            while len(server.asked) == asked:
                time.sleep(0.01)
            if slow:
                with pytest.raises(Again):
                    act("other")
            else:
                server.pause_s = 0
                assert act("other") == right, "nothing is known of it at first"
            server.pause_s = 0
            assert long.result(60) == right
    monkeypatch.setattr(client, "_acts", OneAtATime(slow_after_s=60))
    assert [act("one"), act("two")] == [right, right]


HARMFUL = b"a\\u0000b \\u202e\\u001b[2J\\nz"
HARMLESS = r"a\x00b \u202e\x1b[2J z"


def test_what_a_cell_says_is_made_printable(server: Server, client: HttpCell) -> None:
    """Wherever it says it: PostgreSQL refuses some of it, and owners read it."""
    text = orjson.loads(b'"%s"' % HARMFUL)
    more = {"status_reason": text, "more": [{text: {"x": [text, 1, None, True, 0.5]}}]}
    server.answer = (200, {"items": [{**said("instances.get"), **more}]})
    (seen,) = client.observations()
    assert seen["status_reason"] == HARMLESS
    assert seen["more"] == [{HARMLESS: {"x": [HARMLESS, 1, None, True, 0.5]}}]
    server.answer = (200, {**said("instances.get"), **more})
    assert client.observe(ID) == client.resume(ID, key="op_1:resume", lease=1) == seen
    pem = said("cells.get")["ca"]["root_pem"]
    server.answer = (
        200,
        {**said("cells.get"), "ca": {"root_pem": pem + "\0", "chain_pem": pem}, **more},
    )
    told = client.describe()
    assert (told["status_reason"], told["more"]) == (seen["status_reason"], seen["more"])
    assert told["ca"] == {"root_pem": pem + r"\x00", "chain_pem": pem}


@pytest.mark.parametrize(("status", "meaning"), [(422, CellRefused), (503, CellUnavailable)])
def test_a_refusal_is_made_printable_and_bounded(
    server: Server, client: HttpCell, status: int, meaning: type[Exception]
) -> None:
    server.answer = (status, b'{"detail": "%s"}' % HARMFUL)
    with pytest.raises(meaning) as raised:
        client.pause(ID, key="op_1:pause", lease=1)
    assert str(raised.value) == HARMLESS
    server.answer = (status, {"detail": "\x1b" * 1_000_000})
    with pytest.raises(meaning) as raised:
        client.pause(ID, key="op_1:pause", lease=1)
    assert len(str(raised.value)) < 3_000


def test_messages_of_queues_stay_to_the_letter(server: Server, client: HttpCell) -> None:
    message = b'{"message_id": 1, "read_count": 1, "body": {"x": "%s"}, ' % HARMFUL
    message += b'"enqueued_at": "2026-01-31T09:30:00Z", "visible_at": "2026-01-31T09:30:00Z"}'
    server.answer = (200, b'{"messages": [%s]}' % message)
    told = client.queues(ID).read("jobs", count=1, timeout_s=30)
    assert told["messages"][0]["body"]["x"] == orjson.loads(b'"%s"' % HARMFUL)
    server.answer = (409, b'{"code": "conflict", "detail": "%s"}' % HARMFUL)
    with pytest.raises(QueueRefused, match="z") as refused:
        client.queues(ID).purge("jobs", key="op_1")
    assert (refused.value.detail, refused.value.code) == (HARMLESS, "conflict")


@pytest.mark.parametrize(
    "wrong",
    [
        b"<html>",
        b"[1]",
        b'"x"',
        b'{"items": ["\\ud800"]}',
        b'{"a": ' * 900 + b"1" + b"}" * 900,
        b"{}",
        b'{"items": 1}',
        b'{"items": [1]}',
        b'{"items": [{"status": "running"}]}',
        b'{"items": [{"instance_id": [], "status": "running"}]}',
    ],
)
def test_what_cannot_be_read_is_no_answer(server: Server, client: HttpCell, wrong: bytes) -> None:
    server.answer = (200, wrong)
    with pytest.raises(CellUnavailable, match="the cell's answer cannot be read"):
        client.observations()
    server.answer = (422, wrong)
    with pytest.raises((CellRefused, CellUnavailable, QueueRefused)):
        client.queues(ID).purge("jobs", key="op_1")


@pytest.mark.parametrize(
    ("after", "wait_s"), [("0.5", 0.5), ("inf", 60), ("nan", 0), ("-1", 0), ("soon", 1)]
)
def test_a_cell_is_waited_for_within_reason(
    server: Server, client: HttpCell, after: str, wait_s: float
) -> None:
    server.answer, server.headers = (409, {"code": "in_flight"}), {"Retry-After": after}
    with pytest.raises(Again) as again:
        client.pause(ID, key="op_1:pause", lease=1)
    assert again.value.after_s == wait_s


def test_a_challenge_is_answered_once(server: Server, client: HttpCell) -> None:
    server.answer = (401, {"code": "stale_signature", "detail": "the signature is not current"})
    server.headers = {"Menagerie-Challenge": "12-ab"}
    with pytest.raises(CellUnavailable, match="not current"):
        client.describe()
    first, second = (headers for _, _, headers, _ in server.asked)
    assert "menagerie-challenge" not in first
    assert second["menagerie-challenge"] == "12-ab"
    assert first["menagerie-nonce"] != second["menagerie-nonce"]


@pytest.mark.parametrize("challenge", ["a b", "x", "1" * 101])
def test_not_everything_is_signed_as_a_challenge(
    server: Server, client: HttpCell, challenge: str
) -> None:
    server.answer, server.headers = (401, {}), {"Menagerie-Challenge": challenge}
    with pytest.raises(CellUnavailable):
        client.describe()
    assert len(server.asked) == 1


def test_an_instance_that_is_not_there_is_observed_as_none(
    server: Server, client: HttpCell
) -> None:
    server.answer = (404, {"detail": "no such instance"})
    assert client.observe(ID) is None


def test_a_cell_that_is_not_there_is_unavailable(key: Ed25519PrivateKey) -> None:
    client = HttpCell("cell_1", "http+unix:///nonexistent/cell.sock", Signer(key, clock=time.time))
    with pytest.raises(CellUnavailable, match="cannot be reached"):
        client.describe()
    client.close()


def test_clients_are_kept_by_cell_and_address(key: Ed25519PrivateKey) -> None:
    clients = HttpCells(Signer(key, clock=time.time))
    first = Cell(id="cell_1", url="http+unix:///nonexistent/cell.sock")
    assert clients.for_cell(first) is clients.for_cell(first)
    moved = Cell(id="cell_1", url="https://cell.local.example:8443", ca_root_pem=None)
    assert clients.for_cell(moved) is not clients.for_cell(first)
    # At the address of another, which is told so: what is signed names the cell.
    other = Cell(id="cell_2", url=first.url)
    assert clients.for_cell(other) is not clients.for_cell(first)
    clients.close()
