"""Orders: every violation at once, each saying what to do; and what a valid order comes to."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.policy.catalogue import CellReport, make_catalogue
from control.policy.orders import (
    Alteration,
    Order,
    Terms,
    check_alteration,
    check_order,
    preview,
    settle,
)
from control.policy.plans import PLANS
from control.policy.quotas import Usage
from control.policy.sizes import GB, SIZES
from control.policy.violations import Violation

CATALOGUE = make_catalogue(
    [
        CellReport("eu", {"duckdb": ("1.5", "1.4"), "postgres": ("18", "16")}),
        CellReport("us", {"duckdb": ("1.5",)}),
    ]
)
TERMS = Terms(CATALOGUE, PLANS["enterprise"], default_region="us", baa_signed=True)
FREE = Terms(CATALOGUE, PLANS["free"])
GOOD = Order("duckdb", "s1")


def only(found: list[Violation]) -> tuple[str, str, str]:
    assert len(found) == 1, found
    return found[0]["pointer"], found[0]["keyword"], found[0]["message"]


def test_what_is_left_out_is_chosen() -> None:
    settled = settle(GOOD, TERMS)
    assert (settled.region, settled.engine_version) == ("us", "1.5")
    assert settled.storage_bytes == SIZES["s1"].storage_bytes_included
    assert settle(Order("postgres", "s1"), TERMS).region == "eu"
    assert check_order(GOOD, TERMS) == []


@pytest.mark.parametrize(
    ("order", "terms", "pointer", "keyword", "said"),
    [
        (replace(GOOD, engine="oracle"), TERMS, "/engine", "enum", "postgres, timescaledb"),
        (replace(GOOD, engine="qdrant"), TERMS, "/engine", "available", "postgres and duckdb"),
        (replace(GOOD, engine_version="2.0"), TERMS, "/engine_version", "enum", "one of 1.5"),
        (replace(GOOD, region="mars"), TERMS, "/region", "enum", "available: eu and us"),
        (
            Order("postgres", "s1", region="us"), TERMS, "/region", "available", "choose one of eu",
        ),
        (replace(GOOD, size="s9"), TERMS, "/size", "enum", "f0, s0, s1"),
        (replace(GOOD, size="w1"), TERMS, "/size", "enum", "is of the workspace family"),
        (replace(GOOD, size="s0"), FREE, "/size", "plan", "needs the plan solo, team or enter"),
        (replace(GOOD, placement="moon"), TERMS, "/placement", "enum", "shared and secure"),
        (
            replace(GOOD, placement="secure"), replace(TERMS, baa_signed=False),
            "/placement", "baa", "needs a signed BAA",
        ),
        (
            replace(GOOD, placement="secure"), replace(TERMS, plan=PLANS["team"]),
            "/placement", "plan", "needs the plan enterprise",
        ),
        (
            replace(GOOD, storage_bytes=60 * GB), TERMS,
            "/storage_bytes", "maximum", "at most 50 GB; 60 GB needs size s2 or larger",
        ),
        (replace(GOOD, storage_bytes=5), TERMS, "/storage_bytes", "minimum", "at least 1 GB"),
        (
            replace(GOOD, storage_bytes=GB + 1), TERMS,
            "/storage_bytes", "multipleOf", "1000000000 and 2000000000",
        ),
        (
            Order("duckdb", "f0"), replace(FREE, usage=Usage(instances=2)),
            "", "quota", "allows 2 instances and you have 2",
        ),
        (
            Order("duckdb", "f0"), replace(FREE, usage=Usage(storage_bytes=2 * GB)),
            "/storage_bytes", "quota", "0 GB is left",
        ),
        (
            Order("duckdb", "f0"), replace(FREE, usage=Usage(gone=10, gone_storage_bytes=GB)),
            "", "quota", "erase one of them",
        ),
        (
            Order("duckdb", "f0"), replace(FREE, usage=Usage(gone=2, gone_storage_bytes=10 * GB)),
            "", "quota", "still hold 10 GB",
        ),
    ],
)  # fmt: skip
def test_a_violation_says_where_and_what_to_do(
    order: Order, terms: Terms, pointer: str, keyword: str, said: str
) -> None:
    found_pointer, found_keyword, message = only(check_order(order, terms))
    assert (found_pointer, found_keyword) == (pointer, keyword)
    assert said in message


def test_every_violation_is_given_at_once() -> None:
    order = Order("qdrant", "xl32", region="mars", placement="secure", storage_bytes=7)
    terms = replace(FREE, usage=Usage(instances=9))
    keywords = {(one["pointer"], one["keyword"]) for one in check_order(order, terms)}
    assert keywords == {
        ("/region", "enum"),
        ("/engine", "available"),
        ("/size", "plan"),
        ("/placement", "plan"),
        ("/placement", "baa"),
        ("/storage_bytes", "minimum"),
        ("", "quota"),
    }


def test_a_preview_tells_cost_and_what_is_left() -> None:
    terms = replace(FREE, usage=Usage(instances=1, storage_bytes=GB))
    assert preview(Order("duckdb", "f0"), terms) == {
        "engine_version": "1.5",
        "region": "eu",
        "storage_bytes": GB,
        "cost_usd_cents_per_month": 0,
        "quota_left": {"instances": 0, "storage_bytes": 0},
        "approval_required": False,
    }
    dear = preview(replace(GOOD, storage_bytes=20 * GB), TERMS)
    assert dear["cost_usd_cents_per_month"] == 1_500 + 10 * 12
    assert dear["quota_left"] == {"instances": None, "storage_bytes": None}


NOW = settle(Order("duckdb", "s2", region="eu", engine_version="1.5"), TERMS)


@pytest.mark.parametrize(
    ("asked", "pointer", "keyword"),
    [
        (Alteration(storage_bytes=10 * GB), "/storage_bytes", "minimum"),
        (Alteration(storage_bytes=300 * GB), "/storage_bytes", "maximum"),
        (Alteration(size="f0"), "/size", "maximum"),
        (Alteration(size="nope"), "/size", "enum"),
        (Alteration(engine_version="1.4"), "/engine_version", "minimum"),
        (Alteration(engine_version="3"), "/engine_version", "enum"),
        (Alteration(placement="moon"), "/placement", "enum"),
    ],
)
def test_an_alteration_that_cannot_be(asked: Alteration, pointer: str, keyword: str) -> None:
    assert only(check_alteration(NOW, asked, TERMS))[:2] == (pointer, keyword)


@pytest.mark.parametrize(
    "asked",
    [
        Alteration(),
        Alteration(size="m2", storage_bytes=500 * GB),
        Alteration(size="s1"),
        Alteration(engine_version="1.5"),
        Alteration(placement="secure"),
    ],
)
def test_an_alteration_that_can_be(asked: Alteration) -> None:
    assert check_alteration(NOW, asked, TERMS) == []


words = st.text(max_size=8)
orders = st.builds(
    Order,
    engine=st.sampled_from(["duckdb", "postgres", "qdrant"]) | words,
    size=st.sampled_from(sorted(SIZES)) | words,
    engine_version=st.none() | st.sampled_from(["1.5", "18"]) | words,
    region=st.none() | st.sampled_from(["eu", "us"]) | words,
    placement=st.sampled_from(["shared", "secure"]) | words,
    storage_bytes=st.none() | st.integers(0, 2**50) | st.integers(1, 100).map(lambda n: n * GB),
)
terms = st.builds(
    Terms,
    catalogue=st.just(CATALOGUE) | st.just(make_catalogue([])),
    plan=st.sampled_from(list(PLANS.values())),
    usage=st.builds(Usage, st.integers(0, 5), st.integers(0, 4 * GB)),
    default_region=st.none() | st.sampled_from(["eu", "us"]) | words,
    baa_signed=st.booleans(),
)


@given(order=orders, terms=terms)
def test_no_order_breaks_the_rules_and_what_passes_can_be_carried_out(
    order: Order, terms: Terms
) -> None:
    found = check_order(order, terms)
    assert all(one["message"] and one["pointer"][:1] in ("", "/") for one in found)
    if not found:
        settled, plan = settle(order, terms), terms.plan
        assert settled.engine_version in terms.catalogue.versions(
            order.engine, settled.region or ""
        )
        assert order.size in plan.sizes
        assert order.placement in plan.placements
        assert GB <= (settled.storage_bytes or 0) <= SIZES[order.size].storage_bytes_max
        left = preview(order, terms)["quota_left"].values()
        assert all(one is None or one >= 0 for one in left)
