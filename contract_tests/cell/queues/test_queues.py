"""Queues of a real PostgreSQL in a real cell, asked as the control plane would."""

import asyncio
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import httpx
import psycopg
import pytest

from cell.instances.queues import TURN_WITHIN_S, QueueDatabases
from contract_tests.cell.rig import Rig, new_id, until
from instance_services.queues import installation

NAMES = ("select", "pg_catalog", "user", "q_a_q", "a", "a" * 47, "order", "x1_2__3")
HOSTILE = (
    *(
        "",
        "A",
        "Orders",
        "1a",
        "_a",
        "a-b",
        "a b",
        "a.b",
        "a" * 48,
        "ä",
        "\uff41",
        "a\n",
        "a\u0000",
    ),
    *('a"', "a'", "a;drop table pgmq.meta", "a--", "a$$", "%I", "a/../b", "pgmq.meta"),
)
TAKEN = ("a_pkey", "a_vt_idx", "a_msg_id_seq")


class Queues:
    """The queues of one instance."""

    def __init__(self, rig: Rig, instance_id: str) -> None:
        self.rig = rig
        self.instance_id = instance_id
        self.path = f"/v1/instances/{instance_id}/queues"

    def act(self, method: str, path: str = "", body: Any = None, **more: Any) -> httpx.Response:
        return self.rig.act(method, f"{self.path}{path}", body, **more)

    def ask(self, method: str, path: str = "", body: Any = None, **more: Any) -> dict[str, Any]:
        answer = self.act(method, path, body, **more)
        assert answer.is_success, answer.text
        return dict(answer.json()) if answer.content else {}

    def make(self, name: str, *, unlogged: bool = False) -> str:
        self.ask("POST", body={"name": name, "unlogged": unlogged}, key=f"{new_id()}:make")
        return name

    def send(self, name: str, *messages: Any, delay: int = 0, **more: Any) -> list[int]:
        body = {"messages": list(messages), "delay_seconds": delay}
        more = {"key": f"{new_id()}:send", **more}
        return list(self.ask("POST", f"/{name}/messages", body, **more)["message_ids"])

    def read(self, name: str, count: int = 100, timeout: int = 60) -> list[dict[str, Any]]:
        body = {"count": count, "visibility_timeout_s": timeout}
        return list(self.ask("POST", f"/{name}/actions/read", body)["messages"])

    def remove(self, name: str, *ids: int, archive: bool = False) -> list[int]:
        body = {"message_ids": list(ids), "archive": archive}
        return list(self.ask("POST", f"/{name}/actions/remove", body)["message_ids"])

    def permit(self, name: str, *roles: str) -> None:
        self.ask("PUT", f"/{name}/permissions", {"data_api_roles": list(roles)})

    def list(self) -> dict[str, dict[str, Any]]:
        answer = self.rig.get(self.path)
        assert answer.status_code == 200, answer.text
        return {each["name"]: each for each in answer.json()["items"]}

    def session(
        self, role: str | None = None, database: str = "app"
    ) -> psycopg.Connection[tuple[Any, ...]]:
        """As the owner's client, which may act as a role of the data API."""
        revealed = self.rig.reveal(self.instance_id)
        route = self.rig.route(self.instance_id)
        assert route is not None
        connection = psycopg.connect(
            host=route["socket"].rpartition("/")[0],
            user=revealed["username"],
            password=revealed["password"],
            dbname=database,
            autocommit=True,
        )
        if role is not None:
            connection.execute(f"SET ROLE {role}".encode())
        return connection


def versions(rig: Rig) -> list[str]:
    engines = {each["engine"]: each["versions"] for each in rig.get("/v1/cell").json()["engines"]}
    return list(engines.get("postgres", []))


def make(rig: Rig, version: str | None = None) -> Queues:
    found = versions(rig)
    if not found or (version is not None and version not in found):
        pytest.skip(f"no PostgreSQL {version or ''} that can be run on this machine")
    return Queues(rig, rig.make(engine="postgres", engine_version=version or found[0]))


@pytest.fixture(scope="module")
def queues(shared_rig: Rig) -> Queues:
    return make(shared_rig)


