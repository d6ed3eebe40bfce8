"""When a policy asks for approval: exactly where it says, whatever the order, and no more wait."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.policy import approvals, permissions, quotas, rights
from control.policy.approvals import Asked, Policy
from control.policy.price_lists import packaged
from control.policy.prices import BEGINNING, amount
from control.policy.rights import Rights
from control.policy.sizes import GB, SIZES

NAMES = list(SIZES)
CENTS = st.integers(0, 300_000)
POLICIES = st.builds(
    Policy,
    every_order=st.booleans(),
    above_size=st.none() | st.sampled_from(NAMES),
    above_monthly_cost_cents=st.none() | CENTS,
    over_budget=st.booleans(),
)
ASKED = st.builds(
    Asked,
    size=st.sampled_from(NAMES),
    cost_cents=CENTS,
    rest_cents=CENTS,
    budget_cents=st.none() | CENTS,
)


def rules(policy: Policy, asked: Asked) -> list[str]:
    return [reason["rule"] for reason in approvals.reasons(policy, asked)]


@given(policy=POLICIES, asked=ASKED)
def test_it_asks_where_it_says_and_nowhere_else(policy: Policy, asked: Asked) -> None:
    cost = asked.cost_cents
    expected = {
        "every_order": policy.every_order,
        "above_size": policy.above_size is not None
        and NAMES.index(asked.size) > NAMES.index(policy.above_size),
        "above_monthly_cost": policy.above_monthly_cost_cents is not None
        and cost > policy.above_monthly_cost_cents,
        "over_budget": policy.over_budget
        and asked.budget_cents is not None
        and cost > 0
        and asked.rest_cents + cost > asked.budget_cents,
    }
    assert rules(policy, asked) == [rule for rule, holds in expected.items() if holds]


@given(policy=POLICIES, asked=ASKED, more=CENTS)
def test_a_larger_order_is_never_asked_for_less(policy: Policy, asked: Asked, more: int) -> None:
    larger = replace(asked, cost_cents=asked.cost_cents + more)
    assert set(rules(policy, asked)) <= set(rules(policy, larger))


@given(asked=ASKED)
def test_nothing_is_asked_by_itself(asked: Asked) -> None:
    assert Policy().is_never
    assert rules(Policy(), asked) == []


@given(policy=POLICIES)
def test_a_policy_is_kept_whole(policy: Policy) -> None:
    assert Policy.of(policy.as_json()) == policy
    # What a later release has put there is no fault of this one.
    assert Policy.of({**policy.as_json(), "from_later": 1}) == policy
    assert Policy.of(None) == Policy.of({}) == Policy()


def test_the_bounds_themselves_are_free() -> None:
    cost = 1_500
    policy = Policy(above_size="s1", above_monthly_cost_cents=cost, over_budget=True)
    assert rules(policy, Asked("s1", cost, 500, cost + 500)) == []
    assert rules(policy, Asked("s1", cost, 501, cost + 500)) == ["over_budget"]
    assert rules(policy, Asked("s1", cost + 1, 0, cost + 500)) == ["above_monthly_cost"]
    assert "above_size" in rules(policy, Asked("s2", cost))


def test_a_size_that_is_gone_bounds_nothing_less() -> None:
    assert rules(Policy(above_size="q7"), Asked("f0", 0)) == ["above_size"]


def test_free_instances_exceed_no_budget() -> None:
    policy = Policy(over_budget=True)
    assert rules(policy, Asked("f0", 0, 5_000, 1_000)) == []
    assert rules(policy, Asked("s0", 1, 5_000, 1_000)) == ["over_budget"]


@pytest.mark.parametrize(
    ("asked", "than", "larger"),
    [
        (("s1", 5), ("s0", 5), True),
        (("s0", 6), ("s0", 5), True),
        (("s0", 6), ("s1", 5), True),
        (("s1", 4), ("s0", 5), True),
        (("s0", 5), ("s0", 5), False),
        (("s0", 5), ("s1", 5), False),
        (("f0", 4), ("s1", 5), False),
    ],
)
def test_what_is_larger_in_any_way_is_larger(asked: Any, than: Any, larger: bool) -> None:
    assert approvals.is_larger(asked, than=than) is larger


def test_costs_add_up() -> None:
    prices = packaged().at(BEGINNING)
    assert approvals.cost_cents(prices, []) == 0
    held = [("eu", "f0", GB), ("eu", "s0", 5 * GB), ("eu", "s0", 7 * GB)]
    assert approvals.cost_cents(prices, held) == 2_000 + 24
    assert [amount(cents, "EUR") for cents in (0, 5, 123_456, -50)] == [
        "0.00 EUR",
        "0.05 EUR",
        "1,234.56 EUR",
        "-0.50 EUR",
    ]


@pytest.mark.parametrize(
    ("policy", "budget", "pointers"),
    [
        (Policy(), None, []),
        (Policy(every_order=True, above_size="l16", over_budget=True), 0, []),
        (Policy(above_size="xl32"), None, ["/approval_policy/above_size"]),
        (Policy(above_size="nope"), None, ["/approval_policy/above_size"]),
        (Policy(over_budget=True), None, ["/approval_policy/over_budget"]),
        (
            Policy(above_size="c1", over_budget=True),
            None,
            ["/approval_policy/above_size", "/approval_policy/over_budget"],
        ),
    ],
)
def test_what_is_wrong_with_a_policy(policy: Policy, budget: int | None, pointers: Any) -> None:
    found = approvals.check_policy(policy, budget)
    assert [each["pointer"] for each in found] == pointers


@pytest.mark.parametrize(
    ("of_org", "own", "said"),
    [
        (0, 0, ""),
        (quotas.APPROVALS_MAX - 1, quotas.APPROVALS_OF_ONE_MAX - 1, ""),
        (1_000, quotas.APPROVALS_OF_ONE_MAX, "20 of your orders"),
        (quotas.APPROVALS_MAX, 0, "200 orders of the organization"),
    ],
)
def test_how_many_may_wait(of_org: int, own: int, said: str) -> None:
    found = quotas.check_one_more_approval(of_org, own)
    assert [each["keyword"] for each in found] == (["quota"] if said else [])
    assert all(each["message"].startswith(said) for each in found)


@pytest.mark.parametrize("role", list(permissions.ROLES))
def test_who_sees_the_orders_of_others(role: str) -> None:
    roles = rights.HeldRoles(role, team_roles={"blue": "admin", "red": "operator"})
    held = rights.of_member(roles, permissions.DEFAULTS, everyone="e")
    seen = approvals.seen_in(held)
    assert seen == (None if role in permissions.EVERY_TEAM else {"blue"})


def test_a_key_without_those_scopes_sees_its_owners_alone() -> None:
    everything = Rights(permissions.ALL)
    assert approvals.seen_in(everything.cut(frozenset({"approvals:read"}))) == frozenset()
    assert approvals.seen_in(everything.cut(frozenset({"approvals:decide"}))) is None
