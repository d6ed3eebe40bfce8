"""What signing in by OpenID Connect has that is secret: sent, and searched for afterwards."""

import os
from typing import Any

from contract_tests.api.harness import House, Person, Tenant
from contract_tests.api.rows import is_problem
from contract_tests.api.sso.with_oidc import (
    SESSIONS,
    begin,
    client,
    connected,
    new_domain,
    returned,
)
from contract_tests.sso_provider import SsoProvider


def connect(house: House, person: Person) -> list[str]:
    """A provider, refused and made, and its secret rotated."""
    tenant, provider = house.tenant(owner=person), SsoProvider()
    secrets = [f"client-secret-{each}-{os.urandom(8).hex()}" for each in ("one", "two", "three")]
    path = f"{tenant.path}/sso/connections"
    try:
        bodies: list[dict[str, Any]] = [
            {"name": "One", "oidc": client(provider, client_secret=secret)} for secret in secrets
        ]
        bodies[0]["oidc"]["issuer"] = f"{provider.url}/another"
        is_problem(house.post(path, person.session, json=bodies[0]), 422)
        made = house.post(path, person.session, json=bodies[1])
        assert made.status_code == 201, made.text
        change = {"oidc": {"client_secret": secrets[2]}}
        rotated = house.request("PATCH", f"{path}/{made.json()['id']}", person.session, json=change)
        assert rotated.status_code == 200, rotated.text
    finally:
        provider.close()
    return secrets


def come_by_a_provider(house: House, person: Person) -> list[str]:
    """With a code that is refused, and one that is not."""
    tenant, provider = house.tenant(owner=person), SsoProvider()
    told = []
    try:
        connection = connected(house, tenant, provider)
        for wanted in (401, 201):
            begun, code = begin(house, connection), os.urandom(16).hex()
            if wanted == 201:
                claims = provider.claims(begun.nonce, email=f"a@{os.urandom(8).hex()}.example.com")
                provider.gives(code, provider.signed(claims))
            answer = house.post(SESSIONS, json=returned(begun, code))
            assert answer.status_code == wanted, answer.text
            told += [code, begun.browser_token, str(begun.query["state"])]
    finally:
        provider.close()
    return told


def coming(
    house: House, tenant: Tenant, provider: SsoProvider, operation_id: str
) -> dict[str, Any]:
    """The body of a request that begins a sign-in, or completes one."""
    connection = connected(house, tenant, provider)
    if operation_id == "sso_sign_ins.create":
        return {"connection_id": connection["id"]}
    begun = begin(house, connection)
    claims = provider.claims(begun.nonce, email=f"a@{new_domain()}")
    code = provider.gives(os.urandom(16).hex(), provider.signed(claims))
    return returned(begun, code)
