"""What tests of signing in by OpenID Connect ask for again and again."""

import os
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx

from contract_tests.api.harness import House, Tenant
from contract_tests.sso_provider import CLIENT_ID, CLIENT_SECRET, SsoProvider
from storage import identifiers
from storage.sso.domains import SsoDomain

SIGN_INS = "/v1/sso/sign-ins"
SESSIONS = "/v1/sso/sessions"
Json = dict[str, Any]


@dataclass(frozen=True)
class Begun:
    """`query` is what the browser is sent to the provider with."""

    browser_token: str
    query: Json

    @property
    def nonce(self) -> str:
        return str(self.query["nonce"])


def client(provider: SsoProvider, **changed: Any) -> Json:
    told = {"issuer": provider.url, "client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}
    return {**told, **changed}


def connected(house: House, tenant: Tenant, provider: SsoProvider, **body: Any) -> Json:
    sent = {"name": os.urandom(4).hex(), "oidc": client(provider), **body}
    answer = house.post(f"{tenant.path}/sso/connections", tenant.owner.session, json=sent)
    assert answer.status_code == 201, answer.text
    made: Json = answer.json()
    return made


def owning(house: House, tenant: Tenant, domain: str) -> str:
    """The domain, verified by the organization."""
    with house.database.write() as db:
        now = house.database.now(db)
        made = SsoDomain(
            id=identifiers.new("ssod_"),
            org_id=tenant.org_id,
            domain=domain,
            txt_value=os.urandom(8).hex(),
            status="verified",
            verified_at=now,
            checked_at=now,
        )
        db.add(made)
    return domain


def new_domain() -> str:
    return f"{os.urandom(6).hex()}.example.com"


def begin(house: House, connection: Json, **options: Any) -> Begun:
    answer = house.post(SIGN_INS, json={"connection_id": connection["id"]}, **options)
    assert answer.status_code == 201, answer.text
    told = answer.json()
    query = dict(parse_qsl(urlsplit(told["redirect_url"]).query))
    return Begun(told["browser_token"], query)


def returned(begun: Begun, code: str, **changed: Any) -> Json:
    """What the browser comes back with."""
    sent = {"code": code, "state": begun.query["state"], "browser_token": begun.browser_token}
    return {name: value for name, value in {**sent, **changed}.items() if value is not None}


def sign_in(house: House, connection: Json, provider: SsoProvider, **claims: Any) -> httpx.Response:
    """All of it, with an ID token of these claims."""
    begun = begin(house, connection)
    id_token = provider.signed(provider.claims(begun.nonce, **claims))
    code = provider.gives(os.urandom(8).hex(), id_token)
    return house.post(SESSIONS, json=returned(begun, code))


def signed_in(house: House, connection: Json, provider: SsoProvider, **claims: Any) -> Json:
    answer = sign_in(house, connection, provider, **claims)
    assert answer.status_code == 201, answer.text
    opened: Json = answer.json()
    return opened


def audited(house: House, tenant: Tenant, action: str) -> list[Json]:
    answer = house.get(f"{tenant.path}/audit?action={action}&limit=50", tenant.owner.session)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["items"])
