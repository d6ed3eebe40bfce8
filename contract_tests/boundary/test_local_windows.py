"""Windows in memory are bounded, however many callers there are."""

from contract_tests.boundary.test_rates import Clock
from control.boundary.windows import LocalWindows


def test_what_is_kept_in_memory_is_bounded_and_short_windows_forget_no_long_one() -> None:
    clock = Clock()
    windows = LocalWindows(clock=clock, keys_max=100)
    assert windows.acquire_entry("account", 1, 900)
    for number in range(1_000):
        assert windows.acquire_entry(f"address {number}", 1, 60)
    assert windows.reset() == 101
    for number in range(1_000):
        clock.now += 1
        assert windows.acquire_entry(f"guess {number}", 1, 900)
        assert not windows.acquire_entry(f"guess {max(0, number - 99)}", 1, 900)
    assert windows.reset() == 100


def test_what_is_over_is_forgotten_by_those_who_come_after() -> None:
    clock = Clock()
    windows = LocalWindows(clock=clock)
    for number in range(100):
        windows.acquire_entry(f"early {number}", 1, 60)
    clock.now += 60
    for number in range(50):
        windows.acquire_entry(f"late {number}", 1, 60)
    assert windows.reset() == 50


def test_what_the_library_may_ask_of_a_storage_is_answered() -> None:
    clock = Clock()
    windows = LocalWindows(clock=clock)
    for length_s in (60, 900):
        assert windows.acquire_entry("mine", 5, length_s, amount=2)
    assert windows.acquire_entry("other", 5, 60)
    assert windows.check()
    assert windows.get_moving_window("mine", 5, 60) == (clock.now, 2)
    assert windows.get_moving_window("nobody", 5, 60) == (clock.now, 0)
    assert (windows.get("mine"), windows.get("other"), windows.get("nobody")) == (4, 1, 0)
    assert windows.get_expiry("mine") == clock.now + 900
    assert windows.get_expiry("other") == clock.now + 60
    assert windows.get_expiry("nobody") == clock.now
    windows.clear("mine")
    windows.clear("nobody")
    assert (windows.get("mine"), windows.get("other")) == (0, 1)


def test_a_request_for_several_is_let_in_whole_or_not_at_all() -> None:
    windows = LocalWindows(clock=Clock())
    assert windows.acquire_entry("key", 3, 60, amount=2)
    assert not windows.acquire_entry("key", 3, 60, amount=2)
    assert windows.acquire_entry("key", 3, 60)
    assert windows.get("key") == 3


def test_what_is_still_within_the_window_is_not_forgotten() -> None:
    clock = Clock()
    windows = LocalWindows(clock=clock)
    assert windows.acquire_entry("mine", 2, 60)
    clock.now += 50
    assert windows.acquire_entry("mine", 2, 60)
    clock.now += 20
    assert windows.acquire_entry("other", 2, 60)
    assert windows.get_moving_window("mine", 2, 60) == (clock.now - 20, 1)
    assert windows.acquire_entry("mine", 2, 60)
    assert not windows.acquire_entry("mine", 2, 60)
