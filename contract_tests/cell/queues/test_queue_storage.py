"""Queues at the storage limit of their instance: nothing is added, and what makes room works."""

import contextlib
import time

import httpx
import psycopg
import pytest

from cell.engines.postgres.storage import READ_WITHIN_S
from contract_tests.cell.queues.test_queues import Queues, problem, versions
from contract_tests.cell.rig import SMALL, Rig, until
from contract_tests.engines.fillers import FILL, MB, SHOW, WRITABLE

LIMIT_BYTES = 160 * MB
# Above what a checkpoint gives back of the log, and below the ceiling.
FILLED_BYTES = LIMIT_BYTES + 100 * MB
# Of four megabytes each.
ROUNDS_MAX = 60


def made(rig: Rig) -> Queues:
    found = versions(rig)
    if not found:
        pytest.skip("no PostgreSQL that can be run on this machine")
    size = {**SMALL, "name": "little", "storage_bytes": LIMIT_BYTES}
    return Queues(rig, rig.make(engine="postgres", engine_version=found[0], size=size))


def is_held(queues: Queues) -> bool:
    with queues.session() as owner:
        return owner.execute(SHOW).fetchone() == ("on",)


def fill(queues: Queues) -> None:
    """Above the limit; whoever writes when it is reached is ended."""
    rig = queues.rig
    with queues.session() as owner:
        owner.execute("CREATE TABLE filled (x TEXT STORAGE PLAIN)")
    for _ in range(ROUNDS_MAX):
        if rig.observe(queues.instance_id)["storage_bytes"] > FILLED_BYTES:
            break
        with contextlib.suppress(psycopg.errors.AdminShutdown), queues.session() as owner:
            owner.execute(WRITABLE)
            owner.execute(FILL)
    until(lambda: is_held(queues), "the limit is known", 60)
    calm_at = time.monotonic() + 2 * READ_WITHIN_S
    until(lambda: time.monotonic() > calm_at, "no session counts as one that wrote before")


def send(queues: Queues, key: str) -> httpx.Response:
    body = {"messages": [{"order": 17}], "delay_seconds": 0}
    return queues.act("POST", "/jobs/messages", body, key=key)


def refused(answer: httpx.Response) -> None:
    problem(answer, 409, "purge or delete queues")
    assert answer.json()["code"] == "storage_full"


# By day the limit itself: engines/test_storage_freed.py.
@pytest.mark.nightly
def test_at_the_storage_limit_nothing_is_added_and_what_makes_room_works(shared_rig: Rig) -> None:
    queues = made(shared_rig)
    queues.make("jobs")
    queues.make("spare")
    sent = send(queues, "op_first:send").json()
    ids = queues.send("jobs", *({"n": n} for n in range(4)))
    fill(queues)

    refused(send(queues, "op_second:send"))
    refused(queues.act("POST", body={"name": "more", "unlogged": False}, key="op_more:make"))
    archive = {"message_ids": ids[:1], "archive": True}
    refused(queues.act("POST", "/jobs/actions/remove", archive))
    # It was sent: the one who asks again has not heard so.
    assert send(queues, "op_first:send").json() == sent

    assert set(queues.list()) == {"jobs", "spare"}
    assert [each["message_id"] for each in queues.read("jobs")] == [*sent["message_ids"], *ids]
    assert queues.remove("jobs", ids[1]) == [ids[1]]
    assert queues.ask("POST", "/jobs/actions/purge") == {"purged": 4}
    assert queues.act("DELETE", "/spare").status_code == 204

    with queues.session() as owner:
        owner.execute(WRITABLE)
        owner.execute("DROP TABLE filled")
    until(lambda: not is_held(queues), "there is room", 60)
    assert send(queues, "op_second:send").status_code == 201
    shared_rig.action(queues.instance_id, "erase")
