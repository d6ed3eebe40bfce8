"""What an estate has of single sign-on."""

from contract_tests.api.harness import House, Tenant
from storage import identifiers


def claimed(house: House, tenant: Tenant, name: str) -> str:
    """The id of a claimed SSO domain, with this name in it."""
    body = {"domain": f"{'-'.join(name.lower().split())}.{identifiers.new('').lower()}.com"}
    made = house.post(f"{tenant.path}/sso/domains", tenant.key, json=body)
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


def connected(house: House, tenant: Tenant, name: str) -> str:
    """The id of an SSO connection of this name, whose metadata is to follow."""
    body = {"name": name, "saml": {}}
    made = house.post(f"{tenant.path}/sso/connections", tenant.key, json=body)
    assert made.status_code == 201, made.text
    return str(made.json()["id"])
