"""The worker: threads that claim and run operations, renew leases and keep the schedules."""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import structlog

from control.work import listeners, queue, runner, schedules
from control.work.errors import LeaseLost
from control.work.fair_share import FairShare
from control.work.notifier import Notifier
from control.work.operation import Operation
from control.work.presence import Presence
from control.work.registry import Registry
from storage.errors import StorageUnavailable

if TYPE_CHECKING:  # services name the room that names this one
    from control.services import Services

LEASE_S: Final = 30.0
RENEWALS_A_LEASE: Final = 3
"""How often a lease is renewed in its time, so that one renewal that is late loses nothing."""
POLL_S: Final = 1.0
LOOK_EVERY_S: Final = 0.5
"""How often is looked for workers that are gone; at the second look in vain one is."""
STOP_WAIT_S: Final = 5.0
SHOWN_WAIT_S: Final = 1.0
THREADS: Final = 4
_log = structlog.get_logger("work")


class Worker:
    """Runs the workflows of a registry until stopped, inside any process.

    Killed at any moment, it loses nothing: what it held is taken up by another within 2 s, or,
    where nobody can see that it is gone, when the lease ends.
    """

    def __init__(
        self,
        services: "Services",
        registry: Registry,
        *,
        threads: int = THREADS,
        lease_s: float = LEASE_S,
        keep_schedules: bool = True,
    ) -> None:
        self._services = services
        self._database = services.database
        self._registry = registry
        self._lease_s = lease_s
        self._keep_schedules = keep_schedules
        self._notifier = Notifier()
        self._stopping = threading.Event()
        self._left = threading.Event()
        self._presence = Presence(self._database)
        self._missed: set[str] = set()
        self._held: set[Operation] = set()
        self._claiming = threading.Lock()
        self._shares = FairShare(registry, threads)
        self._threads = [
            threading.Thread(
                target=self._until_stopped, args=(turn,), name=f"work-{name}", daemon=True
            )
            for name, turn in self._turns(threads)
        ]

    def _turns(self, threads: int) -> list[tuple[str, Callable[[], None]]]:
        # Until it has left, as others would repeat the steps that a stop waits for.
        listen = listeners.listener(self._database, self._notifier, self._left, self._presence)
        return [
            *((str(number), self._work) for number in range(threads)),
            ("renew", self._renew),
            ("schedule", self._schedule),
            ("look", self._look),
            ("listen", listen),
        ]

    def start(self) -> None:
        *others, listening = self._threads
        listening.start()
        # What is claimed before others can see the claimer is held by the lease alone.
        end = time.monotonic() + SHOWN_WAIT_S
        while self._presence.shown is None and time.monotonic() < end:
            time.sleep(0.002)
        for thread in others:
            thread.start()

    def run(self) -> None:
        """Work until `stop` is called from elsewhere, such as a signal handler."""
        self.start()
        for thread in self._threads:
            thread.join()

    def stop(self, wait_s: float = STOP_WAIT_S) -> None:
        """Take nothing new, and wait that long for the steps under way; the next ones are left.

        A step that is not done by then is as if killed: another worker repeats it.
        """
        self._stopping.set()
        for operation in list(self._held):
            operation.interrupted = True
        for _ in self._threads:
            self._notifier.notify()
        end = time.monotonic() + wait_s
        for thread in self._threads[:-1]:
            if thread.ident is not None:
                thread.join(max(end - time.monotonic(), 0))
        self._left.set()
        if self._threads[-1].ident is not None:
            self._threads[-1].join(POLL_S)

    def _until_stopped(self, turn: Callable[[], None]) -> None:
        while not self._stopping.is_set():
            try:
                turn()
            except StorageUnavailable as outage:
                _log.warning("database unavailable", detail=outage.detail)
                self._stopping.wait(POLL_S)
            except Exception:  # noqa: BLE001 - a thread that ends would never work again
                _log.exception("worker failed to claim or run an operation")
                self._stopping.wait(POLL_S)

    def _work(self) -> None:
        """Run all that is due, then wait until there may be more."""
        held = list(self._held)
        kinds, used_up = self._shares.kinds(held), self._shares.used_up(held)
        wait_s = queue.next_due_s(self._database, kinds, used_up)
        if wait_s is not None and wait_s <= 0:
            while self._run_next():
                pass
            return
        self._notifier.wait(POLL_S if wait_s is None else min(max(wait_s, 0.005), POLL_S))

    def _run_next(self) -> bool:
        if self._stopping.is_set():
            return False
        # One at a time, or several threads would give an organization the same place.
        with self._claiming:
            claim = self._claim()
            if claim is None:
                return False
            operation = Operation(claim.work, self._services)
            self._shares.note(operation)
            self._held.add(operation)
        # Where one was due there may be more: tell another before working.
        self._notifier.notify()
        try:
            runner.run(operation, claim, self._registry.workflows[operation.kind])
        except LeaseLost:
            _log.warning("operation lost its lease", operation=operation.id)
        finally:
            self._held.discard(operation)
        return True

    def _claim(self) -> queue.Claim | None:
        held = list(self._held)
        for passed_over in self._shares.turns(held):
            claim = queue.claim(
                self._database,
                self._shares.kinds(held),
                self._lease_s,
                self._presence.shown,
                passed_over,
            )
            if claim is not None:
                return claim
        self._shares.note_none(held)
        return None

    def _renew(self) -> None:
        self._stopping.wait(self._lease_s / RENEWALS_A_LEASE)
        for operation in list(self._held):
            try:
                queue.renew(self._database, operation.held, self._lease_s)
            except LeaseLost:
                operation.lost = True

    def _look(self) -> None:
        """Free what is leased to workers that are gone."""
        absent = self._presence.absent(queue.holders(self._database))
        for name in absent & self._missed:
            _log.warning("a worker exited; its operations are taken over", worker=name)
            queue.release(self._database, name)
        self._missed = absent
        self._stopping.wait(LOOK_EVERY_S)

    def _schedule(self) -> None:
        if self._keep_schedules:
            schedules.enqueue_due(self._database, self._registry.schedules)
        self._stopping.wait(POLL_S)
