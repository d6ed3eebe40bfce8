"""Organizations that sign in the addresses of a domain by an identity provider."""

import os
from dataclasses import dataclass
from typing import Any

from contract_tests.api.harness import House, Person, Tenant
from contract_tests.api.second_factor import enrolled
from storage import tenancy
from storage.access import users
from storage.access.sessions import UserSession
from storage.sso import connections
from storage.sso.connections import SsoConnection


def new_domain() -> str:
    """One that nobody has: files share an installation, and its domains stay."""
    return f"example-{os.urandom(4).hex()}.com"


def connected(house: House, tenant: Tenant, status: str = "active") -> str:
    """The id of a new connection of the organization, of a provider that nobody asks."""
    with house.database.write() as db:
        made = SsoConnection(
            id=connections.new_id(),
            org_id=tenant.org_id,
            kind="oidc",
            name=os.urandom(4).hex(),
            status=status,
            default_role="member",
            attribute_mapping={},
            settings={},
            created_by=tenant.owner.id,
        )
        return connections.add(db, made).id


def claim(house: House, tenant: Tenant, domain: str, **body: Any) -> dict[str, Any]:
    made = house.post(f"{tenant.path}/sso/domains", tenant.key, json={"domain": domain, **body})
    assert made.status_code == 201, made.text
    return dict(made.json())


def publish(house: House, claimed: dict[str, Any]) -> None:
    """In the DNS, beside what is there."""
    house.names.texts.setdefault(claimed["txt"]["name"], []).append(claimed["txt"]["value"])


def verify(house: House, tenant: Tenant, claimed: dict[str, Any]) -> dict[str, Any]:
    """The domain after it was looked up."""
    path = f"{tenant.path}/sso/domains/{claimed['id']}/actions/verify"
    asked = house.post(path, tenant.key)
    assert asked.status_code == 202, asked.text
    house.settle()
    return found(house, tenant, claimed["id"])


def found(house: House, tenant: Tenant, domain_id: str) -> dict[str, Any]:
    listed = house.get(f"{tenant.path}/sso/domains?limit=200", tenant.key).json()["items"]
    return next(dict(one) for one in listed if one["id"] == domain_id)


def change(house: House, tenant: Tenant, domain_id: str, **body: Any) -> Any:
    path = f"{tenant.path}/sso/domains/{domain_id}"
    return house.request("PATCH", path, tenant.key, json=body)


@dataclass(frozen=True)
class Enforcing:
    """An organization that enforces single sign-on for the domain of its owner's address."""

    tenant: Tenant
    domain: str
    domain_id: str
    connection_id: str


def verified(house: House, tenant: Tenant, domain: str | None = None) -> Enforcing:
    """Of the organization, with a connection, and not enforced yet."""
    connection_id = connected(house, tenant)
    claimed = claim(house, tenant, domain or new_domain(), connection_id=connection_id)
    publish(house, claimed)
    assert verify(house, tenant, claimed)["status"] == "verified"
    return Enforcing(tenant, claimed["domain"], claimed["id"], connection_id)


def enforcing(house: House) -> Enforcing:
    """The owner has an authenticator app, and so a way in."""
    tenant = house.tenant("Enforcing")
    made = verified(house, tenant)
    moved = at_domain(house, tenant.owner, made.domain)
    enrolled(house, moved)
    tenant = Tenant(tenant.org_id, moved, tenant.key, tenant.key_id, tenant.project_id)
    changed = change(house, tenant, made.domain_id, is_enforced=True)
    assert changed.status_code == 200, changed.text
    return Enforcing(tenant, made.domain, made.domain_id, made.connection_id)


def at_domain(house: House, person: Person, domain: str) -> Person:
    """The person, whose address is of that domain from now on."""
    email = f"{os.urandom(4).hex()}@{domain}"
    with house.database.write() as db:
        users.locked(db, person.id).email = email
    return Person(person.id, email, person.session)


def member_at(house: House, made: Enforcing, role: str = "developer") -> Person:
    return at_domain(house, house.member(made.tenant.org_id, role), made.domain)


def by_sso(house: House, person: Person, made: Enforcing) -> str:
    """A session of the person that the organization's connection has opened."""
    token = house.session(person.id)
    with house.database.write() as db, tenancy.across(db, "tests"):
        session = db.query(UserSession).filter_by(user_id=person.id).order_by(UserSession.id.desc())
        newest = session.first()
        assert newest is not None
        newest.sso_org_id, newest.sso_connection_id = made.tenant.org_id, made.connection_id
    return token
