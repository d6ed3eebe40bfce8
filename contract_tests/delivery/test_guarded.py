"""What is sent goes to nobody within, for so long, and so much of the answer is read."""

import asyncio
import ssl
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from contract_tests.delivery.receivers import Answering, Received, Receiver
from contract_tests.gateway.authorities import SERVER, Authority
from contract_tests.name_server import NameServer
from control.delivery.dns_names import DnsNames, NameUnknown
from control.delivery.guarded import READ_BYTES_MAX, GuardedClient, PostAnswer
from control.delivery.receiver_urls import Reach, ReceiverUrl

HERE = Reach(here=True)
INSIDE = Reach(excepted=("127.0.0.1/32",))


class Told:
    """Names that lead where tests say, to something else each time."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)

    async def addresses(self, _host: str) -> list[str]:
        if not self.answers:
            raise NameUnknown("the host name does not exist in DNS")
        return self.answers.pop(0)


def post(
    place: ReceiverUrl,
    *,
    reach: Reach = HERE,
    names: Told | DnsNames | None = None,
    within_s: float = 5.0,
    tls: ssl.SSLContext | None = None,
    times: int = 1,
) -> list[PostAnswer]:
    async def ask() -> list[PostAnswer]:
        client = GuardedClient(reach, names or DnsNames(), within_s=within_s, tls=tls)
        try:
            return [await client.post(place, b"{}", {"X-Own": "1"}) for _ in range(times)]
        finally:
            await client.close()

    return asyncio.run(ask())


def at(receiver: Receiver, host: str = "localhost", scheme: str = "http") -> ReceiverUrl:
    return ReceiverUrl(scheme, host, receiver.port, "/hook?a=b")


def answering(answer: Answering, _received: Received) -> Answering:
    return answer


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        yield made


def test_what_comes_back_is_told_and_connections_are_reused(receiver: Receiver) -> None:
    receiver.answer = lambda _: Answering(201, {"Retry-After": "7"}, b"made\x00\x1b[31m it")
    first, second = post(at(receiver), times=2)
    assert (first.status, first.error, first.is_success) == (201, None, True)
    assert first.retry_after == "7"
    assert first.head == "made\\x00\\x1b[31m it"
    assert second.is_success
    assert receiver.connections == 1
    got = receiver.received[0]
    assert (got.path, got.body, got.headers["x-own"]) == ("/hook?a=b", b"{}", "1")
    assert got.headers["host"] == f"localhost:{receiver.port}"


def test_no_redirect_is_followed_and_no_proxy_is_asked(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Receiver() as canary:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{canary.port}")
        receiver.answer = lambda _: Answering(307, {"Location": canary.url})
        (answer,) = post(at(receiver))
        assert (answer.status, answer.is_success) == (307, False)
        assert not canary.received


@pytest.mark.parametrize(
    "addresses", [["127.0.0.2"], ["127.0.0.1", "10.0.0.1"], ["8.8.8.8", "::1"], ["169.254.169.254"]]
)
def test_one_denied_address_of_a_name_spoils_all(receiver: Receiver, addresses: list[str]) -> None:
    (answer,) = post(at(receiver, "two.example.com"), reach=INSIDE, names=Told(addresses))
    assert answer.error == "the host leads to an address that is not public"
    assert not receiver.connections


def test_a_name_that_leads_elsewhere_a_moment_later_has_no_effect() -> None:
    """It is looked up once for a connection, which goes to the address that was checked."""
    with Receiver(host="127.0.0.2") as within, Receiver() as allowed:
        names = Told(["127.0.0.1"], ["127.0.0.2"])
        place = ReceiverUrl("http", "rebound.example.com", within.port, "/")
        (answer,) = post(place, reach=INSIDE, names=names)
        assert answer.error == "the connection was refused"
        assert names.answers == [["127.0.0.2"]]
        (answer,) = post(place, reach=INSIDE, names=names)
        assert answer.error == "the host leads to an address that is not public"
        assert not within.connections
        assert not allowed.connections


def test_a_name_of_the_dns_is_asked_of_the_dns(receiver: Receiver) -> None:
    names = NameServer()
    names.start()
    try:
        names.records["hooks.example.com"] = "elsewhere.example.net"
        names.addresses["elsewhere.example.net"] = "127.0.0.1"
        asked = DnsNames([names.address])
        (answer,) = post(at(receiver, "hooks.example.com"), reach=INSIDE, names=asked)
        assert answer.is_success
        (answer,) = post(at(receiver, "hooks.example.com"), reach=Reach(), names=asked)
        assert answer.error == "the host leads to an address that is not public"
        (answer,) = post(at(receiver, "nobody.example.com"), names=asked)
        assert answer.error == "the host name does not exist in DNS"
        names.silent.add("silent.example.com")
        slow = DnsNames([names.address], lookup_s=0.1)
        (answer,) = post(at(receiver, "silent.example.com"), names=slow)
        assert answer.error == "DNS does not answer for the host name"
    finally:
        names.close()


def test_an_answer_ends_in_time_however_slowly_it_comes(receiver: Receiver) -> None:
    for slow in (Answering(hangs_s=30), Answering(drip_s=0.05, body=b"x" * 10_000)):
        receiver.answer = partial(answering, slow)
        begun = time.monotonic()
        (answer,) = post(at(receiver), within_s=0.3)
        assert answer.error == "no complete answer within 0.3 seconds"
        assert time.monotonic() - begun < 5


def test_no_more_is_read_than_is_allowed_and_nothing_is_unpacked(receiver: Receiver) -> None:
    receiver.answer = lambda _: Answering(
        headers={"Content-Encoding": "gzip"}, body=b"y" * (100 * READ_BYTES_MAX)
    )
    (answer,) = post(at(receiver))
    assert answer.is_success
    assert answer.head.startswith("yyyy")
    assert len(answer.head) <= 1_024


def test_tls_is_verified_for_the_name(tmp_path: Path) -> None:
    authority = Authority("ca", tmp_path)
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pair = authority.issue("hooks.example.com", SERVER)
    served.load_cert_chain(pair.certificate, pair.key)
    trusting = ssl.create_default_context(cadata=authority.pem)
    with Receiver(tls=served) as receiver:
        right, wrong = (
            at(receiver, host, "https") for host in ("hooks.example.com", "other.example.com")
        )
        for place, tls, error in (
            (right, trusting, None),
            (wrong, trusting, "the certificate is not valid"),
            (right, None, "the certificate is not valid"),
        ):
            (answer,) = post(place, reach=INSIDE, names=Told(["127.0.0.1"]), tls=tls)
            assert (answer.error or "").partition(":")[0] == (error or "")
        assert len(receiver.received) == 1


def test_what_is_no_http_is_said_to_be_none() -> None:
    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail ESMTP\r\n")
        await writer.drain()
        writer.close()

    async def ask() -> PostAnswer:
        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        client = GuardedClient(HERE, DnsNames(), within_s=5)
        try:
            return await client.post(ReceiverUrl("http", "127.0.0.1", port, "/"), b"", {})
        finally:
            await client.close()
            server.close()

    assert asyncio.run(ask()).error == "what came back is not HTTP, or ended early"
