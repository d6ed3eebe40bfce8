"""Holds HTTP below ASGI: who is refused and how, in which order, after how long and how much."""

import contextlib
import socket
import subprocess
import sys
from asyncio import Transport
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import psutil
import pytest

from contract_tests.by_day import one_in
from contract_tests.specserver.echo_server import Hasty, HastyLater, Patient, serving
from contract_tests.specserver.wire import Answer, answers, connect, exchanged, said
from gateway.addresses import levels
from specserver import Problem, Reply
from specserver.connection_counts import ConnectionCounts
from specserver.http_protocol import TARGET_BYTES_MAX, HttpProtocol, http_protocol
from specserver.request_sizes import FIELDS_BYTES_MAX

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
SLOW = b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nhost: x\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
OFFER = b"connection: upgrade\r\nupgrade: h2c\r\n"

Address = tuple[str, int]


@pytest.fixture(scope="module", params=["uvloop", "asyncio"])
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def address(loop: str) -> Iterator[Address]:
    with serving(loop, Patient) as found:
        yield found


@pytest.fixture(scope="module")
def hasty(loop: str) -> Iterator[Address]:
    with serving(loop, Hasty) as found:
        yield found


@pytest.fixture(scope="module")
def hasty_later(loop: str) -> Iterator[Address]:
    with serving(loop, HastyLater) as found:
        yield found


def statuses(found: list[Answer]) -> list[int]:
    return [one.status for one in found]


def is_refusal(answer: Answer, status: int, code: str) -> None:
    assert (answer.status, answer.document["code"]) == (status, code)
    assert answer.fields["content-type"] == "application/problem+json"
    assert answer.fields["connection"] == "close"
    assert answer.fields["cache-control"] == "no-store"
    assert answer.document["request_id"] == answer.fields["x-request-id"]
    assert answer.document["type"] == f"urn:problem:{code}"
    assert answer.document.keys() == {"type", "title", "status", "detail", "code", "request_id"}


