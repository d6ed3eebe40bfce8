"""What docs/queues.md says beyond the API: clients of PGMQ, branches, idleness."""

import re
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cell.instances.supervisor import SETTLE_S
from contract_tests.cell.queues.test_queues import Queues, make, versions
from contract_tests.cell.rig import Rig, new_id

GUIDE = Path(__file__).parents[3] / "docs" / "queues.md"
IDLE_S = 1.5


@pytest.fixture(scope="module")
def queues(shared_rig: Rig) -> Queues:
    return make(shared_rig)


@pytest.mark.nightly
def test_the_guides_python_works(queues: Queues, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands there, with a socket for the gateway."""
    found = re.search(r"```python\n(.+?)```", GUIDE.read_text(), re.DOTALL)
    assert found is not None
    queues.list()
    with queues.session() as session:
        monkeypatch.setattr(psycopg, "connect", lambda *_, **__: session)
        exec(found.group(1), {"uri": ""})
    monkeypatch.undo()
    shown = queues.list()["orders"]
    assert (shown["total_messages"], shown["depth"], shown["hidden"]) == (1, 0, 0)


@pytest.mark.nightly
def test_the_client_of_pgmq_works(shared_rig: Rig, queues: Queues) -> None:
    from pgmq import PGMQueue  # noqa: PLC0415 - slow to import

    queues.make("made_by_api")
    with queues.session() as owner:
        password = shared_rig.reveal(queues.instance_id)["password"]
        words = f"host={owner.info.host} user=app password={password} dbname=app"
    client: Any = PGMQueue(conn_string=words, init_extension=False)
    client.create_queue("made_by_client")
    assert client.send("made_by_client", {"n": 1}) == 1
    assert client.send_batch("made_by_api", [{"n": 2}, {"n": 3}]) == [1, 2]
    assert client.read("made_by_client", vt=30).message == {"n": 1}
    assert [each["body"]["n"] for each in queues.read("made_by_api")] == [2, 3]
    client.drop_queue("made_by_api")
    client.close()
    assert {"made_by_api", "made_by_client"} & set(queues.list()) == {"made_by_client"}


@pytest.mark.nightly  # by day in test_queue_moves.py, but for the keys of acts
def test_a_branch_has_the_queues_and_not_what_is_unlogged(shared_rig: Rig) -> None:
    queues = make(shared_rig)
    kept, lost = queues.make("kept"), queues.make("lost", unlogged=True)
    queues.send(kept, {"n": 1}, key="act-of-source:send")
    queues.send(lost, {"n": 1})
    queues.permit(kept, "anon")
    body = {"label": "branch"}
    copy = shared_rig.action(queues.instance_id, "snapshot", body)["snapshot_id"]
    branch = new_id()
    source = f"{queues.instance_id}/{copy}"
    begun = {"engine": "postgres", "engine_version": versions(shared_rig)[0]}
    shared_rig.put(branch, source_snapshot=source, **begun)
    there = Queues(shared_rig, branch)
    listed = there.list()
    assert [(one["name"], one["depth"]) for one in listed.values()] == [("kept", 1), ("lost", 0)]
    assert listed[kept]["data_api_roles"] == ["anon"]
    assert there.send(kept, {"n": 2}) == [2]
    assert queues.list()[kept]["total_messages"] == 1
    with there.session("anon") as session:
        session.execute("SELECT pgmq_public.send('kept', '{}')")


@pytest.mark.nightly
def test_queues_keep_an_instance_awake(shared_rig: Rig) -> None:
    found = versions(shared_rig)
    if not found:
        pytest.skip("no PostgreSQL that can be run on this machine")
    instance_id = new_id()
    wanted = {"engine": "postgres", "engine_version": found[0], "idle_pause_s": IDLE_S}
    used = time.monotonic()
    shared_rig.put(instance_id, **wanted)
    path, began = Queues(shared_rig, instance_id).path, time.monotonic()
    while used - began < 2 * IDLE_S + SETTLE_S:
        time.sleep(0.1)
        asked = time.monotonic()
        answer = shared_rig.get(path)
        if answer.status_code != 200:
            # Only where the machine stood still had the instance a right to sleep.
            assert time.monotonic() - used > IDLE_S, answer.text
            began = asked = time.monotonic()
            assert shared_rig.wake(instance_id).status_code == 200
        used = asked
    shared_rig.status_is(instance_id, "paused")
