"""What a client shows in its handshake holds up nobody else, however much work it is."""

import asyncio
import json
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
from gateway.client_certificates import THREADS, WAITING_MAX, ClientCertificates
from gateway.routes import Routes
from gateway.tls_session import HANDSHAKE_MAX_BYTES, TlsError, TlsSession
from gateway.tls_steps import TlsSteps

HERE = "127.0.0.1"


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


def test_a_tenant_has_one_thread_and_others_have_theirs() -> None:
    async def run() -> None:
        verifying = ClientCertificates()
        slow = [Slow() for _ in range(5)]
        tasks = [asyncio.create_task(verifying.handshake("one", HERE, each)) for each in slow]
        await until_begun(slow[0])
        for _ in range(3):
            assert await verifying.handshake("another", HERE, quick())
        assert sum(each.begun.is_set() for each in slow) == 1
        for each in slow:
            each.go_on.set()
        assert await asyncio.gather(*tasks) == [True] * 5

    asyncio.run(run())


def test_tenants_take_turns() -> None:
    """However many handshakes two of them have, a third one's is the next."""

    async def run() -> None:
        verifying = ClientCertificates()
        crowd = {name: [Slow() for _ in range(20)] for name in ("one", "two")}
        tasks = [
            asyncio.create_task(verifying.handshake(name, HERE, each))
            for name, sessions in crowd.items()
            for each in sessions
        ]
        for sessions in crowd.values():
            await until_begun(sessions[0])
        third = Slow()
        tasks.append(asyncio.create_task(verifying.handshake("three", HERE, third)))
        await asyncio.sleep(0)
        crowd["one"][0].go_on.set()
        await until_begun(third)
        begun = [each for sessions in crowd.values() for each in sessions if each.begun.is_set()]
        assert begun == [crowd["one"][0], crowd["two"][0]]
        for each in (third, *crowd["one"], *crowd["two"]):
            each.go_on.set()
        assert all(await asyncio.gather(*tasks))

    asyncio.run(run())


def test_a_client_that_leaves_does_not_give_its_thread_to_the_next() -> None:
    async def run() -> None:
        verifying = ClientCertificates()
        first, second = Slow(), quick()
        leaving = asyncio.create_task(verifying.handshake("one", HERE, first))
        await until_begun(first)
        leaving.cancel()
        waiting = asyncio.create_task(verifying.handshake("one", HERE, second))
        await asyncio.sleep(0.05)
        assert not second.begun.is_set()
        first.go_on.set()
        assert await waiting
        assert leaving.cancelled()

    asyncio.run(run())


def test_so_many_wait_of_a_tenant_and_who_has_most_makes_room() -> None:
    async def run() -> None:
        verifying = ClientCertificates()
        served, crowd = Slow(), [Slow() for _ in range(WAITING_MAX)]
        first = asyncio.create_task(verifying.handshake("one", HERE, served))
        await until_begun(served)
        tasks = [asyncio.create_task(verifying.handshake("one", HERE, each)) for each in crowd]
        await asyncio.sleep(0)
        with pytest.raises(TlsError, match="too many"):
            await verifying.handshake("one", HERE, quick())
        elsewhere = asyncio.create_task(verifying.handshake("one", "203.0.113.9", quick()))
        with pytest.raises(TlsError, match="too many"):
            await tasks[0]
        assert await verifying.handshake("another", HERE, quick())
        for each in (served, *crowd):
            each.go_on.set()
        assert all(await asyncio.gather(first, elsewhere, *tasks[1:]))

    asyncio.run(run())


def test_nothing_is_kept_of_who_is_done_or_has_left() -> None:
    async def run() -> None:
        verifying, slow = ClientCertificates(), Slow()
        served = asyncio.create_task(verifying.handshake("one", HERE, slow))
        await until_begun(slow)
        waiting = asyncio.create_task(verifying.handshake("one", HERE, quick()))
        await asyncio.sleep(0)
        waiting.cancel()
        slow.go_on.set()
        await asyncio.wait([served, waiting])
        assert waiting.cancelled()
        assert not verifying._tenants
        assert verifying._free == THREADS

    asyncio.run(run())


def test_all_instances_of_a_tenant_have_its_turn(tmp_path: Path) -> None:
    """An instance of an older cell, which says no tenant, is one of its own."""
    entry = {"protocol": "https", "state": "running", "client_ca_pem": "authorities"}
    instances = {
        "a.x": {**entry, "instance_id": "a", "tenant": "whose"},
        "b.x": {**entry, "instance_id": "b", "tenant": "whose"},
        "c.x": {**entry, "instance_id": "c"},
    }
    path = tmp_path / "routes.json"
    path.write_text(json.dumps({"instances": instances}))
    routes = Routes(path)
    routes.refresh()
    found = []
    for host in instances:
        steps: Any = TlsSteps.__new__(TlsSteps)
        steps._shared = SimpleNamespace(certificates=SimpleNamespace(context=lambda *_: None))
        steps._asked_for = None
        steps._agreed_context(routes.find(host, ("https",)), (), HERE)
        found.append(steps._turn_of)
    assert found == [("whose", HERE), ("whose", HERE), ("c", HERE)]


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
        steps._asked_for, steps._tls, steps._turn_of = "authorities", Heard(), ("one", HERE)
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
