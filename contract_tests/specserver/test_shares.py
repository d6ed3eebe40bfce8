"""Owns the proof that callers nobody knows keep no place, thread or memory from those known."""

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from contract_tests.specserver.calling import bakery, minimal, play, scope, served
from specserver import Unavailable
from specserver.shares import (
    BLOCK_BYTES,
    BODY_BLOCKS,
    BODY_BLOCKS_OF_ONE,
    Pool,
    Shares,
    Stranger,
)
from specserver.turns import Turns

DONE = {"responses": {"200": {"description": "Done."}}}
BUDGET = BODY_BLOCKS * BLOCK_BYTES


def whose(exchange: Any) -> Any:
    known = exchange.request.headers.get("x-known")
    return known or Stranger(exchange.request.headers["x-address"])


async def ask(app: Any, headers: dict[str, str]) -> int:
    sent = await play(app, scope("GET", "/thing", headers), [{"type": "http.request", "body": b""}])
    status: int = sent[0]["status"]
    return status


async def ended(tasks: list[Any], count: int) -> int:
    """Waits until so many have ended; how many have."""
    while sum(task.done() for task in tasks) < count:
        left = [task for task in tasks if not task.done()]
        await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
    return sum(task.done() for task in tasks)


def test_who_has_fewer_waiting_replaces_the_latest_of_who_has_most() -> None:
    async def run() -> None:
        pool = Turns(1, 1, waiting_of_one=4, waiting=4)
        await pool.enter("first")
        crowd = [asyncio.create_task(pool.enter("crowd")) for _ in range(4)]
        await asyncio.sleep(0)
        other = asyncio.create_task(pool.enter("other"))
        await asyncio.wait({crowd[3]}, timeout=60)
        with pytest.raises(Unavailable):
            await crowd[3]
        second = asyncio.create_task(pool.enter("other"))
        await asyncio.wait({crowd[2]}, timeout=60)
        with pytest.raises(Unavailable):
            await crowd[2]
        with pytest.raises(Unavailable):
            await pool.enter("crowd")
        pool.leave("first")
        await crowd[0]
        pool.leave("crowd")
        await other
        for task in (crowd[1], second):
            task.cancel()
        await asyncio.gather(crowd[1], second, return_exceptions=True)
        pool.leave("other")
        assert pool.try_enter("late")

    asyncio.run(run())


def of_network(network: int, address: int) -> Stranger:
    return Stranger(f"2001:db8:{network:x}::/48", f"2001:db8:{network:x}:{address:x}::/64")


def test_a_network_full_of_addresses_has_one_turn_among_networks() -> None:
    """One holder of a /48 fills all that may wait, each address with one request."""

    async def run() -> list[Stranger]:
        pool, order = Pool(2, 1, waiting_of_one=16), []

        async def verify(caller: Stranger) -> None:
            await pool.enter(caller)
            order.append(caller)
            await asyncio.sleep(0)
            pool.leave(caller)

        crowd = [asyncio.create_task(verify(of_network(1, n))) for n in range(700)]
        await asyncio.sleep(0)
        victims = [asyncio.create_task(verify(of_network(n, 0))) for n in (2, 3)]
        await asyncio.gather(*victims)
        ends = await asyncio.gather(*crowd, return_exceptions=True)
        # What gave way are the latest, and the others came in their order.
        served = sum(end is None for end in ends)
        ours = [caller for caller in order if caller[0] == of_network(1, 0)[0]]
        assert 500 < served < 514
        assert ours == [of_network(1, n) for n in range(served)]
        return order

    order = asyncio.run(run())
    # One was under way, one came before the first of them began to wait, and one had its turn.
    assert max(order.index(of_network(n, 0)) for n in (2, 3)) <= 4


def test_within_a_network_addresses_take_turns_too() -> None:
    async def run() -> None:
        pool, order = Turns(1, 1, waiting_of_one=9, waiting=9), []
        await pool.enter("first")

        async def verify(caller: Stranger) -> None:
            await pool.enter(caller)
            order.append(caller[1])
            pool.leave(caller)

        crowd = [asyncio.create_task(verify(of_network(1, 1))) for _ in range(9)]
        await asyncio.sleep(0)
        neighbor = asyncio.create_task(verify(of_network(1, 2)))
        await asyncio.sleep(0)
        pool.leave("first")
        ends = await asyncio.gather(*crowd, neighbor, return_exceptions=True)
        assert isinstance(ends[8], Unavailable)
        assert order.index(of_network(1, 2)[1]) == 1
        assert pool.try_enter("late")

    asyncio.run(run())