REFUSED = {
    "a method nobody knows": (b"FOO / HTTP/1.1\r\n\r\n", 501, "not_implemented"),
    "a method in lower case": (b"get / HTTP/1.1\r\n\r\n", 501, "not_implemented"),
    "a method of another protocol": (b"DESCRIBE / HTTP/1.1\r\n\r\n", 501, "not_implemented"),
    "a tunnel": (b"CONNECT example.org:443 HTTP/1.1\r\n\r\n", 501, "not_implemented"),
    "blank lines and a method": (b"\r\n\r\nFOO / HTTP/1.1\r\n\r\n", 501, "not_implemented"),
    "a TLS greeting": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "bad_request"),
    "another protocol": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "bad_request"),
    "a version nobody knows": (b"GET / HTTP/7.1\r\n\r\n", 400, "bad_request"),
    "a target that is none": (b"GET http://x HTTP/1.1\r\n\r\n", 400, "bad_request"),
    "a target with a raw byte": (b"GET /\xff HTTP/1.1\r\n\r\n", 400, "bad_request"),
    "a field without a colon": (b"GET / HTTP/1.1\r\nhost x\r\n\r\n", 400, "bad_request"),
    "a NUL in a field": (b"GET / HTTP/1.1\r\nhost: \0\r\n\r\n", 400, "bad_request"),
    "an unknown coding": (POST + b"transfer-encoding: 0\r\n\r\n", 400, "bad_request"),
    "and an offer": (POST + OFFER + b"transfer-encoding: 0\r\n\r\n", 400, "bad_request"),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", 400, "bad_request"),
    "no host, but a target with one": (b"GET http://x/ HTTP/1.1\r\n\r\n", 400, "bad_request"),
    "two hosts": (b"GET / HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n", 400, "bad_request"),
    "the same host twice": (b"GET / HTTP/1.1\r\nHost: x\r\nhost: x\r\n\r\n", 400, "bad_request"),
    "two hosts by HTTP/1.0": (
        b"GET / HTTP/1.0\r\nhost: x\r\nhost: y\r\n\r\n",
        *(400, "bad_request"),
    ),
    "two hosts in one field": (b"GET / HTTP/1.1\r\nhost: x, y\r\n\r\n", 400, "bad_request"),
    "an empty host": (b"GET / HTTP/1.1\r\nhost:\r\n\r\n", 400, "bad_request"),
    "a host with a path": (b"GET / HTTP/1.1\r\nhost: x/y\r\n\r\n", 400, "bad_request"),
    "a host with a user": (b"GET / HTTP/1.1\r\nhost: u@x\r\n\r\n", 400, "bad_request"),
    "a host with markup": (b'GET / HTTP/1.1\r\nhost: "><b>\r\n\r\n', 400, "bad_request"),
    "a port that is no number": (b"GET / HTTP/1.1\r\nhost: x:y\r\n\r\n", 400, "bad_request"),
    "bare line feeds": (b"GET / HTTP/1.1\nhost: x\n\n", 400, "bad_request"),
    "two lengths": (
        POST + b"content-length: 3\r\ncontent-length: 4\r\n\r\n",
        *(400, "bad_request"),
    ),
    "length and chunks": (
        POST + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n",
        *(400, "bad_request"),
    ),
    "a chunk of no size": (CHUNKED + b"zz\r\n", 400, "bad_request"),
    "a long target": (
        b"GET /?" + b"q" * TARGET_BYTES_MAX + b" HTTP/1.1\r\n\r\n",
        *(414, "uri_too_long"),
    ),
    "a target without end": (b"GET /?" + b"q" * 4_000_000, 414, "uri_too_long"),
    "a long field": (
        b"GET / HTTP/1.1\r\na: " + b"b" * FIELDS_BYTES_MAX + b"\r\n\r\n",
        *(431, "header_fields_too_large"),
    ),
    "a field without end": (
        b"GET / HTTP/1.1\r\na: " + b"b" * 4_000_000,
        *(431, "header_fields_too_large"),
    ),
    "fields without end": (
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 400_000,
        *(431, "header_fields_too_large"),
    ),
    "a trailer without end": (
        CHUNKED + b"0\r\na: " + b"b" * 4_000_000,
        *(431, "header_fields_too_large"),
    ),
    "trailers": (CHUNKED + b"0\r\n" + b"a:\r\n" * 400_000, 431, "header_fields_too_large"),
    "chunks of a byte without end": (CHUNKED + b"1\r\na\r\n" * 400_000, 400, "bad_request"),
    "blank lines without end": (b"\r\n" * 400_000, 431, "header_fields_too_large"),
    "what has not all arrived": (POST + b"content-length: 9\r\n\r\nx", 408, "request_timeout"),
    "chunks that end early": (CHUNKED + b"4\r\nfour\r\n", 408, "request_timeout"),
    "half a head": (b"GET / HTTP/1.1\r\nhost:", 408, "request_timeout"),
    "a blank line": (b"\r\n", 408, "request_timeout"),
    "nothing": (b"", 408, "request_timeout"),
}


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.0\r\n",
        b"HTTP/1.1\r\nHost: db-0abc.local.localhost:8443\r\n",
        b"HTTP/1.1\r\nHost: [2001:db8::1]:443\r\n",
        b"HTTP/1.1\r\nHOST: 192.0.2.1\r\n",
    ],
)
def test_a_host_may_be_a_name_or_an_address_and_left_out_by_http_1_0(
    address: Address, head: bytes
) -> None:
    (answer,) = exchanged(address, b"GET / " + head + b"connection: close\r\n\r\n")
    assert answer.status == 200


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_request_is_refused_in_form(address: Address, hasty: Address, name: str) -> None:
    sent, status, code = REFUSED[name]
    (answer,) = exchanged(hasty if status == 408 else address, sent)
    is_refusal(answer, status, code)


@pytest.mark.parametrize("name", [name for name, row in REFUSED.items() if len(row[0]) < 100])
def test_it_may_come_byte_by_byte(address: Address, hasty: Address, name: str) -> None:
    sent, status, code = REFUSED[name]
    asked = hasty if status == 408 else address
    (answer,) = exchanged(asked, *(sent[n : n + 1] for n in range(len(sent))))
    # A first letter that no method has is enough to refuse, and to be taken for a method.
    expected = {(status, code)} | ({(501, "not_implemented")} if code == "bad_request" else set())
    assert (answer.status, answer.document["code"]) in expected


@pytest.mark.parametrize("name", REFUSED)
def test_the_request_before_gets_its_answer_first(
    address: Address, hasty_later: Address, name: str
) -> None:
    sent, status, _ = REFUSED[name]
    if not sent.strip():
        return
    asked = hasty_later if status == 408 else address
    found = statuses(exchanged(asked, SLOW + GET + sent))
    assert found[:2] == [200, 200]
    # Where a method begins is not known behind another request in the same bytes.
    assert found[2:] in ([status], [400] if status == 501 else [status])


