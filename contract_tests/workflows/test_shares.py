"""Threads of a worker are shared by organization: nobody waits behind another's many orders."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from contract_tests.workflows.stage import LEASE_S
from contract_tests.workflows.test_work import Bench, bench, claim, until
from control.work import Operation, Worker, Workflow, enqueue, queue
from control.work.queue import PassedOver
from control.work.registry import registry_of

__all__ = ["bench"]


@contextmanager
def working(bench: Bench, slow: tuple[str, str], threads: int = 4) -> Iterator[None]:
    """A worker; what has that argument ends when the test does."""
    finish = threading.Event()
    name, held = slow

    def body(op: Operation) -> None:
        bench.ran.append(op.args[name])
        if op.args[name] == held:
            assert finish.wait(60)

    bench.body = body
    with worker(bench, threads):
        try:
            yield
        finally:
            finish.set()


@contextmanager
def worker(bench: Bench, threads: int) -> Iterator[None]:
    """In the end all is done."""
    made = Worker(bench.stage.services, bench.stage.registry, threads=threads, keep_schedules=False)
    made.start()
    try:
        yield
    finally:
        until(lambda: not bench.stage.open_work())
        made.stop(wait_s=60)


def test_one_organizations_slow_orders_leave_threads_to_others(bench: Bench) -> None:
    """However many come first, and however long each takes."""
    for number in range(20):
        bench.start("slow", f"many{number}", org_id="org_many")
    with working(bench, slow=("org_id", "org_many")):
        until(lambda: len(bench.ran) >= 2)
        for number in range(3):
            bench.start("one", f"few{number}", org_id=f"org_few{number}")
            until(lambda number=number: f"org_few{number}" in bench.ran, 20)  # type: ignore[misc]
        assert bench.ran.count("org_many") == 2, "half of the threads, while they are slow"
    assert bench.ran.count("org_many") == 20


def test_organizations_with_enough_under_way_are_passed_over(bench: Bench) -> None:
    bench.start("a", "a", org_id="org_a")
    bench.start("nobodys", "b")
    bench.start("c", "c", org_id="org_c")
    database, kinds = bench.stage.database, {"test.kind": 100}
    passed_over = PassedOver(["org_a"])
    claims = [queue.claim(database, kinds, LEASE_S, None, passed_over) for _ in range(3)]
    assert [each and each.work.args["name"] for each in claims] == ["nobodys", "c", None]
    # Nothing that may run is due, so a worker sleeps, though the first is still waiting.
    wait_s = queue.next_due_s(database, kinds, PassedOver(["org_a", "org_c"]))
    assert wait_s is not None
    assert wait_s > 0
    assert claim(database) is not None


def test_cells_that_do_not_answer_leave_threads_to_everybody(bench: Bench) -> None:
    """However many of them there are, each asked in its own lane."""
    for number in range(10):
        bench.start("hung", f"cell:{number}", cell_id=f"cell_{number}")
    with working(bench, slow=("name", "hung")):
        until(lambda: len(bench.ran) >= 2)
        bench.start("an order", "order", org_id="org_a")
        bench.start("nobodys", "nobodys")
        until(lambda: {"an order", "nobodys"} <= set(bench.ran), 20)
        assert bench.ran.count("hung") == 2, "half of the threads"
    assert bench.ran.count("hung") == 10


def test_organizations_take_turns_however_much_older_work_each_has(bench: Bench) -> None:
    """Eight with a backlog on four threads; a newcomer waits for one thing of each at most."""
    ends = threading.Semaphore(0)

    def body(op: Operation) -> None:
        bench.ran.append(op.args["org_id"])
        if op.args["org_id"] != "org_new":
            assert ends.acquire(timeout=60)

    bench.body = body
    for number in range(80):
        bench.start("slow", f"many{number}", org_id=f"org_{number % 8}")
    with worker(bench, 4):
        try:
            until(lambda: len(bench.ran) == 4)
            bench.start("one", "new", org_id="org_new")
            for number in range(9):
                ends.release()
                until(lambda number=number: len(bench.ran) >= 5 + number)  # type: ignore[misc]
            assert "org_new" in bench.ran
        finally:
            ends.release(80)


def test_what_asks_strangers_has_a_quarter_of_the_threads(bench: Bench) -> None:
    """However many organizations have a name server that never answers."""
    ask = asking(bench)
    for number in range(10):
        ask("hung", f"of{number}", f"org_{number}")
    with working(bench, slow=("name", "hung")):
        until(lambda: len(bench.ran) >= 1)
        for number in range(8):
            bench.start("an order", f"order{number}", org_id=f"org_{number}")
        until(lambda: bench.ran.count("an order") == 8, 20)
        assert bench.ran.count("hung") == 1, "a quarter of four"
    assert bench.ran.count("hung") == 10


@pytest.mark.nightly
def test_one_organizations_questions_leave_a_place_to_others(bench: Bench) -> None:
    """However many of its instances have a name server that never answers."""
    ask = asking(bench)
    for number in range(10):
        ask("hung", f"of{number}", "org_many")
    with working(bench, slow=("name", "hung"), threads=8):
        until(lambda: len(bench.ran) >= 1)
        for number in range(3):
            ask(f"asked{number}", "of_another", "org_few")
            until(lambda number=number: f"asked{number}" in bench.ran, 20)  # type: ignore[misc]
        assert bench.ran.count("hung") == 1, "half of a quarter of eight"
    assert bench.ran.count("hung") == 10


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("threads", "people"),
    [
        (4, {}),
        pytest.param(8, {}, marks=pytest.mark.nightly),
        (4, {"person": "user_many"}),
    ],
)
def test_organizations_take_turns_at_asking_strangers(
    bench: Bench, threads: int, people: dict[str, str]
) -> None:
    """Two with a backlog at one place, or two; most of the threads are free meanwhile.

    Of one person's organizations there may be more.
    """
    ends = threading.Semaphore(0)

    def body(op: Operation) -> None:
        bench.ran.append(op.args["org_id"])
        if op.args["org_id"] != "org_new":
            assert ends.acquire(timeout=60)

    bench.body = body
    ask, places = asking(bench), threads // 4
    for number in range(20):
        ask("slow", f"many{number}", f"org_{number % (7 if people else 2)}", **people)
    with worker(bench, threads):
        try:
            until(lambda: len(bench.ran) == places)
            ask("one", "new", "org_new")
            for number in range(2):
                ends.release()
                until(lambda number=number: len(bench.ran) > places + number)  # type: ignore[misc]
            assert "org_new" in bench.ran
        finally:
            ends.release(20)


def asking(bench: Bench) -> Callable[..., None]:
    """Work that asks strangers beside work that does not; the former by name, lane and whose."""
    (ours,) = bench.stage.registry.workflows.values()
    strangers = Workflow("test.asks", ours.run, ours.deadline_s, asks_strangers=True)
    bench.stage.registry = registry_of(ours, strangers)

    def ask(name: str, lane: str, org_id: str, **person: str) -> None:
        with bench.stage.database.write() as db:
            enqueue(db, strangers, lane, {"name": name, "org_id": org_id, **person})

    return ask
