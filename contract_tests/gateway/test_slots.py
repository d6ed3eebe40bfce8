"""The counts that all workers share: none is lost, and what nobody counts in takes no row."""

import os
import random
import signal
from collections.abc import Callable

import pytest
import structlog

from gateway import slots as counted
from gateway.slots import Slots

SMALL = 512


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that its end is reached soon."""
    monkeypatch.setattr(counted, "ROWS", SMALL)


def in_worker(slots: Slots, column: int, work: Callable[[], bool]) -> int:
    child = os.fork()
    if child == 0:
        done = False
        try:
            slots.use_column(column)
            done = work()
        finally:
            os._exit(0 if done else 1)
    return child


def has_done(child: int) -> bool:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_counts_are_of_all_processes() -> None:
    slots = Slots(workers=3)
    for column in range(3):

        def work(column: int = column) -> bool:
            entered = [slots.enter("one", 100) for _ in range(20)]
            entered += [slots.enter(f"other-{column}", 1) for _ in range(2)]
            return entered.count(True) == 21

        assert has_done(in_worker(slots, column, work))
    assert slots.total("one") == 60
    slots.clear_column(1)
    assert slots.total("one") == 40
    assert [slots.total(f"other-{column}") for column in range(3)] == [1, 0, 1]


def test_a_limit_is_reached_and_never_passed() -> None:
    slots = Slots(workers=1)
    assert [slots.enter("one", 2) for _ in range(3)] == [True, True, False]
    slots.leave("one")
    assert slots.enter("one", 2)
    assert all(slots.enter("unlimited", None) for _ in range(100))


@pytest.mark.usefixtures("small")
def test_a_gateway_serves_any_number_of_instances_over_its_life() -> None:
    slots = Slots(workers=2)
    slots.enter("kept", None)
    for number in range(20 * SMALL):
        assert slots.total(f"inst_{number}") == 0
        assert slots.enter(f"inst_{number}", 1)
        assert not slots.enter(f"inst_{number}", 1)
        slots.leave(f"inst_{number}")
    assert slots.total("kept") == 1


@pytest.mark.usefixtures("small")
def test_no_count_is_lost_while_rows_come_and_go() -> None:
    """Three workers count under the same few names, which lose and regain their rows all along."""
    slots, names = Slots(workers=3), [f"inst_{number}" for number in range(40)]

    def work(column: int) -> bool:
        chance = random.Random(column)
        for _ in range(4_000):
            name = chance.choice(names)
            if not slots.enter(name, None) or slots.total(name) < 1:
                return False
            slots.leave(name)
        return all(slots.enter(name, None) for name in names[: 10 * (column + 1)])

    children = [in_worker(slots, column, lambda column=column: work(column)) for column in range(3)]  # type: ignore[misc]
    assert all(has_done(child) for child in children)
    assert [slots.total(name) for name in names] == [3] * 10 + [2] * 10 + [1] * 10 + [0] * 10


@pytest.mark.usefixtures("small")
def test_a_killed_workers_rows_are_free_again() -> None:
    slots = Slots(workers=2)
    slots.enter("shared", None)

    def work() -> bool:
        names = [f"inst_{number}" for number in range(10 * SMALL)]
        taken = [name for name in names if slots.enter(name, None)]
        slots.enter("shared", None)
        os.kill(os.getpid(), signal.SIGKILL)
        return bool(taken)

    assert not has_done(in_worker(slots, 1, work))
    assert slots.total("shared") == 2
    assert not any(slots.enter(f"new_{number}", None) for number in range(100))
    slots.clear_column(1)
    assert slots.total("shared") == 1
    assert all(slots.enter(f"new_{number}", None) for number in range(100))


@pytest.mark.usefixtures("small")
def test_a_full_table_refuses_what_is_new_and_says_so_once() -> None:
    slots = Slots(workers=1)
    assert slots.enter("old", 2)
    with structlog.testing.capture_logs() as lines:
        while slots.enter(f"inst_{len(slots._rows)}", None):
            pass
        refused = [f"new_{number}" for number in range(20 * SMALL)]
        refused = [name for name in refused if not slots.enter(name, None)]
    assert refused
    assert [(line["event"], line["log_level"]) for line in lines] == [
        ("gateway.counts_full", "error")
    ]
    for name in refused:
        slots.leave(name)  # counts nothing, and breaks nothing
    assert slots.enter("old", 2)
    assert slots.total("old") == 2