def test_requests_at_the_limits_are_let_in(address: Address) -> None:
    target = b"/?" + b"q" * (TARGET_BYTES_MAX - 2)
    fields = b"a: " + b"b" * (FIELDS_BYTES_MAX - 7) + b"\r\n"
    sent = b"GET " + target + b" HTTP/1.1\r\n" + fields + b"host: x\r\n\r\n"
    found = exchanged(address, sent + b"GET / HTTP/1.0\r\n\r\n")
    assert statuses(found) == [200, 200]


def test_a_request_id_that_came_through_is_kept(address: Address) -> None:
    (answer,) = exchanged(address, CHUNKED.replace(b"host: x", b"x-request-id: req_12345") + b"zz")
    assert answer.fields["x-request-id"] == answer.document["request_id"] == "req_12345"


def test_an_answer_to_head_has_no_body(address: Address) -> None:
    head = b"HEAD /" + b"x" * TARGET_BYTES_MAX + b" HTTP/1.1\r\n\r\n"
    assert said(address, head).endswith(b"\r\n\r\n")


def test_a_half_request_that_was_given_up_is_refused(address: Address) -> None:
    (answer,) = exchanged(address, POST, end=True)
    is_refusal(answer, 400, "bad_request")
    assert said(address, end=True) == b""


def test_an_answer_given_early_is_the_only_one(address: Address, hasty_later: Address) -> None:
    early = b"POST /early HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    with connect(address) as client:
        client.sendall(early)
        answer = b""
        # The head and the body may arrive apart.
        while not answer.endswith(b"early") and (chunk := client.recv(65_536)):
            answer += chunk
        client.sendall(b"zz\r\n")
        assert client.recv(65_536) == b""
    assert statuses(answers(answer)) == [413]
    found = exchanged(hasty_later, early)
    assert statuses(found) == [413], "no 408 comes after it"


def test_half_a_second_request_is_refused_after_the_answer_to_the_first(
    hasty_later: Address,
) -> None:
    assert statuses(exchanged(hasty_later, SLOW + POST)) == [200, 408]


def test_an_answer_may_take_its_time(address: Address) -> None:
    sent = b"POST /slow HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 4\r\n\r\n"
    (answer,) = exchanged(address, sent + b"four")
    assert (answer.status, answer.body) == (200, b"four")


def test_a_blank_line_does_not_keep_a_connection(hasty_later: Address) -> None:
    with connect(hasty_later) as client:
        client.sendall(GET)
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            chunk = client.recv(65_536)
            assert chunk
            answer += chunk
        client.sendall(b"\r\n")
        while chunk := client.recv(65_536):
            answer += chunk
    assert statuses(answers(answer)) == [200, 408]


@pytest.mark.parametrize(
    "body",
    [
        b"content-length: 5\r\n\r\nhello",
        b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ],
)
def test_an_offer_of_another_protocol_is_passed_over(address: Address, body: bytes) -> None:
    first = POST + OFFER + body
    found = exchanged(address, first + GET + first + GET.replace(b"host", OFFER + b"host") + b"\0")
    assert statuses(found) == [200, 200, 200, 200, 400]
    assert [one.body for one in found[:4]] == [b"hello", b"", b"hello", b""]
    found = exchanged(address, *(first[n : n + 1] for n in range(len(first))), b"\0")
    assert [one.body for one in found[:1]] == [b"hello"]
    assert statuses(found) == [200, 400]


def test_a_trailer_is_not_taken_for_a_header(address: Address) -> None:
    sent = CHUNKED.replace(b" / ", b" /fields ") + b"0\r\nx-forwarded-for: 1.1.1.1\r\n\r\n\0"
    assert exchanged(address, sent)[0].body == b"host,transfer-encoding"


