"""Alterations and branches of an instance: what is refused says what to do, what fits may be."""

from dataclasses import replace

import pytest

from contract_tests.policy.test_orders import SIZES_LISTED, TERMS, only
from control.policy.catalogue import make_catalogue
from control.policy.orders import (
    Alteration,
    Order,
    branch,
    check_alteration,
    check_branch,
    settle,
)
from control.policy.plans import PLANS
from control.policy.quotas import Usage
from control.policy.sizes import GB

NOW = settle(Order("duckdb", "s2", region="eu", engine_version="1.5"), TERMS)


@pytest.mark.parametrize(
    ("asked", "pointer", "keyword", "message"),
    [
        (
            Alteration(storage_bytes=10 * GB), "/storage_bytes", "minimum",
            "storage can only grow and is 20000000000 bytes now; for less, create a new instance",
        ),
        (
            Alteration(storage_bytes=300 * GB), "/storage_bytes", "maximum",
            "size s2 holds at most 200 GB; 300 GB needs size m2 or larger",
        ),
        (
            Alteration(size="f0"), "/size", "maximum",
            "size f0 holds at most 1 GB but the instance has 20 GB; choose size s0 or larger",
        ),
        (
            Alteration(size="nope"), "/size", "enum",
            f"'nope' is not a size; choose one of {SIZES_LISTED}",
        ),
        (
            Alteration(engine_version="1.4"), "/engine_version", "minimum",
            "cannot downgrade duckdb from 1.5 to 1.4; restore a backup into a new instance instead",
        ),
        (
            Alteration(engine_version="3"), "/engine_version", "enum",
            "duckdb '3' is not available in eu; available: 1.5 and 1.4",
        ),
        (
            Alteration(placement="moon"), "/placement", "enum",
            "'moon' is not a placement; choose one of shared and secure",
        ),
        (
            Alteration(placement="secure"), "/placement", "available",
            (
                "an instance stays on its machine, and this one is for shared placement; create a"
                " new instance with secure placement and migrate the data into it"
            ),
        ),
    ],
)  # fmt: skip
def test_an_alteration_that_cannot_be(
    asked: Alteration, pointer: str, keyword: str, message: str
) -> None:
    assert only(check_alteration(NOW, asked, TERMS)) == (pointer, keyword, message)


@pytest.mark.parametrize(
    "asked",
    [
        Alteration(),
        Alteration(size="m2", storage_bytes=500 * GB),
        Alteration(size="s0"),
        Alteration(storage_bytes=20 * GB),
        Alteration(engine_version="1.5"),
        Alteration(placement="shared"),
    ],
)
def test_an_alteration_that_can_be(asked: Alteration) -> None:
    assert check_alteration(NOW, asked, TERMS) == []


def test_growth_is_held_to_what_the_plan_has_left() -> None:
    now = replace(NOW, size="s0", storage_bytes=15 * GB)
    plan = replace(PLANS["solo"], storage_bytes_max=20 * GB)
    terms = replace(TERMS, plan=plan, usage=Usage(instances=1, storage_bytes=15 * GB))
    assert check_alteration(now, Alteration(storage_bytes=20 * GB), terms) == []
    grown = Alteration(size="s1", storage_bytes=21 * GB)
    assert only(check_alteration(now, grown, terms)) == (
        "/storage_bytes",
        "quota",
        (
            "the solo plan allows 20 GB of storage in total and 5 GB is left; ask for less, delete "
            "an instance or change the plan"
        ),
    )


def test_a_version_that_no_cell_has_any_more_stays_and_cannot_be_chosen() -> None:
    old = replace(NOW, engine_version="1.3")
    assert check_alteration(old, Alteration(engine_version="1.3"), TERMS) == []
    assert check_alteration(old, Alteration(engine_version="1.4"), TERMS) == []
    gone = replace(TERMS, catalogue=make_catalogue([]))
    assert only(check_alteration(old, Alteration(engine_version="1.4"), gone)) == (
        "/engine_version",
        "enum",
        "duckdb '1.4' is not available in eu; available: none now",
    )


def test_a_branch_is_as_its_source_but_for_what_is_asked() -> None:
    assert branch(NOW, Alteration()) == NOW
    grown = branch(NOW, Alteration(size="m2", storage_bytes=300 * GB))
    assert grown == replace(NOW, size="m2", storage_bytes=300 * GB)


@pytest.mark.parametrize(
    ("asked", "pointer", "keyword", "message"),
    [
        (
            Alteration(storage_bytes=15 * GB), "/storage_bytes", "minimum",
            "it needs at least the storage of its source, 20000000000 bytes",
        ),
        (
            Alteration(storage_bytes=205 * GB), "/storage_bytes", "maximum",
            "size s2 holds at most 200 GB; 205 GB needs size m2 or larger",
        ),
        (
            Alteration(size="f0"), "/size", "maximum",
            "size f0 holds at most 1 GB but the instance has 20 GB; choose size s0 or larger",
        ),
        (
            Alteration(size="s9"), "/size", "enum",
            f"'s9' is not a size; choose one of {SIZES_LISTED}",
        ),
    ],
)  # fmt: skip
def test_a_branch_that_cannot_be(
    asked: Alteration, pointer: str, keyword: str, message: str
) -> None:
    assert only(check_branch(NOW, asked, TERMS)) == (pointer, keyword, message)


@pytest.mark.parametrize(
    "asked",
    [
        Alteration(),
        Alteration(size="s0"),
        Alteration(storage_bytes=20 * GB),
        Alteration(storage_bytes=200 * GB),
        Alteration(size="m2", storage_bytes=300 * GB),
    ],
)
def test_a_branch_that_can_be(asked: Alteration) -> None:
    assert check_branch(NOW, asked, TERMS) == []


def test_a_branch_is_an_order_of_an_instance_more() -> None:
    terms = replace(
        TERMS, plan=PLANS["team"], usage=Usage(instances=100, storage_bytes=50_000 * GB)
    )
    source = replace(NOW, engine_version="1.3", placement="secure")
    keywords = [
        (one["pointer"], one["keyword"]) for one in check_branch(source, Alteration(), terms)
    ]
    assert keywords == [
        ("/engine_version", "enum"),
        ("/placement", "plan"),
        ("", "quota"),
        ("/storage_bytes", "quota"),
    ]