def problem(answer: httpx.Response, status: int, said: str = "") -> None:
    assert answer.status_code == status, answer.text
    assert said in answer.json()["detail"]


def test_messages_go_through_a_queue_in_their_order(queues: Queues) -> None:
    name = queues.make("orders")
    ids = queues.send(name, *({"n": n, "text": "ä\u2028'\"\\"} for n in range(1000)))
    assert ids == list(range(1, 1001))
    read = queues.read(name, count=3)
    assert [(each["message_id"], each["read_count"], each["body"]["n"]) for each in read] == [
        (1, 1, 0), (2, 1, 1), (3, 1, 2),
    ]  # fmt: skip
    assert read[0]["body"]["text"] == "ä\u2028'\"\\"
    assert read[0]["enqueued_at"] < read[0]["visible_at"]
    assert queues.read(name, count=1)[0]["message_id"] == 4, "what is hidden is not read again"
    shown = queues.list()[name]
    assert (shown["depth"], shown["hidden"], shown["total_messages"]) == (996, 4, 1000)
    assert shown["oldest_message_age_s"] >= 0
    assert shown["data_api_roles"] == ["service_role"]
    assert queues.remove(name, 1, 2, 5000) == [1, 2]
    assert queues.remove(name, 1, 3, archive=True) == [3]
    with queues.session() as owner:
        archived = owner.execute("SELECT msg_id FROM pgmq.a_orders").fetchall()
    assert archived == [(3,)]
    assert queues.ask("POST", f"/{name}/actions/purge") == {"purged": 997}
    assert queues.read(name) == []


def test_delayed_and_read_messages_come_when_their_time_has_come(queues: Queues) -> None:
    name = queues.make("later")
    queues.send(name, {"soon": False}, delay=3600)
    shown = queues.list()[name]
    assert (shown["depth"], shown["hidden"]) == (0, 1)
    queues.send(name, {"soon": True}, delay=1)
    found = until(lambda: queues.read(name, timeout=1), "the message is visible")
    again = until(lambda: queues.read(name, timeout=60), "the message is visible again")
    assert [(each["body"], each["read_count"]) for each in (*found, *again)] == [
        ({"soon": True}, 1), ({"soon": True}, 2),
    ]  # fmt: skip
    # Neither came too early, by the server's own clock: hidden from each reading for its time.
    sent, first, second = (
        datetime.fromisoformat(moment)
        for moment in (found[0]["enqueued_at"], found[0]["visible_at"], again[0]["visible_at"])
    )
    assert first - timedelta(seconds=1) >= sent + timedelta(seconds=1)
    assert second - timedelta(seconds=60) >= first


def test_an_act_with_the_same_key_is_done_once(queues: Queues) -> None:
    name = queues.make("once")
    with ThreadPoolExecutor(4) as threads:
        sent = list(threads.map(lambda _: queues.send(name, {}, key="same:send"), range(4)))
    assert sent == [[1]] * 4
    assert queues.list()[name]["total_messages"] == 1
    assert queues.send(name, {}, key="other:send") == [2]


def test_an_act_is_done_again_with_a_key_of_the_day_before(queues: Queues) -> None:
    """The control plane has forgotten it by then, and says 201: a message must have been sent."""
    name = queues.make("daily")
    assert queues.send(name, {}, key="daily:send") == [1]
    with queues.session() as owner:
        owner.execute("UPDATE menagerie_queues.answers SET at = at - interval '24 hours'")
    assert queues.send(name, {}, key="daily:send") == [2]
    assert queues.send(name, {}, key="daily:send") == [2]


def test_what_is_not_there_and_what_is_there_already(queues: Queues) -> None:
    name = queues.make("there")
    problem(queues.act("POST", body={"name": name, "unlogged": True}), 409, "has a queue there")
    for method, path, body in (
        ("DELETE", "/never", None),
        ("PUT", "/never/permissions", {"data_api_roles": []}),
        ("POST", "/never/messages", {"messages": [{}], "delay_seconds": 0}),
        ("POST", "/never/actions/read", {"count": 1, "visibility_timeout_s": 1}),
        ("POST", "/never/actions/remove", {"message_ids": [1], "archive": False}),
        ("POST", "/never/actions/purge", None),
    ):
        problem(queues.act(method, path, body), 404, "no queue never")
    queues.ask("DELETE", f"/{name}")
    assert name not in queues.list()
    queues.make(name)
    assert queues.send(name, {}) == [1], "a new one, and not what was left of the old"


