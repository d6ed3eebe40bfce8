"""What a client shows in its handshake holds up nobody else, however much work it is."""

import asyncio
import ssl
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from contract_tests.gateway.authorities import Authority
from contract_tests.gateway.rig import GatewayRig, raw_get
from gateway.client_certificates import ASKING_MAX, ClientCertificates
from gateway.tls_session import HANDSHAKE_MAX_BYTES, TlsError, TlsSession
from gateway.tls_steps import TlsSteps


class Slow(TlsSession):
    """A session whose handshake takes as long as is wanted."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()

    def handshake(self) -> bool:
        self.begun.set()
        assert self.go_on.wait(30)
        return True


def quick() -> Slow:
    session = Slow()
    session.go_on.set()
    return session


async def until_begun(session: Slow) -> None:
    assert await asyncio.to_thread(session.begun.wait, 30)


def test_an_instance_has_one_thread_and_others_have_theirs() -> None:
    async def run() -> None:
        verifying = ClientCertificates()
        slow = [Slow() for _ in range(5)]
        tasks = [asyncio.create_task(verifying.handshake("one", each)) for each in slow]
        await until_begun(slow[0])
        for _ in range(3):
            assert await verifying.handshake("another", quick())
        assert [each.begun.is_set() for each in slow] == [True, False, False, False, False]
        for each in slow:
            each.go_on.set()
        assert await asyncio.gather(*tasks) == [True] * 5

    asyncio.run(run())


def test_a_client_that_leaves_does_not_give_its_thread_to_the_next() -> None:
    async def run() -> None:
        verifying = ClientCertificates()
        first, second = Slow(), quick()
        leaving = asyncio.create_task(verifying.handshake("one", first))
        await until_begun(first)
        leaving.cancel()
        waiting = asyncio.create_task(verifying.handshake("one", second))
        await asyncio.sleep(0.05)
        assert not second.begun.is_set()
        first.go_on.set()
        assert await waiting
        assert leaving.cancelled()

    asyncio.run(run())


def test_so_many_wait_for_an_instance_and_no_more() -> None:
    async def run() -> None:
        verifying = ClientCertificates()
        slow = [Slow() for _ in range(ASKING_MAX)]
        tasks = [asyncio.create_task(verifying.handshake("one", each)) for each in slow]
        await until_begun(slow[0])
        with pytest.raises(TlsError, match="too many"):
            await verifying.handshake("one", quick())
        assert await verifying.handshake("another", quick())
        for each in slow:
            each.go_on.set()
        await asyncio.gather(*tasks)

    asyncio.run(run())


def chain(length: int, folder: Path) -> tuple[str, Path, Path]:
    """An authority, and files with a chain of so many below it and the key of its end."""
    root = Authority("root", folder)
    pems = []
    above = root
    for number in range(length):
        above = above.subordinate(f"below-{number}")
        pems.append(above.pem)
    pair = above.issue("app")
    path = folder / "chain.pem"
    path.write_text(pair.certificate.read_text() + "".join(reversed(pems)))
    return root.pem, path, pair.key


def size(path: Path) -> int:
    found = x509.load_pem_x509_certificates(path.read_bytes())
    return sum(len(each.public_bytes(serialization.Encoding.DER)) for each in found)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_chain_has_a_longest(
    gateway: GatewayRig, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    for length, is_let_in in ((3, True), (60, False)):
        folder = tmp_path / str(length)
        folder.mkdir()
        pem, certificates, key = chain(length, folder)
        assert (size(certificates) < HANDSHAKE_MAX_BYTES) is is_let_in
        name = f"chain-{length}-{version.name[-1]}"
        host = gateway.add_instance(name, client_ca_pem=pem)
        context = gateway.context()
        context.maximum_version = version
        context.load_cert_chain(certificates, key)
        try:
            with gateway.connect(host, context) as connection:
                answered = raw_get(connection)[0] == 200
        except (ssl.SSLError, ConnectionError, AssertionError):
            answered = False
        assert answered is is_let_in


def test_certificates_that_come_with_the_hello_are_verified_apart() -> None:
    """In TLS 1.2 a client needs no answer to show them."""

    class Heard(Slow):
        def receive_handshake(self, data: memoryview) -> bytes:
            assert bytes(data) == b"hello and certificates"
            return b""

    async def run() -> None:
        steps: Any = TlsSteps.__new__(TlsSteps)
        steps._asked_for, steps._tls, steps._counted_as = "authorities", Heard(), lambda: "one"
        steps._client = SimpleNamespace(pause=lambda: None, resume=lambda: None, closed=True)
        loop = asyncio.get_running_loop()
        steps._shared = SimpleNamespace(loop=loop, client_certificates=ClientCertificates())
        steps.flush = lambda: None
        steps._hear_hello(b"hello and certificates")
        assert not steps._tls.go_on.is_set(), "nothing has waited for the handshake"
        await until_begun(steps._tls)
        steps._tls.go_on.set()
        await steps._opening

    asyncio.run(run())
