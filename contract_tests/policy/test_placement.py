"""What fits on machines: never more than there is, and what is refused says what would fit."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.policy.placement import (
    Amount,
    Candidate,
    Overcommit,
    amount,
    check_room,
    largest_size,
    with_room,
)
from control.policy.sizes import GB, GIB, SIZES

LAPTOP = Candidate("cell_a", Amount(4, 16 * GIB, 500 * GB), Amount())
LARGE = Candidate("cell_b", Amount(64, 512 * GIB, 20_000 * GB), Amount())


def as_it_comes(name: str) -> Amount:
    return amount(SIZES[name], SIZES[name].storage_bytes_included)


def message(name: str, *candidates: Candidate) -> str:
    (found,) = check_room(name, as_it_comes(name), candidates)
    assert (found["pointer"], found["keyword"]) == ("/size", "capacity")
    return found["message"]


def test_a_size_that_no_machine_has_is_refused_with_what_fits() -> None:
    assert message("xl32", LAPTOP) == (
        "size xl32 with 800 GB of storage needs more CPU and memory than any machine here "
        "has; the largest size that fits now is m4. For a larger size, add a larger machine"
    )
    assert check_room("xl32", as_it_comes("xl32"), [LAPTOP, LARGE]) == []


def test_nothing_of_one_instance_is_allocated_twice() -> None:
    """However often a machine's CPUs are allocated, no instance gets more than there are."""
    wide = replace(as_it_comes("s0"), vcpu=8)
    assert LAPTOP.lacks_ever(wide) == ["CPU"]
    assert LAPTOP.lacks_now(wide) == ["CPU"]


def test_what_is_allocated_is_counted() -> None:
    full = replace(LAPTOP, allocated=Amount(1, 15 * GIB, 30 * GB))
    assert message("s1", full) == (
        "there is not enough memory left for size s1 with 10 GB of storage; the largest size that "
        "fits now is s0. Pause instances to free CPU and memory, or erase them to free disk as well"
    )
    assert with_room(as_it_comes("s0"), [full]) == [full]
    nothing = replace(LAPTOP, allocated=Amount(32, 16 * GIB, 1000 * GB))
    assert "; no size fits now. " in message("f0", nothing)


def test_storage_that_was_asked_for_is_what_is_wrong() -> None:
    needed = amount(SIZES["s2"], 200 * GB)
    full = replace(LAPTOP, allocated=Amount(0, 0, 900 * GB))
    (found,) = check_room("s2", needed, [full], storage_asked=True)
    assert found["pointer"] == "/storage_bytes"
    (found,) = check_room("s2", replace(needed, vcpu=9), [full], storage_asked=True)
    assert found["pointer"] == "/size"


def test_overcommit_says_how_many_times_over() -> None:
    over = Overcommit(cpu=2, memory=0.5, storage=3)
    candidate = replace(LAPTOP, overcommit=over)
    assert with_room(Amount(4, 8 * GIB, 500 * GB), [candidate])
    assert candidate.lacks_ever(Amount(0.1, 9 * GIB, 0)) == ["memory"]
    used = replace(candidate, allocated=Amount(7.75, 7 * GIB, 1495 * GB))
    assert used.lacks_now(Amount(0.25, GIB, 5 * GB)) == []
    assert used.lacks_now(Amount(0.5, 2 * GIB, 6 * GB)) == ["CPU", "memory", "disk"]
    assert used.lacks_now(Amount(0, 2 * GIB, 0)) == ["memory"]


def test_where_it_is_not_known_nothing_is_refused() -> None:
    unknown = Candidate("cell_new", None, Amount(100, 10**12, 10**14))
    assert check_room("xl32", as_it_comes("xl32"), [unknown]) == []


def test_what_has_not_grown_needs_no_room() -> None:
    """A machine may have lost memory, or its overcommit: an instance on it can still shrink."""
    full = replace(LAPTOP, allocated=Amount(0, 20 * GIB, 0))
    before, smaller = as_it_comes("m2"), as_it_comes("s1")
    assert smaller.beyond(before) == Amount()
    assert full.lacks_now(smaller.beyond(before)) == []
    taller = replace(before, storage_bytes=100 * GB)
    assert taller.beyond(before) == Amount(0, 0, 100 * GB)


