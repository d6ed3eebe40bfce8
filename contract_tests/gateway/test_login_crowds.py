"""Many addresses that begin logins, without a credential and without end, keep nobody out."""

import asyncio
import contextlib
import ssl
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from contract_tests.gateway.conftest import MakeGateway
from contract_tests.gateway.postgres_clients import (
    SSL_REQUEST,
    Postgres,
    add_postgres,
    connect,
    startup,
)
from contract_tests.gateway.rig import GatewayRig, until
from contract_tests.gateway.test_bounds import not_logged_in
from gateway.addresses import levels
from gateway.bounds import Handshake, Reservations
from gateway.known_addresses import ROWS, KnownAddresses
from gateway.pool_members import FullPools, PoolMembers
from gateway.protocols.resp import RespDialogue
from gateway.slots import Slots

ADDRESSES = 60
WHOLE_CROWD = 40


class Intruders:
    """Each opens one login and, when it is hung up on, the next."""

    def __init__(self, gateway: GatewayRig, host: str) -> None:
        self._port, self._host, self._context = gateway.ports["postgres"], host, gateway.context()
        self.begun = 0

    async def one(self, source: str) -> None:
        while True:
            with contextlib.suppress(OSError, ssl.SSLError, asyncio.IncompleteReadError):
                await self._log_in(source)

    async def _log_in(self, source: str) -> None:
        place = ("127.0.0.1", self._port)
        reader, writer = await asyncio.open_connection(*place, local_addr=(source, 0))
        try:
            writer.write(SSL_REQUEST)
            await reader.readexactly(1)
            await writer.start_tls(self._context, server_hostname=self._host)
            writer.write(startup(user="app", database="postgres"))
            self.begun += 1
            while await reader.read(1_000):
                pass
        finally:
            writer.transport.abort()


@contextlib.contextmanager
def besieged(gateway: GatewayRig, host: str) -> Iterator[None]:
    intruders, loop = Intruders(gateway, host), asyncio.new_event_loop()

    async def all_of_them() -> None:
        sources = [f"127.0.1.{number + 1}" for number in range(ADDRESSES)]
        await asyncio.gather(*(intruders.one(each) for each in sources))

    task = loop.create_task(all_of_them())

    def run() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(task)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        until(lambda: intruders.begun >= WHOLE_CROWD, "all places are taken")
        yield
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        loop.close()


def attempts(gateway: GatewayRig, host: str, count: int) -> int:
    """How many of so many logins have a second for themselves: a client may be far away."""
    done = 0
    for _ in range(count):
        with not_logged_in(gateway, host, 1, "127.0.0.1") as (login,), contextlib.suppress(OSError):
            done += login.recv(1) == b"R" and not _ends_within(login, 1.0)
    return done


def _ends_within(login: ssl.SSLSocket, limit_s: float) -> bool:
    login.settimeout(limit_s)
    try:
        while login.recv(1_000):
            pass
    except TimeoutError:
        return False
    return True


def test_a_stranger_gets_in_among_many(make_gateway: MakeGateway, postgres: Postgres) -> None:
    gateway = make_gateway(ports={"postgres": 0})
    host = add_postgres(gateway, "strangers", postgres)
    with besieged(gateway, host):
        # A machine that stalls for longer than a login keeps its place spoils a try.
        assert any(attempts(gateway, host, 1) for _ in range(5))


@pytest.mark.nightly
def test_an_address_that_has_logged_in_before_goes_first(
    make_gateway: MakeGateway, postgres: Postgres
) -> None:
    gateway = make_gateway(ports={"postgres": 0})
    host = add_postgres(gateway, "known", postgres)
    connect(gateway, host).close()
    with besieged(gateway, host):
        assert attempts(gateway, host, 3) == 3
        connect(gateway, host).close()


def test_who_is_known_is_known_for_a_day_and_at_one_instance() -> None:
    known = KnownAddresses()
    known.add("one", "192.0.2.1")
    assert known.has("one", "192.0.2.1")
    assert not known.has("two", "192.0.2.1")
    assert not known.has("one", "192.0.2.2")
    for number in range(1_000):
        known.add("two", f"198.51.100.{number}")
    assert known.has("one", "192.0.2.1") or ROWS < 10_000


@pytest.mark.parametrize(("unsure", "stays"), [(True, False), (True, True), (False, True)])
def test_who_only_says_goodbye_is_not_known_afterwards(*, unsure: bool, stays: bool) -> None:
    """Redis answers QUIT as it answers AUTH, and asks for no password."""
    later: list[Any] = []
    route: Any = SimpleNamespace(counted_as="one", connections_max=None, instance_id=None)
    route.protocol = "resp"
    settings = SimpleNamespace(address_logins_max=4, logins_max=8)
    shared: Any = SimpleNamespace(slots=Slots(1), settings=settings)
    shared.loop = SimpleNamespace(call_later=lambda _s, act: later.append(act), time=time.monotonic)
    shared.pools = FullPools(shared)
    places = Reservations(shared, Patient())
    assert places.begin_login(route, "192.0.2.1")
    turn = RespDialogue().from_backend(b"+OK\r\n" if unsure else b"%7\r\n")
    assert (turn.spliced, turn.unsure) == (True, unsure)
    places.end_login(route, turn)
    if not stays:
        places.leave()
    later[0]()
    assert shared.slots.known.has("one", "192.0.2.1") is stays