@pytest.mark.parametrize("name", NAMES)
def test_names_that_look_like_something_else_are_names(queues: Queues, name: str) -> None:
    queues.make(name)
    assert queues.send(name, {"name": name}) == [1]
    assert [each["body"] for each in queues.read(name)] == [{"name": name}]
    queues.ask("DELETE", f"/{name}")


@pytest.mark.parametrize("name", [*HOSTILE, *TAKEN])
def test_what_is_no_name_is_refused_before_any_sql(queues: Queues, name: str) -> None:
    problem(queues.act("POST", body={"name": name, "unlogged": False}), 422)
    assert name not in queues.list()


def test_a_body_that_postgres_cannot_hold_is_said(queues: Queues) -> None:
    name = queues.make("held")
    body = {"messages": [{}, {"text": "a\u0000b"}], "delay_seconds": 0}
    problem(queues.act("POST", f"/{name}/messages", body), 422, "cannot store")
    assert queues.list()[name]["depth"] == 0, "all or none"


@pytest.mark.nightly
def test_large_messages_are_read_a_few_at_a_time(queues: Queues) -> None:
    name = queues.make("large")
    with queues.session() as owner:
        owner.execute("""SELECT pgmq.send('large', jsonb_build_object('t', repeat('x', 1500000)))
                      FROM generate_series(1, 4)""")
        owner.execute(
            """SELECT pgmq.send('large', jsonb_build_object('t', repeat('x', 5000000)))"""
        )
    assert [each["message_id"] for each in queues.read(name)] == [1, 2]
    assert queues.list()[name]["depth"] == 3, "what did not fit is not hidden"
    assert [each["message_id"] for each in queues.read(name)] == [3, 4]
    answer = queues.act("POST", f"/{name}/actions/read", {"count": 9, "visibility_timeout_s": 9})
    problem(answer, 409, "message 5 has more than")


# By day the order of messages, and when they come.
@pytest.mark.nightly
def test_two_first_uses_at_once_install_once(shared_rig: Rig) -> None:
    queues = make(shared_rig)
    names = [f"first_{number}" for number in range(4)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(queues.make, names))
    assert sorted(queues.list()) == names
    with queues.session() as owner:
        rows = owner.execute("SELECT version, pgmq_version FROM menagerie_queues.installed")
        assert rows.fetchall() == [(installation.VERSION, "1.13.0")]


def test_other_engines_have_no_queues(shared_rig: Rig, light_rig: Rig) -> None:
    other = Queues(shared_rig, light_rig.make())
    problem(shared_rig.get(other.path), 409, "need a postgres instance")
    problem(shared_rig.get(f"/v1/instances/{new_id()}/queues"), 404)
    unsigned = httpx.Client(transport=httpx.HTTPTransport(uds=shared_rig.socket, verify=False))
    with unsigned as http:
        assert http.get(f"http://cell{other.path}").status_code == 401


@pytest.mark.nightly
def test_queues_of_a_paused_instance_come_back_with_it(shared_rig: Rig, queues: Queues) -> None:
    name = queues.make("asleep")
    queues.send(name, {"n": 1})
    shared_rig.action(queues.instance_id, "pause")
    problem(shared_rig.get(queues.path), 409, "is paused")
    shared_rig.action(queues.instance_id, "resume")
    assert [each["body"] for each in queues.read(name)] == [{"n": 1}]


def test_queues_outlive_a_rotation(shared_rig: Rig, queues: Queues) -> None:
    queues.make("before")
    shared_rig.rotate(queues.instance_id)
    queues.make("after")
    with queues.session() as owner:
        owners = "SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'pgmq'"
        assert owner.execute(owners.encode()).fetchall() == [("app",)]
        owner.execute("SELECT pgmq.drop_queue('before')")
    assert {"before", "after"} & set(queues.list()) == {"after"}


