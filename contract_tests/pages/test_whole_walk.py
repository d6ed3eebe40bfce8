"""The walk of a newcomer to the end: from the letter, in a browser, to an instance that is paid."""

import email
import mailbox
import re
from dataclasses import dataclass
from email import policy

import pytest

from contract_tests.api.harness import House, Person, Tenant
from contract_tests.pages import test_in_chromium
from contract_tests.pages.visiting import NEW_PASSWORD, Visitor

# Of a house whose letters lie in a folder, and a browser at it.
visitor = test_in_chromium.visitor
ADDRESS = "grace.hopper@example.com"
BUDGET_CENTS = 50_000
DAY_S = 86_400


@dataclass(frozen=True)
class Team:
    """Whose orders above a size need approval by its lead."""

    path: str
    orders: str
    lead: Person


def team_of(house: House, tenant: Tenant) -> Team:
    body = {
        "name": "Storefront",
        "monthly_budget_cents": BUDGET_CENTS,
        "approval_policy": {"above_size": "f0"},
    }
    made = house.post(f"{tenant.path}/teams", tenant.key, json=body)
    assert made.status_code == 201, made.text
    lead = house.member(tenant.org_id, "member")
    path = str(made.headers["location"])
    put(house, tenant, path, lead.id, "admin")
    project = {"name": "Shop", "team_id": made.json()["id"]}
    shop = house.post(f"{tenant.path}/projects", tenant.key, json=project)
    return Team(path, f"{shop.headers['location']}/instances", lead)


def put(house: House, tenant: Tenant, path: str, user_id: str, role: str) -> None:
    where = f"{path}/members/{user_id}"
    answer = house.request("PUT", where, tenant.key, json={"role": role})
    assert answer.status_code == 200, answer.text


def letters_to(visitor: Visitor, address: str) -> list[str]:
    """Oldest first; each with its subject as the first line."""
    visitor.house.settle()
    box = mailbox.Maildir(visitor.mail, create=False)
    read = [
        email.message_from_bytes(box.get_bytes(one), policy=policy.default)
        for one in sorted(box.keys())
    ]
    return [f"{one['subject']}\n{one.get_content()}" for one in read if one["to"] == address]


def join(visitor: Visitor, link: str) -> None:
    """In the browser, from the link in a letter to an account, and signed in to it anew."""
    visitor.open(link)
    visitor.enter(name="Grace Hopper", password=NEW_PASSWORD)
    visitor.press("Create account and join")
    assert "Analytical Engines" in visitor.driver.page_source
    visitor.press("Sign out")
    visitor.enter(email=ADDRESS, password=NEW_PASSWORD)
    visitor.submit_by_keyboard()
    assert "Analytical Engines" in visitor.driver.page_source


@pytest.mark.nightly
def test_a_newcomer_joins_orders_and_is_paid_for(visitor: Visitor) -> None:
    house = visitor.house
    tenant = house.tenant("Analytical Engines")
    storefront = team_of(house, tenant)
    invited = {"email": ADDRESS, "role": "member"}
    assert house.post(f"{tenant.path}/invites", tenant.key, json=invited).status_code == 201

    join(visitor, visitor.newest_link())

    # Elsewhere with the same password: a session of the API, and a key of their own.
    signed_in = house.post("/v1/sessions", json={"email": ADDRESS, "password": NEW_PASSWORD})
    session = signed_in.json()["token"]
    me = house.get("/v1/me", session).json()
    order = {"engine": "duckdb", "size": "s0", "name": "sales"}
    assert house.post(storefront.orders, session, json=order).status_code == 404
    put(house, tenant, storefront.path, me["user"]["id"], "operator")
    asked = house.post(storefront.orders, session, json=order)
    assert asked.status_code == 202, asked.text
    assert house.get(storefront.orders, session).json()["items"] == []

    # The lead is told, and decides.
    (letter,) = letters_to(visitor, storefront.lead.email)
    assert letter.startswith('Approval needed in the organization "Analytical Engines"')
    found = re.search(r"approvals approve (apr_\w+)", letter)
    assert found is not None
    approval = f"{tenant.path}/approvals/{found.group(1)}"
    own = house.post(f"{approval}/actions/approve", session, json={"reason": "mine"})
    assert own.status_code == 403, own.text
    decided = house.post(f"{approval}/actions/approve", storefront.lead.session, json={})
    assert decided.status_code == 200, decided.text

    # It runs, Grace is told, and the budget of the team shows what it costs.
    assert any("approved" in one for one in letters_to(visitor, ADDRESS))
    (instance,) = house.get(storefront.orders, session).json()["items"]
    assert (instance["name"], instance["status"]) == ("sales", "running")
    house.pass_time(DAY_S)
    while house.now().day == 1:
        # The month has begun anew, and with it what is spent.
        house.pass_time(DAY_S)
    renewed = house.session(me["user"]["id"])
    budget = house.get(f"{storefront.path}/budget", renewed).json()
    assert budget["live_instances"] == 1
    assert 0 < budget["month_to_date_cents"] <= budget["forecast_cents"]
    assert budget["monthly_budget_cents"] == BUDGET_CENTS