def test_who_said_goodbye_and_reads_nothing_is_not_known_either() -> None:
    """The engine's end is noticed only when somebody looks for it."""
    later: list[Any] = []
    route: Any = SimpleNamespace(counted_as="one", connections_max=None, instance_id=None)
    route.protocol = "resp"
    shared: Any = SimpleNamespace(slots=Slots(1))
    shared.settings = SimpleNamespace(address_logins_max=4, logins_max=8)
    shared.loop = SimpleNamespace(call_later=lambda _s, act: later.append(act), time=time.monotonic)
    shared.pools = FullPools(shared)

    class Unread(Patient):
        def notice_breaks(self) -> None:
            places.leave()

    places = Reservations(shared, Unread())
    assert places.begin_login(route, "192.0.2.1")
    places.end_login(route, RespDialogue().from_backend(b"+OK\r\n"))
    later[0]()
    assert not shared.slots.known.has("one", "192.0.2.1")


class Patient:
    evictable = True

    def take_turn(self) -> bool:
        return False

    def notice_breaks(self) -> None:
        pass

    def close(self) -> None:
        pass


def test_who_goes_is_chosen_by_chance_among_equals_and_not_before_its_time() -> None:
    crowd, members = PoolMembers(), [Patient() for _ in range(4)]
    for number, each in enumerate(members):
        crowd.join(levels(f"192.0.{number}.1"), each, at=float(number))
    newcomer = levels("198.51.100.1")
    assert crowd.first_to_go(newcomer, before=-1.0) is None
    assert {crowd.first_to_go(newcomer, before=1.0) for _ in range(200)} == {*members[:2]}
    assert crowd.first_to_go(levels("192.0.1.1"), before=9.0) is None


def test_an_address_is_within_networks() -> None:
    assert levels("::ffff:192.0.2.1") == ("192.0.2.0/24", "192.0.2.1")
    assert levels("2001:db8:1:2ff::3") == (
        *("2001:db8::/32", "2001:db8:1::/48"),
        *("2001:db8:1:200::/56", "2001:db8:1:2ff::/64"),
    )
    assert levels("local") == ("local",)


WIDE = {
    "an IPv4 /24": "203.0.113.{0}",
    "an IPv6 /56": "2001:db8:7:{0:x}::1",
    "an IPv6 /48": "2001:db8:7:{0:x}00::1",
    "an IPv6 /32": "2001:db8:{0:x}::1",
}


@pytest.mark.parametrize("wide", WIDE)
def test_who_has_a_network_makes_room_for_those_with_less(wide: str) -> None:
    """One connection from each of its addresses; a neighbour has three from one of its own."""
    crowd, neighbour = PoolMembers(), [Patient() for _ in range(3)]
    for each in neighbour:
        crowd.join(levels("192.0.2.1"), each)
    many = [Patient() for _ in range(20)]
    for number, member in enumerate(many, 1):
        crowd.join(levels(WIDE[wide].format(number)), member)
    for newcomer in ("198.51.100.1", "192.0.2.9", "2001:dead:1::1", None):
        given = newcomer and levels(newcomer)
        assert {crowd.first_to_go(given or None, 1.0) for _ in range(50)} <= {*many}
    own = levels(WIDE[wide].format(99))
    assert {crowd.first_to_go(own, 1.0) for _ in range(50)} <= {*many}, "not the neighbour's"
    # Of those who wait, nobody is behind all of them.
    turns = [list(crowd.in_turn()) for _ in range(20)]
    assert all({*each[:2]} & {*neighbour} for each in turns)
    for number, member in enumerate(many, 1):
        crowd.leave(levels(WIDE[wide].format(number)), member)
    assert crowd.size == 3


def test_a_network_with_a_handshake_from_each_address_is_the_first_to_make_room() -> None:
    settings = SimpleNamespace(address_handshakes_max=4)
    shared: Any = SimpleNamespace(unproven={}, handshakes=PoolMembers(), settings=settings)
    members: list[Any] = [Patient() for _ in range(7)]
    sources = ["192.0.2.1", "192.0.2.1", *(f"2001:db8:7:{n}::1" for n in range(5))]
    begun = [Handshake(shared, member) for member in members]
    for handshake, source in zip(begun, sources, strict=True):
        handshake.is_from(source)
    assert shared.handshakes.first_to_go() in members[2:]
    for handshake in (*begun, *begun):
        handshake.end()
    assert not any((shared.unproven, shared.handshakes))


def test_in_a_network_the_address_with_most_is_the_first_to_make_room() -> None:
    crowd, members = PoolMembers(), [Patient() for _ in range(4)]
    for address, member in zip(["2001:db8:7:1::", *["2001:db8:7:2::"] * 3], members, strict=True):
        crowd.join(levels(address), member)
    assert crowd.first_to_go() is members[1]


def test_who_waits_takes_little_of_a_workers_time_and_of_nobody_elses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One crowd waits at an instance where each look costs 5 ms, and one client at another."""
    now, asked = [0.0], {"crowd": 0, "alone": 0}
    monkeypatch.setattr("gateway.pool_members.time", SimpleNamespace(monotonic=lambda: now[0]))

    class Waiting(Patient):
        def __init__(self, pool: str, costs_s: float) -> None:
            self._pool, self._costs_s = pool, costs_s

        def take_turn(self) -> bool:
            asked[self._pool] += 1
            now[0] += self._costs_s
            return False

    shared: Any = SimpleNamespace(loop=SimpleNamespace(time=lambda: now[0]))
    pools = FullPools(shared)
    for number in range(100):
        pools.join("crowd", levels(f"192.0.{number}.1"), Waiting("crowd", 0.005))
    pools.join("alone", levels("198.51.100.1"), Waiting("alone", 0.0))
    while now[0] < 60.0:
        for _ in range(100):
            pools.draw("crowd")
        pools.draw("alone")
        now[0] += 0.01
    assert 0 < asked["crowd"] * 0.005 <= 6.0
    assert asked["alone"] > 1_000
