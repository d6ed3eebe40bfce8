"""Sizes, plans and prices: the published figures."""

from itertools import pairwise

import pytest

from control.policy.plans import PLANS
from control.policy.price_lists import packaged
from control.policy.prices import BEGINNING
from control.policy.sizes import GB, OTHER_SIZES, SIZES, Size

PRICES = packaged().at(BEGINNING)
# name, vCPU, memory MiB, largest storage GB, connections, USD a month
PUBLISHED = [
    ("f0", 0.063, 512, 1, 20, 0),
    ("s0", 0.25, 1024, 20, 60, 10),
    ("s1", 0.5, 2048, 50, 100, 15),
    ("s2", 1, 4096, 200, 200, 60),
    ("m2", 2, 8192, 500, 400, 110),
    ("m4", 4, 16384, 1000, 800, 210),
    ("l8", 8, 32768, 4000, 1500, 410),
    ("l16", 16, 65536, 8000, 3000, 960),
    ("xl32", 32, 131072, 16000, 5000, 1870),
]


def test_the_nine_sizes_have_the_published_figures() -> None:
    figures = [
        (
            size.name,
            size.vcpu,
            size.memory_bytes // 2**20,
            size.storage_bytes_max // 10**9,
            size.connections_max,
            PRICES.instance_month_cents(None, size.name, size.storage_bytes_included) // 100,
        )
        for size in SIZES.values()
    ]
    assert figures == PUBLISHED


def test_the_other_families_are_listed() -> None:
    names = [size.name for size in OTHER_SIZES]
    assert names == ["c0", "c1", "c2", "c3", "w1", "w2", "w3", "x1", "x2", "x4"]


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_included_and_largest_storage_are_whole_steps(size: Size) -> None:
    assert size.storage_bytes_included % size.storage_step_bytes == 0
    assert size.storage_bytes_max % size.storage_step_bytes == 0
    assert size.storage_step_bytes <= size.storage_bytes_included <= size.storage_bytes_max


def test_plans_only_grow() -> None:
    plans = list(PLANS.values())
    for smaller, larger in pairwise(plans):
        assert set(smaller.sizes) <= set(larger.sizes)
        assert set(smaller.placements) <= set(larger.placements)
        assert smaller.retention_days <= larger.retention_days
        for quota in ("seats_max", "projects_max", "instances_max", "storage_bytes_max"):
            less, more = getattr(smaller, quota), getattr(larger, quota)
            assert more is None or (less is not None and less <= more), quota


def test_the_free_plan_is_f0_only_and_secure_placement_is_not_for_all() -> None:
    assert PLANS["free"].sizes == ("f0",)
    assert [plan.id for plan in PLANS.values() if "secure" in plan.placements] == ["enterprise"]


def test_a_month_is_the_size_and_every_started_gigabyte_beyond_what_it_includes() -> None:
    included = SIZES["s0"].storage_bytes_included
    for storage_bytes, cents in ((1, 1_000), (included, 1_000), (included + 1, 1_012)):
        assert PRICES.instance_month_cents("eu", "s0", storage_bytes) == cents
    assert PRICES.instance_month_cents("eu", "s0", included + 2 * GB) == 1_024
    assert PRICES.instance_month_cents("eu", "f0", 1 * GB) == 0
