"""The API killed with -9 at each statement: a change and its event are there, or neither (21)."""

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import event, select
from sqlalchemy.orm import Session

from contract_tests.api.harness import House, Tenant
from contract_tests.boundary.test_killed_process import NO_ORACLE
from storage.records import Event, Instance, Invite, Membership

STATEMENTS_MAX = 200


@dataclass(frozen=True)
class Change:
    """A request; whether its change is there; and what an event of it says in its data."""

    method: str
    path: str
    body: dict[str, Any] | None
    is_made: Callable[[Session], bool]
    kind: str
    says: Callable[[dict[str, Any]], bool]


def ordered(_house: House, tenant: Tenant, number: int) -> Change:
    name = f"order-{number}"

    def is_ordered(db: Session) -> bool:
        return db.scalar(select(Instance.id).where(Instance.name == name)) is not None

    path = f"{tenant.path}/projects/{tenant.project_id}/instances"
    body = {"engine": "duckdb", "size": "f0", "name": name}
    return Change(
        *("POST", path, body, is_ordered, "instance.requested.v1"),
        # One order at a time: whichever event is new is of this one.
        lambda told: told["engine"] == "duckdb",
    )


def removed(house: House, tenant: Tenant, _number: int) -> Change:
    user_id = house.member(tenant.org_id, "member").id
    path = f"{tenant.path}/members/{user_id}"

    def is_gone(db: Session) -> bool:
        return db.get(Membership, (tenant.org_id, user_id)) is None

    kind = "org.member.removed.v1"
    return Change("DELETE", path, None, is_gone, kind, lambda told: told["user_id"] == user_id)


def invited(_house: House, tenant: Tenant, number: int) -> Change:
    email = f"guest-{number}@example.com"

    def is_invited(db: Session) -> bool:
        return db.scalar(select(Invite.id).where(Invite.email == email)) is not None

    body = {"email": email, "role": "member"}
    kind = "org.member.invited.v1"
    path = f"{tenant.path}/invites"
    return Change("POST", path, body, is_invited, kind, lambda told: told["email"] == email)


CHANGES = (ordered, removed, invited)


def api(url: str, directory: Path, asked: Connection) -> None:
    """Forks an API process for each request, which kills itself at the statement told."""
    house = House(url, directory, oracle=NO_ORACLE)
    house.database.dispose()
    while True:
        *request, dies_at = asked.recv()
        child = os.fork()
        if child == 0:
            kill_at(house, dies_at)
            send(house, *request)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        asked.send(os.WIFSIGNALED(status))


def kill_at(house: House, dies_at: int) -> None:
    statements = count(1)

    def reached(*_told: Any, **_named: Any) -> None:
        if next(statements) == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    for moment in ("before_cursor_execute", "after_cursor_execute", "commit"):
        event.listen(house.database.engine, moment, reached)


def send(house: House, method: str, path: str, token: str, body: Any) -> None:
    async def ask() -> None:
        transport = httpx.ASGITransport(house.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://house") as client:
            headers = {"Authorization": f"Bearer {token}"}
            answer = await client.request(method, path, headers=headers, json=body)
            assert answer.is_success, answer.text

    asyncio.run(ask())


@pytest.fixture
def doomed(database_url: str, tmp_path: Path) -> Iterator[Connection]:
    spawning = multiprocessing.get_context("spawn")
    mine, theirs = spawning.Pipe()
    process = spawning.Process(target=api, args=(database_url, tmp_path, theirs), daemon=True)
    process.start()
    yield mine
    process.kill()
    process.join(30)


@pytest.mark.nightly
@pytest.mark.parametrize("make", CHANGES, ids=lambda make: make.__name__)
def test_a_change_and_its_event_are_both_there_or_neither(
    make: Callable[[House, Tenant, int], Change],
    database_url: str,
    tmp_path: Path,
    doomed: Connection,
) -> None:
    outcomes = []
    with House(database_url, tmp_path, oracle=NO_ORACLE) as house:
        tenant = house.tenant(plan="enterprise")
        for dies_at in range(1, STATEMENTS_MAX):
            change = make(house, tenant, dies_at)
            before = told(house, tenant, change)
            doomed.send((change.method, change.path, tenant.key, change.body, dies_at))
            assert doomed.poll(60), "the process that kills does not answer"
            killed = doomed.recv()
            with house.database.read() as db:
                made = change.is_made(db)
            assert told(house, tenant, change) - before == made, f"killed at {dies_at}"
            outcomes.append((killed, made))
            if not killed:
                break
    # It was killed before the commit many times, and went to its end at last.
    assert outcomes[-1] == (False, True)
    assert outcomes.count((True, False)) > 8


def told(house: House, tenant: Tenant, change: Change) -> int:
    rows = select(Event.data).where(Event.org_id == tenant.org_id, Event.type == change.kind)
    with house.database.read() as db:
        return sum(map(change.says, db.scalars(rows)))
