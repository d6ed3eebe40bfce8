"""Deliverers are killed while a receiver fails: nothing is lost, and the order is kept."""

import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import func, select

import contract_tests.delivery.deliverer_process as program
from contract_tests.delivery.outbox import Outbox, until
from contract_tests.delivery.receivers import Answering, Received, Receiver
from storage.events.webhook_deliveries import WebhookDelivery

EVENTS = 10_000
KILLS = 8


@pytest.fixture
def processes(outbox: Outbox, tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    running: list[subprocess.Popen[bytes]] = []
    yield running
    for each in running:
        each.kill()
        each.wait()


def start(outbox: Outbox, log: Path) -> subprocess.Popen[bytes]:
    url = outbox.database.url.render_as_string(hide_password=False)
    command = [sys.executable, program.__file__, url, str(log.with_name("cell.db"))]
    with log.open("ab") as written:
        return subprocess.Popen(command, stdout=written, stderr=written)


def firsts(receiver: Receiver) -> list[str]:
    """Events by when they came for the first time."""
    return list(dict.fromkeys(one.headers["svc-event-id"] for one in receiver.received))


def counted(outbox: Outbox, endpoint_id: str) -> dict[str, int]:
    """How many deliveries have which status, counted by the database: there are many."""
    rows = select(WebhookDelivery.status, func.count()).group_by(WebhookDelivery.status)
    with outbox.database.read() as db:
        found = db.execute(rows.where(WebhookDelivery.webhook_id == endpoint_id))
        return dict(found.tuples().all())


@pytest.mark.nightly
@pytest.mark.exclusive
@pytest.mark.timeout(900)
def test_none_of_ten_thousand_is_lost(
    outbox: Outbox, processes: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    chance = random.Random(7)

    seen: set[str] = set()

    def answer(got: Received) -> Answering:
        seen.add(got.headers["svc-event-id"])
        return Answering(500 if chance.random() < 0.3 else 200)

    with Receiver(answer) as receiver:
        endpoint, _ = outbox.endpoint(receiver.url)
        wanted = outbox.publish_many(EVENTS)
        log = tmp_path / "deliverers.log"
        processes += [start(outbox, log), start(outbox, log)]
        for kill in range(1, KILLS + 1):
            until(lambda kill=kill: len(seen) > kill * EVENTS // (KILLS + 2), 400)  # type: ignore[misc]
            victim = processes.pop(chance.randrange(2))
            victim.send_signal(signal.SIGKILL)
            victim.wait()
            processes.append(start(outbox, log))
        until(lambda: len(seen) == EVENTS, 400)
        assert firsts(receiver) == wanted
        # What came last may not be recorded yet.
        until(lambda: counted(outbox, endpoint) == {"succeeded": EVENTS}, 400, every_s=0.5)
        rows = outbox.deliveries(endpoint)
        assert [one.event_id for one in rows] == wanted