def test_a_network_leaves_places_to_strangers_of_others() -> None:
    pool = Pool(64, 32)
    crowd = [pool.try_enter(of_network(1, n)) for n in range(64)]
    assert crowd.count(True) == 16
    assert all(pool.try_enter(of_network(2, n)) for n in range(8))


def test_a_waiter_cancelled_as_it_is_replaced_gives_nothing_back() -> None:
    async def run() -> None:
        pool = Turns(1, 1, waiting_of_one=2, waiting=2)
        await pool.enter("first")
        crowd = [asyncio.create_task(pool.enter("crowd")) for _ in range(2)]
        await asyncio.sleep(0)
        other = asyncio.create_task(pool.enter("other"))
        await asyncio.sleep(0)
        crowd[1].cancel()
        await asyncio.wait(crowd[1:], timeout=60)
        assert crowd[1].done()
        assert not pool.try_enter("late")
        pool.leave("first")
        await crowd[0]
        pool.leave("crowd")
        await other
        pool.leave("other")

    asyncio.run(run())


@pytest.mark.nightly
def test_hundreds_of_strangers_leave_half_to_those_known() -> None:
    """500 addresses, each with several requests under way; no place is free to one more."""

    async def run() -> None:
        free, loop = asyncio.Event(), asyncio.get_running_loop()

        def slow(request: Any) -> dict[str, Any]:
            if "x-known" not in request.headers:
                asyncio.run_coroutine_threadsafe(free.wait(), loop).result(60)
            return {}

        shares = Shares(whose, threads=4)
        app = served(minimal(DONE), slow, threads=4, shares=shares)
        crowd = [
            asyncio.create_task(ask(app, {"x-address": f"192.0.2.{n % 500}"})) for n in range(1500)
        ]
        async with asyncio.timeout(60):
            await ended(crowd, 1500 - 514)
            assert [await ask(app, {"x-known": "ada"}) for _ in range(5)] == [200] * 5
            together = (ask(app, {"x-known": f"org {n % 7}"}) for n in range(500))
            assert await asyncio.gather(*together) == [200] * 500
            free.set()
            statuses = await asyncio.gather(*crowd)
        assert (statuses.count(200), statuses.count(503)) == (514, 1500 - 514)

    asyncio.run(run())


def test_heavy_requests_of_strangers_hold_one_thread() -> None:
    async def run() -> None:
        free, loop = asyncio.Event(), asyncio.get_running_loop()

        def hash_it(request: Any) -> dict[str, Any]:
            if "x-heavy" in request.headers:
                asyncio.run_coroutine_threadsafe(free.wait(), loop).result(60)
            return {}

        shares = Shares(
            whose, threads=4, is_heavy=lambda exchange: "x-heavy" in exchange.request.headers
        )
        app = served(minimal(DONE), hash_it, threads=4, shares=shares)
        crowd = [
            asyncio.create_task(ask(app, {"x-heavy": "", "x-address": f"192.0.2.{n % 200}"}))
            for n in range(600)
        ]
        async with asyncio.timeout(60):
            await ended(crowd, 600 - 513)
            # Neither are other strangers held up, nor the heavy requests of somebody known.
            assert [await ask(app, {"x-address": "192.0.2.1"}) for _ in range(5)] == [200] * 5
            known = asyncio.create_task(ask(app, {"x-known": "ada", "x-heavy": ""}))
            free.set()
            assert await known == 200
            statuses = await asyncio.gather(*crowd)
        assert (statuses.count(200), statuses.count(503)) == (513, 600 - 513)

    asyncio.run(run())


