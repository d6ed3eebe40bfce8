"""Workers hear at once of work that other processes enqueue."""

import threading
import time

import pytest

from contract_tests.workflows import known
from contract_tests.workflows.stage import Stage
from control.work import listeners, notifier
from control.work.presence import Presence


class Counter(notifier.Notifier):
    """A notifier that counts its rings."""

    def __init__(self) -> None:
        super().__init__()
        self.rings = 0

    def notify(self) -> None:
        self.rings += 1


def until_rung(counter: Counter, rings: int) -> None:
    end = time.monotonic() + 30
    while counter.rings < rings:
        assert time.monotonic() < end, "nobody rang"
        time.sleep(0.005)


def test_another_process_rings_and_this_one_does_not_ring_twice(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter, stopping = Counter(), threading.Event()
    listen = threading.Thread(
        target=listeners.listener(stage.database, counter, stopping, Presence(stage.database))
    )
    listen.start()
    try:
        until_rung(counter, 1)  # what was enqueued before it listened
        monkeypatch.setattr(notifier, "notify_all", lambda: None)
        if stage.database.dialect == "postgresql":
            enqueue(stage)
        monkeypatch.setattr(notifier, "process", lambda: "another")
        before = counter.rings
        enqueue(stage)
        until_rung(counter, before + 1)
        if stage.database.dialect == "postgresql":
            assert counter.rings == 2, "once at its start, and once by the other"
    finally:
        stopping.set()
        listen.join()


def enqueue(stage: Stage) -> None:
    with stage.database.write() as db:
        known.enqueue(db, "housekeeping", "lane")
