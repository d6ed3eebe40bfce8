"""Which CPUs instances get: as few as they need, evenly, and moved where that evens it out."""

import asyncio
import math
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cell.layout import Layout
from cell.runtime import cgroups, cpus
from cell.runtime.cpus import Cpus, Place
from cell.runtime.host import Host
from cell.specification import Size
from contract_tests.cell.rig import SMALL, VALKEY, Rig, until

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
    allocated = Counter(cpu for place in places.values() if place for cpu in place)
    held = [allocated[cpu] for cpu in range(count)]
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
    allocated = Counter[int]()
    for place, share in shares.values():
        allocated.update(dict.fromkeys(place, share))
    peak = max(allocated.values())
    for place, share in shares.values():
        if max(allocated[cpu] for cpu in place) == peak:
            without = {cpu: allocated[cpu] - (share if cpu in place else 0) for cpu in range(count)}
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


@pytest.fixture
def two_cpus() -> Iterator[set[int]]:
    """All that a cell which is started now has."""
    every = os.sched_getaffinity(0)
    if len(every) < 2:
        pytest.skip("this machine has one CPU")
    two = set(sorted(every)[:2])
    os.sched_setaffinity(0, two)
    yield two
    os.sched_setaffinity(0, every)


@pytest.mark.nightly
def test_engines_run_where_they_are_placed(two_cpus: set[int], make_rig: Any) -> None:
    """Also after the cell was killed, when a size changes, and when neighbours are gone."""
    rig: Rig = make_rig()
    told = rig.get("/v1/cell").json()["confinement"]["cpuset"]
    if not told["enforced"]:
        pytest.skip(f"cpuset is not enforced: {told['reason']}")
    ids = [rig.make(**VALKEY) for _ in range(4)]

    def places() -> list[set[int]]:
        return [os.sched_getaffinity(rig.engine_pid(each)) for each in ids]

    evenly = sorted([cpu] for cpu in (*two_cpus, *two_cpus))
    assert sorted(map(sorted, places())) == evenly
    rig.kill()
    rig.start()
    for each in ids:
        rig.status_is(each, "running")
    assert sorted(map(sorted, places())) == evenly
    # Where both of one CPU go, one of the other moves there.
    emptied = places()[0]
    for each in [each for each, place in zip(ids, places(), strict=True) if place == emptied]:
        ids.remove(each)
        rig.action(each, "erase")
    until(
        lambda: sorted(map(sorted, places())) == evenly[::2], "one has moved to where there is room"
    )
    larger = {**SMALL, "name": "s8", "vcpu": 2.0}
    rig.action(ids[0], "resize", {"size": larger})
    until(lambda: places()[0] >= two_cpus, "a larger size has more of them")


def version_two(root: Path, handed_on: str = "cpu cpuset memory pids") -> cgroups.Groups:
    """Groups on a tree of plain files, as version 2 would have them, of a cell in its root."""
    base = root / "cell-x"
    base.mkdir(parents=True)
    for directory in (root, base):
        (directory / "cgroup.controllers").write_text("cpu cpuset memory pids")
        (directory / "cgroup.subtree_control").write_text(handed_on)
    (root / "cgroup.procs").write_text("1\n")
    (root / "self").write_text("0::/\n")
    return cgroups.find("x", root, root / "self")


def test_an_engine_starts_anywhere_also_in_a_group_that_was_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of an engine which a killed cell left, and which ended before the next cell came."""
    groups = version_two(tmp_path / "groups")
    layout = Layout.make(tmp_path / "cell")
    host = Host(str(layout.home), "x", ("specserver",), confine=False)
    monkeypatch.setattr(host, "_groups", groups)
    # No engine runs as root.
    site = layout.site("inst_a", os.getuid() or 299_130)
    site.make(None)
    left = groups.make(site.instance_id, 2**30, 100)[0].parent
    groups.set_cpus(site.instance_id, frozenset({1}))
    program = ["/bin/sleep", "600"]
    process = asyncio.run(host.start(site, program, {}, Size("s0", 0.5, 2**30, 2**30, 10)))
    process.signal(signal.SIGKILL)
    asyncio.run(process.ended())
    assert (left / "cpuset.cpus").read_text().strip() == ""
    layout.remove_sockets()


def test_a_root_that_hands_on_all_else_hands_on_cpus_beside_others_processes(
    tmp_path: Path,
) -> None:
    groups = version_two(tmp_path / "groups", "cpu memory pids")
    assert all(means.enforced for means in groups.means.values())
    assert (tmp_path / "groups" / "cgroup.subtree_control").read_text() == "+cpuset"


@pytest.mark.parametrize("empty", ["cpus", "mems"])
def test_a_cpuset_that_nobody_could_enter_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty: str
) -> None:
    monkeypatch.setattr(cgroups, "REMOVE_FOR_S", 0.0)
    (tmp_path / "self").write_text("3:cpuset:/\n")
    own = tmp_path / "cpuset"
    own.mkdir()
    for each in ("cpus", "mems"):
        (own / f"cpuset.{each}").write_text("\n" if each == empty else "0\n")
    groups = cgroups.find("x", tmp_path, tmp_path / "self")
    assert groups.means["cpuset"].reason == "the cell's own cpuset is empty"
    assert groups.make("inst_a", 2**30, 100) == []


def test_an_engine_that_a_backup_is_read_in_weighs_a_tenth() -> None:
    assert cpus.weight("inst_01JD", 1.0, 1024) == 1024
    assert cpus.weight(f"{cpus.SCRATCH}01JD", 1.0, 1024) == 102