def test_amounts_add_up() -> None:
    assert Amount(1, 2, 3) + Amount(10, 20, 30) == Amount(11, 22, 33)


def test_each_kind_is_told_that_there_is_too_little_of() -> None:
    needed = replace(as_it_comes("xl32"), storage_bytes=2_000 * GB)
    (found,) = check_room("xl32", needed, [LAPTOP])
    assert found["message"].startswith(
        "size xl32 with 2000 GB of storage needs more CPU, memory and disk than any machine here"
        " has; the largest size that fits now is m4. "
    )


def test_an_instance_that_needs_no_disk_is_told_of_none() -> None:
    (found,) = check_room("l8", Amount(8, 0, 0), [LAPTOP])
    assert found["message"].startswith("size l8 needs more CPU than any machine here has; ")


def test_the_machine_that_lacks_least_says_what_is_missing() -> None:
    """With disk freed on the one it would fit; of the other all would have to go."""
    full = replace(LAPTOP, allocated=Amount(32, 16 * GIB, 1000 * GB))
    busy = replace(LAPTOP, allocated=Amount(0, 0, 1000 * GB))
    for machines in ((full, busy), (busy, full)):
        told = message("m2", *machines)
        assert told.startswith("there is not enough disk left for size m2 with ")
    small = Candidate("cell_s", Amount(1, GIB, 10 * GB), Amount())
    wide = replace(LAPTOP, machine=Amount(64, 16 * GIB, 500 * GB))
    for machines in ((small, wide), (wide, small)):
        assert message("l8", *machines) == (
            "size l8 with 200 GB of storage needs more memory than any machine here has; the"
            " largest size that fits now is m4. For a larger size, add a larger machine"
        )


def test_the_largest_size_holds_the_storage_that_was_asked_for() -> None:
    needed = amount(SIZES["m4"], 1_000 * GB)
    nearly = replace(LAPTOP, allocated=Amount(0, 15 * GIB, 0))
    (found,) = check_room("m4", needed, [nearly], storage_asked=True)
    assert found["message"] == (
        "there is not enough memory left for size m4 with 1000 GB of storage; no size fits now. "
        "Pause instances to free CPU and memory, or erase them to free disk as well"
    )
    (found,) = check_room("m4", needed, [nearly])
    assert "; the largest size that fits now is s0. " in found["message"]
    assert largest_size([LAPTOP], storage_bytes=1_000 * GB) == "m4"
    assert largest_size([LAPTOP], storage_bytes=1_000 * GB + 1) is None
    assert largest_size([LAPTOP], ["f0", "s0"], 20 * GB) == "s0"


def test_a_machine_is_what_its_cell_tells() -> None:
    told = {"vcpu": 4, "memory_bytes": 16 * GIB, "storage_bytes": 500 * GB}
    over = Overcommit(cpu=2)
    known = Candidate.of("cell_a", told, Amount(1), over, 3)
    assert known == Candidate("cell_a", LAPTOP.machine, Amount(1), over, 3)
    assert Candidate.of("cell_b", None, Amount(1), over, 3).machine is None


@given(
    orders=st.lists(st.sampled_from(sorted(SIZES)), max_size=60),
    cpu=st.sampled_from([1.0, 4.0, 8.0]),
)
def test_what_is_let_in_never_exceeds_the_machine(orders: list[str], cpu: float) -> None:
    over = Overcommit(cpu=cpu)
    candidate = replace(LAPTOP, overcommit=over)
    for name in orders:
        needed, largest = as_it_comes(name), largest_size([candidate])
        if with_room(needed, [candidate]):
            assert largest is not None
            assert SIZES[largest].memory_bytes >= SIZES[name].memory_bytes
            candidate = replace(candidate, allocated=candidate.allocated + needed)
    assert candidate.machine is not None
    assert over.of(candidate.machine).lacks(candidate.allocated) == []


@pytest.mark.parametrize("count", [4, 8])
def test_a_laptop_holds_a_handful(count: int) -> None:
    small = Candidate("cell_s", Amount(2, 8 * GIB, 100 * GB), Amount())
    for _ in range(count):
        assert with_room(as_it_comes("s0"), [small])
        small = replace(small, allocated=small.allocated + as_it_comes("s0"))
