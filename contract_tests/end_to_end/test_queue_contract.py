"""What the control plane relies on in queues: those of a real cell and the tests' fake keep it."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from contract_tests.cell.queues.test_queues import versions
from contract_tests.cell.rig import new_id, running, spec
from contract_tests.end_to_end.patient import patient
from contract_tests.workflows.fake_cell import FakeCell
from control.cells.client import CellClient, HttpCell
from control.cells.queues import QueueRefused, Queues
from control.cells.signing import Signer


@pytest.fixture(scope="module", params=["fake", pytest.param("real", marks=pytest.mark.nightly)])
def cell(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[CellClient, str]]:
    """With the version of PostgreSQL that runs in it."""
    home = tmp_path_factory.mktemp("queues")
    if request.param == "fake":
        yield FakeCell(home / "fake.db"), "18"
        return
    with running(home / "cell") as rig:
        client = HttpCell(
            rig.cell_id, f"http+unix://{rig.socket}", Signer(rig.key, clock=time.time)
        )
        try:
            if not versions(rig):
                pytest.skip("no PostgreSQL that can be run on this machine")
            yield patient(client), versions(rig)[0]
        finally:
            client.close()


@pytest.fixture(scope="module")
def instance_id(cell: tuple[CellClient, str]) -> str:
    client, version = cell
    made = new_id()
    wanted = spec(made, engine="postgres", engine_version=version)
    client.put(made, wanted, key=f"put-{made}:put", lease=1)
    return made


@pytest.fixture
def queues(cell: tuple[CellClient, str], instance_id: str) -> Queues:
    return cell[0].queues(instance_id)


@pytest.fixture
def name(queues: Queues, request: pytest.FixtureRequest) -> str:
    made = request.node.originalname.removeprefix("test_")[:40]
    return str(queues.create(made, unlogged=False, key=f"make-{made}")["name"])


def refuses(status: int, act: Any, *given: Any, **named: Any) -> QueueRefused:
    with pytest.raises(QueueRefused) as refused:
        act(*given, **named)
    assert refused.value.status == status
    return refused.value


def listed(queues: Queues, name: str) -> dict[str, Any]:
    items = queues.page(limit=100, after="")["items"]
    return next(dict(one) for one in items if one["name"] == name)


def test_a_queue_is_made_once(queues: Queues, name: str) -> None:
    made = queues.create("made_once", unlogged=True, key="once")
    assert queues.create("made_once", unlogged=True, key="once") == made
    assert {one: made[one] for one in ("name", "unlogged", "depth", "hidden")} == {
        "name": "made_once", "unlogged": True, "depth": 0, "hidden": 0,
    }  # fmt: skip
    assert (made["total_messages"], made["oldest_message_age_s"]) == (0, None)
    assert made["data_api_roles"] == ["service_role"]
    assert listed(queues, "made_once") == made
    refused = refuses(409, queues.create, name, unlogged=False, key="twice")
    assert refused.code == "queue_exists"
    for ending in ("_pkey", "_vt_idx", "_msg_id_seq"):
        refuses(422, queues.create, f"a{ending}", unlogged=False, key=f"wrong-{ending}")


def test_messages_are_read_in_order_and_hidden(queues: Queues, name: str) -> None:
    sent = queues.send(name, [{"n": 1}, {"n": 2}], delay_s=0, key="sent")
    assert sent == {"message_ids": [1, 2]}
    assert queues.send(name, [{"n": 1}, {"n": 2}], delay_s=0, key="sent") == sent
    assert queues.send(name, [{"n": 3}], delay_s=3600, key="later") == {"message_ids": [3]}
    read = queues.read(name, count=10, timeout_s=0)["messages"]
    assert [(one["message_id"], one["read_count"], one["body"]["n"]) for one in read] == [
        (1, 1, 1), (2, 1, 2),
    ]  # fmt: skip
    assert set(read[0]) == {"message_id", "read_count", "enqueued_at", "visible_at", "body"}
    again = queues.read(name, count=1, timeout_s=3600)["messages"]
    assert [(one["message_id"], one["read_count"]) for one in again] == [(1, 2)]
    shown = listed(queues, name)
    assert (shown["depth"], shown["hidden"], shown["total_messages"]) == (1, 2, 3)
    assert shown["oldest_message_age_s"] >= 0
    assert [
        one["message_id"] for one in queues.read(name, count=10, timeout_s=3600)["messages"]
    ] == [2]
    assert queues.read(name, count=10, timeout_s=3600) == {"messages": []}


def test_messages_are_taken_out(queues: Queues, name: str) -> None:
    queues.send(name, [{}] * 5, delay_s=0, key="five")
    assert queues.remove(name, [9, 2, 1], archive=False, key="out") == {"message_ids": [1, 2]}
    assert queues.remove(name, [9, 2, 1], archive=False, key="out") == {"message_ids": [1, 2]}
    assert queues.remove(name, [1, 3], archive=True, key="archived") == {"message_ids": [3]}
    assert queues.purge(name, key="purged") == {"purged": 2}
    assert queues.purge(name, key="purged") == {"purged": 2}
    assert queues.purge(name, key="purged-again") == {"purged": 0}
    assert listed(queues, name)["total_messages"] == 5


def test_roles_are_replaced(queues: Queues, name: str) -> None:
    given = ["service_role", "anon"]
    permitted = {"name": name, "data_api_roles": ["anon", "service_role"]}
    assert queues.permit(name, given) == permitted
    assert listed(queues, name)["data_api_roles"] == ["anon", "service_role"]
    assert queues.permit(name, []) == {"name": name, "data_api_roles": []}


def test_pages_are_in_the_order_of_names(queues: Queues) -> None:
    for number in range(3):
        queues.create(f"zz{number}", unlogged=False, key=f"zz{number}")
    first = queues.page(limit=2, after="zz")
    assert [one["name"] for one in first["items"]] == ["zz0", "zz1"]
    assert first["next_after"] == "zz1"
    assert queues.page(limit=2, after="zz1")["next_after"] is None


def test_what_is_not_there(queues: Queues, name: str) -> None:
    queues.send(name, [{}], delay_s=0, key="before-it-went")
    queues.delete(name)
    refuses(404, queues.delete, name)
    refuses(404, queues.permit, name, [])
    refuses(404, queues.send, name, [{}], delay_s=0, key="gone-1")
    refuses(404, queues.read, name, count=1, timeout_s=1)
    refuses(404, queues.remove, name, [1], archive=False, key="gone-2")
    assert refuses(404, queues.purge, name, key="gone-3").code == "queue_not_found"
    queues.create(name, unlogged=False, key="anew")
    assert queues.send(name, [{}], delay_s=0, key="gone-1") == {"message_ids": [1]}


def test_what_cannot_be_held(queues: Queues, name: str) -> None:
    refuses(422, queues.send, name, [{}, {"text": "\u0000"}], delay_s=0, key="held")
    assert queues.send(name, [{}], delay_s=0, key="held") == {"message_ids": [1]}


def test_an_instance_without_queues(cell: tuple[CellClient, str]) -> None:
    client, version = cell
    refuses(404, client.queues(new_id()).page, limit=1, after="")
    other = new_id()
    client.put(other, spec(other), key=f"put-{other}:put", lease=1)
    refused = refuses(409, client.queues(other).page, limit=1, after="")
    assert refused.detail == "queues need a postgres instance; this instance is duckdb"
    paused = new_id()
    wanted = spec(paused, engine="postgres", engine_version=version)
    client.put(paused, wanted, key=f"put-{paused}:put", lease=1)
    client.pause(paused, key=f"pause-{paused}:pause", lease=1)
    refused = refuses(409, client.queues(paused).purge, "any", key="any")
    assert refused.detail == "queues need a running instance; this instance is paused"
