"""What tests of approvals ask for again and again: a team with a policy, and orders for it."""

from dataclasses import dataclass
from typing import Any

import httpx

from contract_tests import written
from contract_tests.api.access.team_helpers import in_team, team
from contract_tests.api.harness import House, Person, Tenant

REASON = {"reason": "for the launch"}


@dataclass(frozen=True)
class Site:
    """A team with a project, somebody who may order there, and somebody who leads it."""

    tenant: Tenant
    team: str
    project_id: str
    operator: Person
    lead: Person

    @property
    def orders(self) -> str:
        return f"{self.tenant.path}/projects/{self.project_id}/instances"

    @property
    def team_id(self) -> str:
        return self.team.rpartition("/")[2]


def site(house: House, policy: dict[str, Any] | None = None, **of_team: Any) -> Site:
    """By default every order needs approval."""
    tenant = house.tenant()
    chosen = {"every_order": True} if policy is None else policy
    path = team(house, tenant, approval_policy=chosen, **of_team)
    body = {"name": "Of the team", "team_id": path.rpartition("/")[2]}
    project = house.post(f"{tenant.path}/projects", tenant.key, json=body).json()
    operator, lead = (in_team(house, tenant, path, role) for role in ("operator", "admin"))
    return Site(tenant, path, project["id"], operator, lead)


def order(house: House, at: Site, token: str, **body: Any) -> httpx.Response:
    return house.post(at.orders, token, json={"engine": "duckdb", "size": "s0", **body})


def asked(house: House, at: Site, **body: Any) -> str:
    """The path of an order of the operator that waits."""
    answer = order(house, at, at.operator.session, **body)
    assert answer.status_code == 202, answer.text
    return str(answer.headers["location"])


def placed(house: House, at: Site, **body: Any) -> str:
    """The path of an instance of the team that its lead ordered, and that runs."""
    answer = order(house, at, at.lead.session, **body)
    assert answer.status_code == 201, answer.text
    house.settle()
    return str(answer.headers["location"])


def decide(
    house: House, path: str, verb: str, token: str, body: Any = None, **options: Any
) -> httpx.Response:
    return house.post(f"{path}/actions/{verb}", token, json=body or REASON, **options)


def instances(house: House, at: Site) -> list[str]:
    listed = house.get(at.orders, at.tenant.key).json()["items"]
    return [each["id"] for each in listed]


def kinds(house: House, at: Site) -> list[str]:
    with house.database.read() as db:
        return [one.type for one in written.events_of(db, at.tenant.org_id)]


def id_of(path: str) -> str:
    return path.rpartition("/")[2]


def letters_to(house: House, person: Person) -> list[str]:
    house.settle()
    return [letter.text for letter in house.letters.sent.values() if letter.to == person.email]
