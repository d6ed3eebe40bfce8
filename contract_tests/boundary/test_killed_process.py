"""The whole API killed in the middle of an order; the retry makes exactly one instance (18)."""

import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select

from contract_tests.api.harness import House
from storage.records import AuditEntry, Event, Instance, Replay, Work

KILLS = 8
DURATIONS = 1.3
"""Kills are spread over this many times what an order takes, so that some come too late."""
NO_ORACLE: Any = object()
"""It would take most of the time in which to be killed."""
BODY = {"engine": "duckdb", "size": "f0"}


def api(url: str, directory: Path, asked: Connection) -> None:
    """Forks an API process for each order, and kills it at the moment told."""
    house = House(url, directory, oracle=NO_ORACLE)
    house.database.dispose()
    while True:
        path, token, key, after_s = asked.recv()
        child = os.fork()
        if child == 0:
            order(house, path, token, key)
            os._exit(0)
        started = time.monotonic()
        if after_s is not None:
            time.sleep(after_s)
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        asked.send((os.WIFSIGNALED(status), time.monotonic() - started))


def order(house: House, path: str, token: str, key: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": key}

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(house.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://house") as client:
            return await client.post(path, headers=headers, json={**BODY, "name": key})

    return asyncio.run(send())


def retried(house: House, path: str, token: str, key: str) -> httpx.Response:
    """The answer to whoever asks again while told that the first request is still under way.

    It is, to PostgreSQL, until that has noticed that who held the key's lock is gone.
    """
    end = time.monotonic() + 60
    while (answer := order(house, path, token, key)).status_code == 409:
        assert answer.json()["code"] == "idempotency_in_flight"
        assert time.monotonic() < end, "the lock of a killed process is never let go"
        time.sleep(0.02)
    return answer


@pytest.fixture
def doomed(database_url: str, tmp_path: Path) -> Iterator[Connection]:
    """Orders sent there are made by processes that die."""
    spawning = multiprocessing.get_context("spawn")
    mine, theirs = spawning.Pipe()
    process = spawning.Process(target=api, args=(database_url, tmp_path, theirs), daemon=True)
    process.start()
    yield mine
    process.kill()
    process.join(30)


@pytest.mark.nightly
def test_an_order_killed_at_any_moment_is_made_once_by_its_retry(
    database_url: str, tmp_path: Path, doomed: Connection
) -> None:
    with House(database_url, tmp_path, oracle=NO_ORACLE) as house:
        tenant = house.tenant(plan="enterprise")
        path = f"{tenant.path}/projects/{tenant.project_id}/instances"
        killed, taken_s = die(doomed, path, tenant.key, "whole", None)
        assert not killed
        for number in range(KILLS):
            key = f"order-{number}"
            die(doomed, path, tenant.key, key, taken_s * DURATIONS * number / KILLS)
            answer = retried(house, path, tenant.key, key)
            assert answer.status_code == 201, answer.text
            again = order(house, path, tenant.key, key)
            assert (again.json(), again.headers["Idempotency-Replayed"]) == (answer.json(), "true")
        with house.database.read() as db:
            for record in (Instance, AuditEntry, Event, Work, Replay):
                rows = select(func.count()).select_from(record)
                if record is Work:  # and not what a start asks of the cells
                    rows = rows.where(Work.kind.startswith("instances."))
                assert db.scalar(rows) == KILLS + 1, record.__name__


def die(doomed: Connection, *order: Any) -> tuple[bool, float]:
    doomed.send(order)
    assert doomed.poll(60), "the process that kills does not answer"
    killed, taken_s = doomed.recv()
    return killed, taken_s
