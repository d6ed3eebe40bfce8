"""What tests of teams ask for again and again."""

from typing import Any

import httpx

from contract_tests import written
from contract_tests.api.harness import House, Person, Tenant
from storage.access import memberships, teams


def team(house: House, tenant: Tenant, name: str = "Blue", **body: Any) -> str:
    """The path of a new team."""
    made = house.post(f"{tenant.path}/teams", tenant.key, json={"name": name, **body})
    assert made.status_code == 201, made.text
    return str(made.headers["location"])


def everyone(tenant: Tenant) -> str:
    """The path of the team Everyone."""
    return f"{tenant.path}/teams/{teams.everyone_of(tenant.org_id)}"


def put(house: House, path: str, token: str, person: Person, role: str | None) -> httpx.Response:
    body = {} if role is None else {"role": role}
    return house.request("PUT", f"{path}/members/{person.id}", token, json=body)


def outsider(house: House, tenant: Tenant, role: str = "member") -> Person:
    """A member of the organization who is in no team."""
    person = house.member(tenant.org_id, role)
    with house.database.write() as db:
        memberships.fetch(db, tenant.org_id, person.id).teams_only = True
    return person


def in_team(house: House, tenant: Tenant, path: str, role: str) -> Person:
    """A member of the organization who is in this team and in no other."""
    person = outsider(house, tenant)
    assert put(house, path, tenant.key, person, role).status_code == 200
    return person


def last_audited(house: House, tenant: Tenant) -> tuple[str, str | None, dict[str, Any]]:
    with house.database.read() as db:
        entry = written.audited(db, tenant.org_id)[0]
        return entry.action, entry.target, entry.detail