@pytest.mark.parametrize("alone", one_in(2, ["uvloop", "asyncio"]))
def test_a_head_without_end_takes_no_memory(alone: str) -> None:
    """Many at once: each may hold its limit and what came with it, and no more."""
    endless = b"GET / HTTP/1.1\r\nhost: x\r\na: " + b"b" * 8_000_000
    program = [sys.executable, str(Path(__file__).with_name("echo_server.py")), alone]
    # In a process of its own: in this one, other tests' memory comes and goes.
    with subprocess.Popen(program, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            address = ("127.0.0.1", int(server.stdout.readline()))
            assert statuses(exchanged(address, endless)) == [431]
            process = psutil.Process(server.pid)
            before = process.memory_info().rss
            with contextlib.ExitStack() as held:
                for _ in range(40):
                    client = held.enter_context(connect(address))
                    with contextlib.suppress(ConnectionError):
                        client.sendall(endless)
                assert process.memory_info().rss - before < 60_000_000
        finally:
            server.kill()


def test_a_service_gives_errors_its_own_form() -> None:
    def render(problem: Problem, _request_id: str) -> Reply:
        return Reply(problem.status, {"error": problem.detail})

    assert http_protocol(render).render(Problem(400, "no"), "req_1").body == {"error": "no"}
    assert HttpProtocol.render(Problem(400, "no"), "req_1").body["code"] == "bad_request"


@pytest.fixture(scope="module")
def bounded(loop: str) -> Iterator[Address]:
    counts = ConnectionCounts(3)
    with serving(loop, type("Bounded", (Patient,), {"connection_counts": counts})) as found:
        yield found


def dial(address: Address, source: str) -> socket.socket:
    return socket.create_connection(address, 60, (source, 0))


def test_a_crowd_of_unfinished_bodies_leaves_the_server_to_others(bounded: Address) -> None:
    unfinished = POST + b"content-length: 9\r\n\r\nx"
    with contextlib.ExitStack() as held:
        crowd = [held.enter_context(dial(bounded, "127.0.0.2")) for _ in range(3)]
        for each in crowd:
            each.sendall(unfinished)
        for _ in range(3):
            late = held.enter_context(dial(bounded, "127.0.0.2"))
            (answer,) = answers(b"".join(iter(lambda: late.recv(65_536), b"")))  # noqa: B023
            assert (answer.status, answer.document["code"]) == (429, "too_many_at_once")
            assert answer.fields["retry-after"] == "1"
        for _ in range(5):
            assert statuses(exchanged(bounded, LAST)) == [200]
        crowd[0].sendall(b"12345678")
        assert crowd[0].recv(100).startswith(b"HTTP/1.1 200")


class Peer:
    """Stands for a connection where only its place among others counts."""

    transport = cast("Transport", None)


def test_proxies_speak_for_many() -> None:
    counts = ConnectionCounts(1, ["192.0.2.0/24"], levels=levels)
    assert [counts.enter("192.0.2.9", Peer())[1] for _ in range(3)] == [0, 0, 0]
    first = [Peer(), Peer(), Peer()]
    assert [counts.enter("198.51.100.1", each)[1] for each in first[:2]] == [1, 2]
    assert [counts.enter(f"2001:db8::{n}", Peer())[1] for n in (1, 2)] == [1, 2]
    assert counts.enter("::ffff:198.51.100.1", first[2])[1] == 3
    for each in first:
        counts.leave(levels("198.51.100.1"), each)
    assert counts.enter("198.51.100.1", Peer())[1] == 1


def test_the_oldest_of_who_has_most_gives_way_and_no_proxy_does() -> None:
    counts = ConnectionCounts(5, ["192.0.2.0/24"], all_told=5)
    few, proxy = Peer(), Peer()
    many = [Peer(), Peer(), Peer()]
    counts.enter("198.51.100.1", few)
    for each in many:
        counts.enter("198.51.100.2", each)
    counts.enter("192.0.2.9", proxy)
    assert not counts.is_full()
    late = Peer()
    counts.enter("198.51.100.3", late)
    assert (counts.is_full(), counts.first_to_go(late)) == (True, many[0])
    counts.leave(("198.51.100.2",), many[0])
    assert not counts.is_full()
    alone = ConnectionCounts(5, ["192.0.2.0/24"], all_told=1)
    alone.enter("192.0.2.9", proxy)
    alone.enter("198.51.100.3", late)
    assert (alone.is_full(), alone.first_to_go(late)) == (True, None)


@pytest.fixture(scope="module")
def narrow(loop: str) -> Iterator[Address]:
    counts = ConnectionCounts(3, ["127.0.0.9/32"], all_told=6)
    with serving(loop, type("Narrow", (Patient,), {"connection_counts": counts})) as found:
        yield found


def test_a_few_addresses_that_hold_all_connections_leave_room(narrow: Address) -> None:
    unfinished = POST + b"content-length: 9\r\n\r\nx"
    with contextlib.ExitStack() as held:
        crowd = [
            held.enter_context(dial(narrow, source))
            for source in ("127.0.0.2", "127.0.0.3")
            for _ in range(3)
        ]
        for each in crowd:
            each.sendall(unfinished)
        assert statuses(exchanged(narrow, LAST)) == [200]
        with contextlib.suppress(ConnectionResetError):
            assert crowd[0].recv(1) == b""
    with contextlib.ExitStack() as held:
        for _ in range(6):  # a proxy's own, which it must bound itself
            held.enter_context(dial(narrow, "127.0.0.9")).sendall(unfinished)
        (answer,) = exchanged(narrow, LAST)
        assert (answer.status, answer.document["code"]) == (503, "overloaded")
        assert answer.fields["retry-after"] == "1"