@pytest.mark.nightly
def test_what_the_owner_set_for_its_sessions_bends_nothing(shared_rig: Rig) -> None:
    queues = make(shared_rig)
    with queues.session() as owner:
        for setting in (
            *("default_transaction_isolation = serializable", "datestyle = 'German, DMY'"),
            *("timezone = 'Asia/Kolkata'", "client_encoding = latin1", "statement_timeout = 1"),
            *("default_transaction_read_only = on", "search_path = nowhere"),
            *("standard_conforming_strings = off", "intervalstyle = iso_8601"),
        ):
            owner.execute(f"ALTER DATABASE app SET {setting}".encode())
            owner.execute(f"ALTER ROLE app SET {setting}".encode())
    name = queues.make("straight")
    with ThreadPoolExecutor(4) as threads:
        sent = list(threads.map(lambda _: queues.send(name, {"t": "☕\\"}, key="a:b"), range(4)))
    assert sent == [[1]] * 4
    read = queues.read(name)
    assert read[0]["body"] == {"t": "☕\\"}
    assert read[0]["visible_at"] > read[0]["enqueued_at"]
    assert queues.list()[name]["created_at"].endswith("Z")


def send_in_turn(queues: Queues, name: str) -> int:
    """The id of a message. Nobody is sent away before their turn might have come.

    On a machine that stands still it may not come in that time, and they ask again.
    """
    key = f"{new_id()}:send"
    body = {"messages": [{}], "delay_seconds": 0}
    while True:
        began = time.monotonic()
        answer = queues.act("POST", f"/{name}/messages", body, key=key)
        if answer.status_code != 503:
            assert answer.status_code == 201, answer.text
            return int(answer.json()["message_ids"][0])
        assert time.monotonic() - began >= TURN_WITHIN_S, answer.text


@pytest.mark.nightly
def test_those_who_ask_at_once_take_turns(queues: Queues) -> None:
    name = queues.make("crowded")
    with ThreadPoolExecutor(12) as threads:
        answers = list(threads.map(lambda _: send_in_turn(queues, name), range(36)))
    assert sorted(answers) == list(range(1, 37))
    with queues.session() as owner, owner.transaction():
        owner.execute("LOCK TABLE pgmq.q_crowded")
        body = {"count": 1, "visibility_timeout_s": 1}
        with ThreadPoolExecutor(6) as threads:
            asked = [
                threads.submit(queues.act, "POST", f"/{name}/actions/read", body) for _ in range(6)
            ]
            statuses = {each.result().status_code for each in asked}
    assert statuses == {503}, "a queue that is locked keeps nobody waiting for long"
    assert len(queues.read(name)) == 36


# By day the order of messages, and when they come.
@pytest.mark.nightly
def test_a_crash_empties_unlogged_queues_only(shared_rig: Rig, queues: Queues) -> None:
    kept, lost = queues.make("kept"), queues.make("lost", unlogged=True)
    ids = queues.send(kept, {"n": 1}, {"n": 2})
    queues.send(lost, {"n": 1})
    queues.permit(lost, "anon")
    os.kill(shared_rig.engine_pid(queues.instance_id), signal.SIGKILL)
    until(lambda: shared_rig.observe(queues.instance_id)["restarts"], "the engine is back")
    assert [each["message_id"] for each in queues.read(kept)] == ids
    assert queues.read(lost) == []
    assert queues.list()[lost]["data_api_roles"] == ["anon"], "the queue itself is there"
    assert queues.send(lost, {})


def test_no_turns_are_kept_of_instances_that_nobody_asks() -> None:
    nothing: Any = None
    databases = QueueDatabases(nothing, nothing)

    async def ask(number: int) -> None:
        async with databases._turn(f"inst_{number % 7}"):
            await asyncio.sleep(0)
            assert databases._asking[f"inst_{number % 7}"]

    async def every() -> None:
        await asyncio.gather(*(ask(number) for number in range(100)))

    asyncio.run(every())
    assert (databases._turns, databases._asking) == ({}, {})
