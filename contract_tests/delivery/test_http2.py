"""Receivers over HTTP/2: one connection for many requests, none of which is in another's way."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from contract_tests.delivery.http2_receiver import Asked, Http2Receiver
from contract_tests.gateway.authorities import SERVER, Authority
from control.delivery.guarded import READ_BYTES_MAX, GuardedClient, PostAnswer
from control.delivery.receiver_urls import Reach, ReceiverUrl

HOST = "hooks.example.com"
GIVEN_UP = 80
"""Twice as many are more than are open at once on a connection, by what both ends say."""
LARGE = 4 * READ_BYTES_MAX
Post = Callable[[str], Awaitable[PostAnswer]]
Ask = Callable[[Post, Http2Receiver], Awaitable[None]]


class Loopback:
    async def addresses(self, _host: str) -> list[str]:
        return ["127.0.0.1"]


@pytest.fixture
def tls(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of the receiver, and of who trusts it."""
    authority = Authority("ca", tmp_path)
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pair = authority.issue(HOST, SERVER)
    served.load_cert_chain(pair.certificate, pair.key)
    return served, ssl.create_default_context(cadata=authority.pem)


def exchanged(tls: tuple[ssl.SSLContext, ssl.SSLContext], ask: Ask) -> Http2Receiver:
    """What the receiver got of what `ask` has posted."""
    served, trusting = tls

    async def run(receiver: Http2Receiver) -> None:
        reach = Reach(excepted=("127.0.0.1/32",))
        client = GuardedClient(reach, Loopback(), within_s=60.0, tls=trusting)

        async def post(path: str) -> PostAnswer:
            place = ReceiverUrl("https", HOST, receiver.port, path)
            return await client.post(place, b'{"a":1}', {"Svc-Event-Id": "evt_1"})

        try:
            await ask(post, receiver)
        finally:
            await client.close()

    with Http2Receiver(served, by_path) as receiver:
        asyncio.run(run(receiver))
    return receiver


def by_path(asked: Asked) -> int | None:
    return {"/hangs": None, "/large": LARGE}.get(asked.path, 2)


def test_http2_is_agreed_on_and_one_connection_has_all(
    tls: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    async def ask(post: Post, _receiver: Http2Receiver) -> None:
        first = await post("/hook?a=b")
        assert (first.status, first.error, first.head) == (200, None, "xx")
        answers = await asyncio.gather(*(post("/hook") for _ in range(20)))
        assert all(each.is_success for each in answers)

    receiver = exchanged(tls, ask)
    assert receiver.connections == 1
    got = receiver.asked[0]
    assert (got.path, got.body) == ("/hook?a=b", b'{"a":1}')
    assert got.headers["svc-event-id"] == "evt_1"
    assert got.headers[":authority"].startswith(HOST)
    assert len(receiver.asked) == 21


async def until_asked(receiver: Http2Receiver, count: int) -> None:
    async with asyncio.timeout(60):
        while sum(one.path == "/hangs" for one in receiver.asked) < count:  # noqa: ASYNC110 -- of a thread
            await asyncio.sleep(0.01)


def test_requests_that_were_given_up_take_no_place_of_others(
    tls: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    """A host may be shared: what hangs for one organization must not stop all others' events."""

    async def ask(post: Post, receiver: Http2Receiver) -> None:
        assert (await post("/hook")).is_success
        for turn in (1, 2):
            hanging = [asyncio.ensure_future(post("/hangs")) for _ in range(GIVEN_UP)]
            await until_asked(receiver, turn * GIVEN_UP)
            # As when their time is up.
            for each in hanging:
                each.cancel()
            await asyncio.gather(*hanging, return_exceptions=True)
            found = await post("/hook")
            assert (found.status, found.error) == (200, None)

    receiver = exchanged(tls, ask)
    assert receiver.connections == 1
    assert receiver.resets == 2 * GIVEN_UP


def test_answers_that_are_not_read_to_their_end_leave_room_for_others(
    tls: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    """The room of a connection is 16 MiB: it must not be filled by what nobody reads."""

    async def ask(post: Post, _receiver: Http2Receiver) -> None:
        for _ in range(12):
            answers = await asyncio.gather(*(post("/large") for _ in range(10)))
            assert all(each.is_success for each in answers)
        found = await post("/hook")
        assert (found.status, found.error, found.head) == (200, None, "xx")

    receiver = exchanged(tls, ask)
    assert receiver.connections == 1
