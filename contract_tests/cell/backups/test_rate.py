"""How fast the store is read and written: by all together, and without a wait where it is free."""

import pytest

from cell.backups.rate import Rate
from cell.backups.store import Store, StoreError


class Watch:
    """A clock that goes on while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_each_waits_for_what_was_spent_before() -> None:
    watch = Watch()
    rate = Rate(1_000, clock=watch.clock, sleep=watch.sleep)
    for size_bytes in (3_000, 500, 0, 1_000):
        rate.spend(size_bytes)
    assert watch.slept == [3.0, 0.5]
    watch.now += 60
    # What nobody used is not saved up.
    rate.spend(2_000)
    rate.spend(1)
    assert watch.slept == [3.0, 0.5, 2.0]


def test_without_a_limit_nobody_waits() -> None:
    watch = Watch()
    rate = Rate(0, clock=watch.clock, sleep=watch.sleep)
    for _ in range(3):
        rate.spend(10**12)
    assert watch.slept == []


def test_a_store_spends_what_it_writes_and_reads(tmp_path: object) -> None:
    watch = Watch()
    rate = Rate(1_000, clock=watch.clock, sleep=watch.sleep)
    store = Store(f"file://{tmp_path}", rate=rate)
    store.put("a/b", b"x" * 2_000)
    assert store.get("a/b", 5_000) == b"x" * 2_000
    with pytest.raises(StoreError):
        store.get("a/b", 10)
    assert store.create("a/c", b"y")
    assert watch.slept == [2.0, 2.0]
