"""Which CPUs instances get: as few as they need, evenly, and moved where that evens it out."""

import math
import os
from collections import Counter
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cell.runtime.cpus import Cpus, Place
from contract_tests.cell.rig import SMALL, Rig, until

VCPUS = st.sampled_from([0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 16.0])
ORDERS = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.none() | VCPUS), max_size=30)


def followed(cpus: Cpus, orders: list[tuple[str, float | None]]) -> dict[str, Place]:
    """Where everybody runs who was placed, by what was answered alone."""
    places: dict[str, Place] = {}
    for name, vcpu in orders:
        answered = cpus.place(name, vcpu)
        assert name in answered
        places |= answered
    return places


@given(st.integers(1, 6), ORDERS)
def test_an_instance_has_as_many_as_its_size_needs(
    count: int, orders: list[tuple[str, float | None]]
) -> None:
    places = followed(Cpus(range(count)), orders)
    for name, vcpu in dict(orders).items():
        if vcpu is None or math.ceil(vcpu) >= count:
            assert places[name] is None
        else:
            place = places[name]
            assert place is not None
            assert len(place) == math.ceil(vcpu)
            assert place <= set(range(count))


@given(st.integers(2, 6), st.lists(st.tuples(st.sampled_from("abcdefgh"), st.booleans())))
def test_equals_are_spread_evenly_however_they_came_and_went(
    count: int, orders: list[tuple[str, bool]]
) -> None:
    small = [(name, 0.5 if stays else None) for name, stays in orders]
    places = followed(Cpus(range(count)), small)
    promised = Counter(cpu for place in places.values() if place for cpu in place)
    held = [promised[cpu] for cpu in range(count)]
    assert max(held) - min(held) <= 1


@given(st.integers(2, 6), ORDERS)
def test_nobody_alone_could_stand_better(
    count: int, orders: list[tuple[str, float | None]]
) -> None:
    places = followed(Cpus(range(count)), orders)
    shares = {
        name: (place, vcpu / len(place))
        for name, vcpu in dict(orders).items()
        if vcpu is not None and (place := places[name]) is not None
    }
    assume(shares)
    promised = Counter[int]()
    for place, share in shares.values():
        promised.update(dict.fromkeys(place, share))
    peak = max(promised.values())
    for place, share in shares.values():
        if max(promised[cpu] for cpu in place) == peak:
            without = {cpu: promised[cpu] - (share if cpu in place else 0) for cpu in range(count)}
            emptiest = sorted(without.values())[: len(place)]
            assert emptiest[-1] + share >= peak - 1e-6


def test_one_cpu_is_everybodys() -> None:
    assert Cpus([3]).place("a", 0.25) == {"a": None}


def test_who_goes_makes_room_for_who_stays() -> None:
    cpus = Cpus([4, 6])
    places = followed(cpus, [("a", 0.5), ("b", 0.5), ("c", 0.5), ("d", 0.5)])
    on_four = [name for name, place in places.items() if place == frozenset({4})]
    places |= followed(cpus, [(name, None) for name in on_four])
    stayed = [places[name] for name in "abcd" if name not in on_four]
    assert {frozenset({4}), frozenset({6})} == set(stayed)


def test_engines_run_where_they_are_placed(make_rig: Any) -> None:
    """Also after the cell was killed, when a size changes, and when a neighbour is gone."""
    rig: Rig = make_rig()
    told = rig.get("/v1/cell").json()["confinement"]["cpuset"]
    if not told["enforced"]:
        pytest.skip(f"cpuset is not enforced: {told['reason']}")
    everywhere = os.sched_getaffinity(0)
    if len(everywhere) < 2:
        pytest.skip("this machine has one CPU")
    ids = [rig.make() for _ in everywhere]

    def places() -> list[set[int]]:
        return [os.sched_getaffinity(rig.engine_pid(each)) for each in ids]

    assert sorted(map(sorted, places())) == [[cpu] for cpu in sorted(everywhere)]
    before = places()
    rig.kill()
    rig.start()
    for each in ids:
        rig.status_is(each, "running")
    assert sorted(map(sorted, places())) == sorted(map(sorted, before))
    larger = {**SMALL, "name": "s8", "vcpu": float(len(everywhere))}
    rig.action(ids[0], "resize", {"size": larger})
    until(lambda: places()[0] == everywhere, "a larger size has more of them")
    rig.action(ids.pop(), "erase")
    assert all(places())
