"""Orders: every violation at once, each saying what to do; and what a valid order comes to."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.policy.catalogue import CellReport, make_catalogue
from control.policy.orders import (
    Order,
    Terms,
    check_order,
    preview,
    settle,
)
from control.policy.plans import PLANS
from control.policy.price_lists import packaged
from control.policy.prices import BEGINNING
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


SIZES_LISTED = "f0, s0, s1, s2, m2, m4, l8, l16 and xl32"


@pytest.mark.parametrize(
    ("order", "terms", "pointer", "keyword", "message"),
    [
        (
            replace(GOOD, engine="oracle"), TERMS, "/engine", "enum",
            ("'oracle' is not an engine; choose one of postgres, timescaledb, questdb, mysql, "
            "mariadb, valkey, redis, ferretdb, mongodb, meilisearch, duckdb, clickhouse, qdrant "
            "and weaviate"),
        ),
        (
            replace(GOOD, engine="weaviate"), TERMS, "/engine", "available",
            ("weaviate is not available yet: this version of Menagerie cannot run Weaviate yet; it "
            "will run from a container image that the operator provides; available engines: "
            "postgres and duckdb"),
        ),
        (
            replace(GOOD, engine_version="2.0"), TERMS, "/engine_version", "enum",
            "duckdb '2.0' is not available in us; choose one of 1.5",
        ),
        (
            replace(GOOD, region="mars"), TERMS, "/region", "enum",
            "'mars' is not a region; available: eu and us",
        ),
        (
            Order("postgres", "s1", region="us"), TERMS, "/region", "available",
            "postgres is not available in us; choose one of eu",
        ),
        (
            replace(GOOD, size="s9"), TERMS, "/size", "enum",
            f"'s9' is not a size; choose one of {SIZES_LISTED}",
        ),
        (
            replace(GOOD, size="w1"), TERMS, "/size", "enum",
            ("size 'w1' is of the workspace family, not for instances; choose one of "
            f"{SIZES_LISTED}"),
        ),
        (
            replace(GOOD, size="s0"), FREE, "/size", "plan",
            ("the free plan does not offer size s0; it offers f0, and s0 needs the plan solo, team "
            "or enterprise"),
        ),
        (
            replace(GOOD, placement="moon"), TERMS, "/placement", "enum",
            "'moon' is not a placement; choose one of shared and secure",
        ),
        (
            replace(GOOD, placement="secure"), replace(TERMS, baa_signed=False),
            "/placement", "baa",
            (
                "secure placement needs a signed BAA; ask an owner of the organization to sign it"
                " (`GET …/compliance` shows the text, `POST …/compliance/baa/sign` signs it)"
            ),
        ),
        (
            replace(GOOD, placement="secure"), replace(TERMS, is_offered=False),
            "/placement", "available",
            "no cell offers secure placement; `GET /v1/regions` shows what is offered",
        ),
        (
            replace(GOOD, placement="secure", region="moon"), TERMS, "/region", "enum",
            "'moon' is not a region with secure cells; available: eu and us",
        ),
        (
            replace(GOOD, placement="secure"), replace(TERMS, plan=PLANS["team"]),
            "/placement", "plan",
            "the team plan does not offer secure placement; it needs the plan enterprise",
        ),
        (
            replace(GOOD, storage_bytes=60 * GB), TERMS, "/storage_bytes", "maximum",
            "size s1 holds at most 50 GB; 60 GB needs size s2 or larger",
        ),
        (
            replace(GOOD, storage_bytes=51 * GB), TERMS, "/storage_bytes", "maximum",
            "size s1 holds at most 50 GB; 51 GB needs size s2 or larger",
        ),
        (
            replace(GOOD, storage_bytes=200 * GB), TERMS, "/storage_bytes", "maximum",
            "size s1 holds at most 50 GB; 200 GB needs size s2 or larger",
        ),
        (
            replace(GOOD, storage_bytes=16_001 * GB), TERMS, "/storage_bytes", "maximum",
            "size s1 holds at most 50 GB; 16001 GB needs more than the largest size",
        ),
        (
            replace(GOOD, storage_bytes=5), TERMS, "/storage_bytes", "minimum",
            "size s1 needs at least 1 GB of storage",
        ),
        (
            replace(GOOD, size="s2", storage_bytes=11 * GB), TERMS,
            "/storage_bytes", "multipleOf",
            ("storage of size s2 must be a multiple of 5 GB (5000000000 bytes); the nearest values "
            "are 10000000000 and 15000000000 bytes"),
        ),
        (
            Order("duckdb", "f0"), replace(FREE, usage=Usage(instances=2)), "", "quota",
            "the free plan allows 2 instances and you have 2; delete one or change the plan",
        ),
        (
            Order("duckdb", "f0"), replace(FREE, usage=Usage(storage_bytes=2 * GB)),
            "/storage_bytes", "quota",
            ("the free plan allows 2 GB of storage in total and 0 GB is left; ask for less, delete "
            "an instance or change the plan"),
        ),
    ],
)  # fmt: skip
def test_a_violation_says_where_and_what_to_do(
    order: Order, terms: Terms, pointer: str, keyword: str, message: str
) -> None:
    assert only(check_order(order, terms)) == (pointer, keyword, message)


@pytest.mark.parametrize("storage_bytes", [GB, 50 * GB])
def test_storage_may_be_the_least_and_the_most_of_a_size(storage_bytes: int) -> None:
    assert check_order(replace(GOOD, storage_bytes=storage_bytes), TERMS) == []


def test_before_any_cell_has_reported_an_order_says_so() -> None:
    found = check_order(replace(GOOD, region="eu"), Terms(make_catalogue([]), PLANS["team"]))
    assert [(one["pointer"], one["keyword"], one["message"]) for one in found] == [
        ("/region", "enum", "'eu' is not a region; available: none yet"),
        (
            "/engine",
            "available",
            (
                "duckdb is not available yet: no cell has reported yet whether it can run DuckDB; "
                "check that a cell is running; available engines: none yet"
            ),
        ),
    ]
    assert settle(GOOD, Terms(make_catalogue([]), PLANS["team"])).region is None


def test_what_a_size_includes_is_no_fault_of_its_own_where_the_size_is_one() -> None:
    """Nobody asked for that storage: to ask for less of it would help nothing."""
    full = replace(FREE, usage=Usage(storage_bytes=2 * GB))
    assert [one["keyword"] for one in check_order(GOOD, full)] == ["plan"]
    asked = check_order(replace(GOOD, storage_bytes=10 * GB), full)
    assert [one["keyword"] for one in asked] == ["plan", "quota"]
    unknown = replace(GOOD, size="s9", storage_bytes=5)
    assert [one["keyword"] for one in check_order(unknown, TERMS)] == ["enum"]


def test_the_region_is_where_the_engine_runs_and_else_any() -> None:
    assert settle(Order("qdrant", "s1"), TERMS).region == "eu"
    elsewhere = replace(TERMS, default_region="mars")
    assert settle(GOOD, elsewhere).region == "eu"
    chosen = settle(replace(GOOD, region="eu", engine_version="1.4"), TERMS)
    assert (chosen.region, chosen.engine_version) == ("eu", "1.4")
    assert settle(replace(GOOD, storage_bytes=3 * GB), TERMS).storage_bytes == 3 * GB


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


PRICES = packaged().at(BEGINNING)


def test_a_preview_tells_cost_and_what_is_left() -> None:
    terms = replace(FREE, usage=Usage(instances=1, storage_bytes=GB))
    assert preview(Order("duckdb", "f0"), terms, PRICES) == {
        "engine_version": "1.5",
        "region": "eu",
        "storage_bytes": GB,
        "cost_usd_cents_per_month": 0,
        "quota_left": {"instances": 0, "storage_bytes": 0},
    }
    first = preview(Order("duckdb", "f0"), FREE, PRICES)
    assert first["quota_left"] == {"instances": 1, "storage_bytes": GB}
    dear = preview(replace(GOOD, storage_bytes=20 * GB), TERMS, PRICES)
    assert dear["cost_usd_cents_per_month"] == 1_500 + 10 * 12
    assert dear["quota_left"] == {"instances": None, "storage_bytes": None}


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
        left = preview(order, terms, PRICES)["quota_left"].values()
        assert all(one is None or one >= 0 for one in left)