def test_who_hangs_up_while_waiting_is_not_worked_for() -> None:
    """Or a crowd that asks and leaves would have everybody else wait for what nobody reads."""

    async def run() -> None:
        free, loop, done = asyncio.Event(), asyncio.get_running_loop(), 0

        def hash_it() -> dict[str, Any]:
            nonlocal done
            done += 1
            asyncio.run_coroutine_threadsafe(free.wait(), loop).result(60)
            return {}

        shares = Shares(whose, threads=4, is_heavy=lambda _exchange: True)
        app = served(minimal(DONE), hash_it, threads=4, shares=shares)
        first = asyncio.create_task(ask(app, {"x-address": "192.0.2.1"}))
        gone = [
            play(
                app,
                scope("GET", "/thing", {"x-address": f"198.51.100.{n}"}),
                [{"type": "http.request", "body": b""}],
                then_gone=True,
            )
            for n in range(100)
        ]
        async with asyncio.timeout(60):
            assert await asyncio.gather(*gone) == [[]] * 100
            last = asyncio.create_task(ask(app, {"x-address": "192.0.2.2"}))
            free.set()
            assert [await first, await last] == [200, 200]
        assert done == 2

    asyncio.run(run())


def post(app: Any, headers: dict[str, str], size: int, gone: asyncio.Event) -> Any:
    """A request whose body of this size comes, in pieces, and never ends."""
    waiting = [size // 8] * 8

    async def receive() -> dict[str, Any]:
        if waiting:
            await asyncio.sleep(0)
            return {"type": "http.request", "body": bytes(waiting.pop()), "more_body": True}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(event: dict[str, Any]) -> None:
        sent.append(event)

    async def asked() -> list[dict[str, Any]]:
        await app(scope("POST", "/loaves", headers), receive, send)
        return sent

    sent: list[dict[str, Any]] = []
    return asyncio.create_task(asked())


@pytest.mark.nightly
def test_bodies_of_strangers_leave_memory_to_those_known() -> None:
    async def run() -> None:
        gone, large = asyncio.Event(), 1_000_000
        app = bakery(shares=Shares(whose, threads=4), validate_responses=False)
        crowd = [post(app, {"x-address": f"192.0.2.{n % 20}"}, large, gone) for n in range(500)]
        async with asyncio.timeout(60):
            refused = await ended(crowd, 500 - BUDGET // 2 // large - 1)
            assert (500 - refused) * large <= BUDGET / 2 + 500 * BLOCK_BYTES
            answer = next(task.result() for task in crowd if task.done())
            assert answer[0]["status"] == 503
            assert dict(answer[0]["headers"])[b"connection"] == b"close"
            small = post(app, {"x-address": "203.0.113.9"}, BLOCK_BYTES, gone)
            known = [post(app, {"x-known": "ada"}, large, gone) for _ in range(10)]
            for _ in range(50):
                await asyncio.sleep(0)
            assert not any(task.done() for task in (small, *known))
            gone.set()
            await asyncio.gather(*crowd, small, *known)
            # What was held is given back.
            gone.clear()
            again = [post(app, {"x-address": "192.0.2.1"}, large, gone) for _ in range(10)]
            for _ in range(50):
                await asyncio.sleep(0)
            assert not any(task.done() for task in again)
            gone.set()
            await asyncio.gather(*again)

    asyncio.run(run())


def test_one_callers_bodies_leave_memory_to_others() -> None:
    async def run() -> None:
        gone, large = asyncio.Event(), 1_000_000
        app = bakery(shares=Shares(whose, threads=4), validate_responses=False)
        crowd = [post(app, {"x-known": "crowd"}, large, gone) for _ in range(100)]
        async with asyncio.timeout(60):
            await ended(crowd, 100 - BODY_BLOCKS_OF_ONE // 60)
            other = post(app, {"x-known": "other"}, large, gone)
            for _ in range(50):
                await asyncio.sleep(0)
            assert not other.done()
            gone.set()
            await asyncio.gather(*crowd, other)

    asyncio.run(run())


def test_the_bodies_of_all_ten_organizations_of_a_person_leave_memory_to_others() -> None:
    shares = Shares(whose, threads=4)

    def grown(caller: str) -> int:
        share, size = shares.body(exchange(caller)), 0
        with contextlib.suppress(Unavailable):
            for size in range(0, BUDGET, BLOCK_BYTES):
                share.grow(size + BLOCK_BYTES)
        return size

    held = [grown(f"organization {number}") for number in range(10)]
    assert max(held) == BODY_BLOCKS_OF_ONE * BLOCK_BYTES + BLOCK_BYTES
    assert grown("somebody else") >= 3 * BLOCK_BYTES


def exchange(caller: str) -> Any:
    return SimpleNamespace(request=SimpleNamespace(headers={"x-known": caller}))
