"""Queues against a model: nothing lost, nothing read twice in its time, ids in order; and kills."""

import os
import secrets
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, ClassVar

import httpx
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from contract_tests.cell.queues.test_queues import Queues, make
from contract_tests.cell.rig import Rig, until

# Long beside what a test takes, so that the model's clock alone says what is visible.
PASSES_S = 20_000
TIMES_S = st.sampled_from([0, 10_000, 30_000])
BODIES = st.dictionaries(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=3),
    st.integers(-(2**53), 2**53) | st.text("aä'\"\\%$", max_size=5) | st.none(),
    max_size=2,
)
KILLS = 3


@dataclass
class Message:
    body: Any
    due: int
    reads: int = 0


@dataclass
class Model:
    """A queue as it is to be."""

    clock: int = 0
    sent: int = 0
    inside: dict[int, Message] = field(default_factory=dict)
    archived: set[int] = field(default_factory=set)

    def visible(self) -> list[int]:
        return sorted(n for n, message in self.inside.items() if message.due <= self.clock)

    def read(self, number: int, timeout: int) -> None:
        self.inside[number].due = self.clock + timeout
        self.inside[number].reads += 1


class QueueMachine(RuleBasedStateMachine):
    queues: ClassVar[Queues]

    @initialize(unlogged=st.booleans())
    def make(self, unlogged: bool) -> None:
        self.model = Model()
        self.name = self.queues.make(f"m{secrets.token_hex(8)}", unlogged=unlogged)

    @rule(bodies=st.lists(BODIES, min_size=1, max_size=5), delay=TIMES_S)
    def send(self, bodies: list[Any], delay: int) -> None:
        key = secrets.token_hex(8)
        ids = self.queues.send(self.name, *bodies, delay=delay, key=f"{key}:send")
        assert ids == self.queues.send(self.name, *bodies, delay=delay, key=f"{key}:send")
        model = self.model
        assert ids == list(range(model.sent + 1, model.sent + 1 + len(bodies)))
        for number, body in zip(ids, bodies, strict=True):
            model.inside[number] = Message(body, model.clock + delay)
        model.sent += len(bodies)

    @rule(count=st.integers(1, 4), timeout=TIMES_S)
    def read(self, count: int, timeout: int) -> None:
        expected = self.model.visible()[:count]
        read = self.queues.read(self.name, count, timeout)
        assert [each["message_id"] for each in read] == expected
        for each in read:
            self.model.read(each["message_id"], timeout)
            message = self.model.inside[each["message_id"]]
            assert (each["body"], each["read_count"]) == (message.body, message.reads)

    @rule(count=st.integers(1, 3))
    def read_at_once(self, count: int) -> None:
        """Three readers: what one has no other gets."""
        visible = self.model.visible()
        with ThreadPoolExecutor(3) as threads:
            reads = list(
                threads.map(lambda _: self.queues.read(self.name, count, 30_000), range(3))
            )
        ids = [each["message_id"] for read in reads for each in read]
        assert len(ids) == len(set(ids))
        assert set(ids) <= set(visible)
        for number in ids:
            self.model.read(number, 30_000)

    @rule(archive=st.booleans(), data=st.data())
    def remove(self, archive: bool, data: st.DataObject) -> None:
        some = st.lists(st.integers(1, self.model.sent + 1), min_size=1, max_size=4, unique=True)
        ids = data.draw(some)
        there = sorted(set(ids) & self.model.inside.keys())
        assert self.queues.remove(self.name, *ids, archive=archive) == there
        for number in there:
            del self.model.inside[number]
        if archive:
            self.model.archived |= set(there)

    @rule()
    def purge(self) -> None:
        count = len(self.model.inside)
        assert self.queues.ask("POST", f"/{self.name}/actions/purge") == {"purged": count}
        self.model.inside.clear()

    @rule()
    def time_passes(self) -> None:
        with self.queues.session() as owner:
            statement = f"UPDATE pgmq.q_{self.name} SET vt = vt - interval '{PASSES_S} s'"
            owner.execute(statement.encode())
        self.model.clock += PASSES_S

    @invariant()
    def the_figures_are_right(self) -> None:
        if not hasattr(self, "model"):
            return
        model, listed = self.model, self.queues.list()[self.name]
        visible = len(model.visible())
        figures = (listed["depth"], listed["hidden"], listed["total_messages"])
        assert figures == (visible, len(model.inside) - visible, model.sent)

    def teardown(self) -> None:
        if not hasattr(self, "model"):
            return
        with self.queues.session() as owner:
            rows = owner.execute(f"SELECT msg_id FROM pgmq.a_{self.name}".encode())
            assert {row[0] for row in rows.fetchall()} == self.model.archived
        self.queues.ask("DELETE", f"/{self.name}")


def check(rig: Rig, examples: int, steps: int) -> None:
    QueueMachine.queues = make(rig)
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(QueueMachine, settings=chosen)


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_queue_is_what_the_model_says(shared_rig: Rig) -> None:
    check(shared_rig, 2, 14)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_a_queue_is_what_the_model_says_at_length(shared_rig: Rig) -> None:
    check(shared_rig, 200, 40)


@pytest.fixture
def killed(make_rig: Any) -> Queues:
    return make(make_rig())


@pytest.mark.timeout(600)
@pytest.mark.parametrize("what", ["engine", "cell"])
@pytest.mark.nightly
def test_messages_are_there_once_whatever_is_killed(killed: Queues, what: str) -> None:
    """Each send is made again with its key until it is answered."""
    name = killed.make("steady")
    answers: dict[str, list[int]] = {}
    going_on = True

    def send(worker: int) -> None:
        number = 0
        while going_on:
            number += 1
            key = f"{worker}-{number}:send"
            answers[key] = _until_sent(killed, name, {"key": key}, key)

    def kill() -> None:
        for _ in range(KILLS):
            reached = len(answers) + 20
            while len(answers) < reached:
                time.sleep(0.02)
            _kill(killed, what)

    with ThreadPoolExecutor(3) as threads:
        workers = [threads.submit(send, worker) for worker in range(3)]
        try:
            kill()
        finally:
            going_on = False
        for worker in workers:
            worker.result()
    with killed.session() as owner:
        rows = owner.execute("SELECT msg_id, message->>'key' FROM pgmq.q_steady").fetchall()
    assert dict(rows) == {ids[0]: key for key, ids in answers.items()}
    assert len(rows) == len(answers)


def _kill(queues: Queues, what: str) -> None:
    """And returns when it is back."""
    rig, instance_id = queues.rig, queues.instance_id
    if what == "cell":
        rig.kill()
        rig.start()
        return
    restarts = rig.observe(instance_id)["restarts"]
    os.kill(rig.engine_pid(instance_id), signal.SIGKILL)
    until(lambda: rig.observe(instance_id)["restarts"] > restarts, "the engine is back")


def _until_sent(queues: Queues, name: str, message: Any, key: str) -> list[int]:
    deadline = time.monotonic() + 120
    body = {"messages": [message], "delay_seconds": 0}
    while True:
        try:
            answer = queues.act("POST", f"/{name}/messages", body, key=key)
        except (httpx.HTTPError, OSError):
            answer = None
        if answer is not None and answer.status_code == 201:
            return list(answer.json()["message_ids"])
        # 503 while the engine is gone, 409 while it starts.
        assert answer is None or answer.status_code in {409, 503}, answer.text
        assert time.monotonic() < deadline
        time.sleep(0.05)
