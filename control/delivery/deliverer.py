"""The deliverer: takes lanes by lease, sends what they have, and records what came of it.

One thread with an event loop sends; transactions run in two threads of its own, and what came of
many deliveries is written together. Killed at any moment it loses nothing: what it had not recorded
is sent again, by another within 2 s, or, where nobody can see that it is gone, when leases end.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

import structlog
import uvloop
from sqlalchemy.orm import Session

from control.delivery import lanes
from control.delivery.guarded import GuardedClient
from control.delivery.lanes import (
    Beside,
    LaneSlots,
    LaneTarget,
    TakenDelivery,
    each_apart_if_one_fails,
)
from control.work.listeners import listener
from control.work.presence import Presence
from storage.database import Database, now
from storage.errors import StorageUnavailable
from storage.events import delivery_lanes, events
from storage.events.delivery_lanes import DeliveryLane, LaneHeld

LEASE_S: Final = 60.0
"""Longer than a turn and the attempt that it may end with, so that none needs to be renewed."""
TURN_S: Final = 1.0
"""After which a lane is recorded, and given back where others wait."""
POLL_S: Final = 1.0
LOOK_EVERY_S: Final = 0.5
"""How often is looked for deliverers that are gone; at the second look in vain one is."""
STOP_WAIT_S: Final = 5.0
RECORDED_AT_ONCE: Final = 100
SHORTEST_WAIT_S: Final = 0.02
_log = structlog.get_logger("delivery")
Returned = TypeVar("Returned")


class Deliverer:
    """Delivers for the targets until stopped, in a thread of any process.

    `make_client` is called on the event loop, which the client's connections belong to.
    """

    def __init__(
        self,
        database: Database,
        targets: Sequence[LaneTarget],
        beside: Sequence[Beside],
        make_client: Callable[[], GuardedClient],
        *,
        lease_s: float = LEASE_S,
        turn_s: float = TURN_S,
        places: LaneSlots | None = None,
    ) -> None:
        self._database = database
        self._targets = {each.kind: each for each in targets}
        self._beside = beside
        self._make_client = make_client
        self._lease_s, self._turn_s = lease_s, turn_s
        self._places = places or LaneSlots()
        self._stopping, self._left = threading.Event(), threading.Event()
        self._presence = Presence(database)
        self._missed: set[str] = set()
        self._held: dict[str, LaneHeld] = {}
        self._in_progress: dict[int, list[TakenDelivery]] = {
            place: [] for place in range(len(beside))
        }
        self._to_record: list[_Sent] = []
        self._wakeup = _Wakeup()
        self._thread = threading.Thread(target=self._run, name="delivery", daemon=True)
        listen = listener(database, self._wakeup, self._left, self._presence, events.CHANNEL)
        self._listening = threading.Thread(
            target=self._until_left, args=(listen,), name="delivery-listen", daemon=True
        )

    def start(self) -> None:
        self._listening.start()
        # What is taken before others can see the taker is held by the lease alone.
        end = time.monotonic() + POLL_S
        while self._presence.shown is None and time.monotonic() < end:
            time.sleep(0.002)
        self._thread.start()

    def stop(self, wait_s: float = STOP_WAIT_S) -> None:
        """Take nothing new, and wait that long for what is under way; the rest is as if killed."""
        self._stopping.set()
        self._wakeup.notify()
        if self._thread.ident is not None:
            self._thread.join(wait_s)
        self._left.set()
        if self._listening.ident is not None:
            self._listening.join(POLL_S)

    def _until_left(self, listen: Callable[[], None]) -> None:
        while not self._left.is_set():
            try:
                listen()
            except Exception:  # noqa: BLE001 -- a thread that ends would never listen again
                _log.exception("the deliverer failed to listen")
                self._left.wait(POLL_S)

    def _run(self) -> None:
        # As uvicorn does: what it sends is cheaper on this loop.
        with (
            ThreadPoolExecutor(2, "delivery-database") as threads,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            runner.run(self._deliver(threads))

    async def _deliver(self, threads: ThreadPoolExecutor) -> None:
        self._threads = threads
        self._wakeup.attach()
        self._client = self._make_client()
        self._recorded = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        others = [asyncio.create_task(each()) for each in (self._record_all, self._look_all)]
        while not self._stopping.is_set():
            wait_s = await self._guarded(self._take_all)
            await self._wakeup.wait(POLL_S if wait_s is None else wait_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_WAIT_S / 2):
                await asyncio.gather(*self._tasks, return_exceptions=True)
        for task in (*others, *self._tasks):
            task.cancel()
        await asyncio.gather(*others, *self._tasks, return_exceptions=True)
        await self._client.close()

    async def _guarded(self, act: Callable[[], Any]) -> Any:
        """None where it failed, which is told; nothing of the loop may end it."""
        try:
            return await act()
        except StorageUnavailable as outage:
            _log.warning("database unavailable", detail=outage.detail)
        except Exception:  # noqa: BLE001 -- as above
            _log.exception("the deliverer failed")
        return None

    async def _in_thread(self, act: Callable[..., Returned], *given: Any) -> Returned:
        return await asyncio.get_running_loop().run_in_executor(self._threads, act, *given)

    def _begin(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Taking.

    async def _take_all(self) -> float:
        """In how many seconds there may be more to take, unless it is woken before."""
        for held, target, batch in await self._in_thread(self._take_lanes):
            self._held[held.id] = held
            self._begin(self._run_lane(held, target, batch))
        wait_s = await self._in_thread(self._next_due_s)
        for place, beside in enumerate(self._beside):
            turn = await self._in_thread(beside.take, self._database, [*self._in_progress[place]])
            for one in turn.taken:
                self._in_progress[place].append(one)
                self._begin(self._run_beside(place, beside, one))
            if turn.next_s is not None:
                wait_s = min(wait_s, max(turn.next_s, SHORTEST_WAIT_S))
        return wait_s

    def _take_lanes(self) -> list[tuple[LaneHeld, LaneTarget, Any]]:
        held = list(self._held.values())
        more = {kind: target.has_more() for kind, target in self._targets.items()}
        free = self._places.most - len(held)
        if free <= 0 or not more:
            return []
        with self._database.read() as db:
            waiting = delivery_lanes.waiting(
                db,
                more,
                now(db),
                2 * free,
                with_doubtful=self._places.free_for_doubtful(held) > 0,
                busy=self._places.busy(held),
            )
        return each_apart_if_one_fails(
            self._take_some, self._set_aside, self._places.chosen(waiting, held)
        )

    def _take_some(self, lane_ids: Sequence[str]) -> list[tuple[LaneHeld, LaneTarget, Any]]:
        if not lane_ids:
            return []
        with self._database.write() as db:
            taken = self._take(db, lane_ids)
            read = [(lane, self._targets[lane.kind].read(db, lane)) for lane in taken]
            for lane, batch in read:
                if batch is None:
                    lane.give_back()
            moment = now(db)
            return [
                (_held(lane, moment), self._targets[lane.kind], batch)
                for lane, batch in read
                if batch is not None
            ]

    def _next_due_s(self) -> float:
        """In how many seconds a lane with more may be taken that rests until then."""
        more = {kind: target.has_more() for kind, target in self._targets.items()}
        with self._database.read() as db:
            moment = now(db)
            due = delivery_lanes.next_due(db, more, moment, moment + timedelta(seconds=POLL_S))
        return POLL_S if due is None else max((due - moment).total_seconds(), SHORTEST_WAIT_S)

    def _set_aside(self, lane_id: str) -> None:
        """Taken without being read: it is tried again when the lease has ended."""
        with self._database.write() as db:
            self._take(db, [lane_id])

    def _take(self, db: Session, lane_ids: Sequence[str]) -> list[DeliveryLane]:
        return delivery_lanes.take(db, lane_ids, self._presence.shown, now(db), self._lease_s)

    # Sending.

    async def _run_lane(self, held: LaneHeld, target: LaneTarget, batch: Any) -> None:
        begun = time.monotonic()
        try:
            while batch is not None:
                until = time.monotonic() + self._turn_s
                result = await target.send(batch, self._client, until)
                goes_on = time.monotonic() - begun < self._turn_s
                sent = _Sent(held, target, result, goes_on and not self._stopping.is_set())
                batch = await self._record(sent)
        except Exception:  # noqa: BLE001 -- the lease ends, and the lane is taken again
            _log.exception("a lane failed", lane=held.id)
        finally:
            self._held.pop(held.id, None)
            # Its place, or what it has left, may be wanted.
            self._wakeup.notify()

    async def _run_beside(self, place: int, beside: Beside, taken: TakenDelivery) -> None:
        try:
            result = await beside.send(taken, self._client)
            await self._record(_Sent(None, beside, result, goes_on=False))
        except Exception:  # noqa: BLE001 -- it is taken again later
            _log.exception("a delivery failed", lane=taken.lane_id)
        finally:
            self._in_progress[place].remove(taken)
            self._wakeup.notify()

    # Recording.

    async def _record(self, sent: "_Sent") -> Any:
        self._to_record.append(sent)
        self._recorded.set()
        return await sent.next_batch

    async def _record_all(self) -> None:
        """What came meanwhile is recorded together."""
        while True:
            await self._recorded.wait()
            self._recorded.clear()
            while self._to_record:
                some = self._to_record[:RECORDED_AT_ONCE]
                del self._to_record[:RECORDED_AT_ONCE]
                await self._record_some(some)

    async def _record_some(self, some: Sequence["_Sent"]) -> None:
        try:
            batches = await self._in_thread(self._write, some)
        except Exception as error:  # noqa: BLE001 -- whatever it is, the loop goes on
            may_be_apart = len(some) > 1 or some[0].goes_on
            if may_be_apart and not isinstance(error, StorageUnavailable):
                # One of them that cannot be written keeps none of the others from being so, and
                # what a lane has next, if that cannot be read, not what it has sent.
                for one in some:
                    one.goes_on = False
                    await self._record_some([one])
                return
            if isinstance(error, StorageUnavailable):
                _log.warning("database unavailable", detail=error.detail)
            else:
                _log.error("what was delivered cannot be recorded", exc_info=error)
            batches = [None] * len(some)
        for one, batch in zip(some, batches, strict=True):
            if not one.next_batch.done():
                one.next_batch.set_result(batch)

    def _write(self, some: Sequence["_Sent"]) -> list[Any]:
        ids = {one.result.lane_id if one.held is None else one.held.id for one in some}
        with self._database.write() as db:
            # Lanes first, all at once and in one order, as everybody locks them.
            locked = delivery_lanes.locked(db, ids)
            batches = [self._write_one(db, one, locked) for one in some]
            for beside in self._beside:
                results = [one.result for one in some if one.by is beside]
                if results:
                    beside.record(db, locked, results)
        return batches

    def _write_one(self, db: Session, one: "_Sent", locked: dict[str, DeliveryLane]) -> Any:
        """What the lane has next; nothing is written by whoever has it no more."""
        if one.held is None:
            return None
        lane = locked.get(one.held.id)
        if lane is None or lane.lease != one.held.lease:
            _log.info("a lane was lost", lane=one.held.id)
            return None
        target = self._targets[lane.kind]
        target.record(db, lane, one.result)
        rest = lanes.pause(lane)
        if rest and lane.due is not None:
            lane.due = now(db) + rest
        goes_on = one.goes_on and not rest and lane.due is not None
        batch = target.read(db, lane) if goes_on else None
        if batch is None:
            lane.give_back()
        else:
            lane.leased_until = delivery_lanes.leased_until(now(db), self._lease_s)
        return batch

    # Others.

    async def _look_all(self) -> None:
        while True:
            await self._guarded(lambda: self._in_thread(self._look))
            await asyncio.sleep(LOOK_EVERY_S)

    def _look(self) -> None:
        """Free the lanes of deliverers that are gone."""
        with self._database.read() as db:
            names = delivery_lanes.holders(db)
        absent = self._presence.absent(names) if names - {self._presence.shown} else set()
        for name in absent & self._missed:
            _log.warning("a deliverer exited; its lanes are taken over", deliverer=name)
            with self._database.write() as db:
                delivery_lanes.free(db, name)
            self._wakeup.notify()
        self._missed = absent


class _Sent:
    """What is to be recorded; `held` is None of what went beside the lanes."""

    def __init__(self, held: LaneHeld | None, by: Any, result: Any, goes_on: bool) -> None:
        self.held, self.by, self.result, self.goes_on = held, by, result, goes_on
        self.next_batch: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


class _Wakeup:
    """Wakes the event loop from any thread; one that nobody waits for is kept for the next."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()

    def attach(self) -> None:
        self._loop = asyncio.get_running_loop()

    def notify(self) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._woken.set)

    async def wait(self, timeout_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._woken.wait()
        self._woken.clear()


def _held(lane: DeliveryLane, moment: datetime) -> LaneHeld:
    return LaneHeld(lane.id, lane.org_id, lane.lease, lane.is_doubtful(moment))
