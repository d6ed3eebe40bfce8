"""A SAML connection of a tenant, sign-ins that have begun by it, and what its provider answers."""

import base64
import secrets
import zlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
from cryptography import x509
from lxml import etree

from contract_tests.api.harness import House, Tenant
from contract_tests.api.letters import new_email
from contract_tests.saml import provider
from contract_tests.saml.provider import Signer, at
from control.sso.saml import service_provider
from control.sso.saml.documents import DS, Element, tag
from storage.database import now
from storage.sso import connections

SESSIONS = "/v1/sso/saml/sessions"
ISSUER = provider.ISSUER


@dataclass(frozen=True)
class Begun:
    """What the browser and the provider were given."""

    connection_id: str
    request_id: str
    state: str
    browser: str

    @property
    def body(self) -> dict[str, str]:
        return {
            "connection_id": self.connection_id,
            "relay_state": self.state,
            "browser_token": self.browser,
        }


def moment(house: House) -> datetime:
    with house.database.read() as db:
        return now(db)


def signer(house: House, **said: Any) -> Signer:
    """The provider's, with a certificate that is valid by the database's clock."""
    at_now = moment(house).replace(microsecond=0)
    key = said.pop("key", provider.SIGNER.key)
    told = {"begins": at_now - timedelta(days=30), "ends": at_now + timedelta(days=30), **said}
    return Signer(key, **told)


def connect(house: House, tenant: Tenant, **choices: Any) -> str:
    """The id of the tenant's connection, with the provider's metadata."""
    told = provider.metadata_xml(signer(house)).decode()
    answer = put(house, tenant, metadata_xml=told, **choices)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["saml"]["connection_id"])


def begin(house: House, connection_id: str) -> Begun:
    """A sign-in in a new browser."""
    made = house.post("/v1/sso/sign-ins", json={"connection_id": connection_id})
    assert made.status_code == 201, made.text
    query = parse_qs(urlsplit(made.json()["redirect_url"]).query)
    request_id = asked(query["SAMLRequest"][0]).get("ID", "")
    return Begun(connection_id, request_id, query["RelayState"][0], made.json()["browser_token"])


def answered(house: House, begun: Begun, email: str, **said: Any) -> str:
    """The provider's response in base64, that somebody with this address has signed in."""
    ours = service_provider.of(house.services.settings.base_url, begun.connection_id)
    ends = at(moment(house) + timedelta(minutes=5))
    told = {
        "id": f"_{secrets.token_hex(16)}",
        "email": email,
        "name_id": email,
        "in_response_to": begun.request_id,
        "recipient": ours.acs_url,
        "audience": ours.entity_id,
        "not_before": at(moment(house) - timedelta(minutes=1)),
        "ends": ends,
        "confirmed_until": ends,
        **said,
    }
    assertion = provider.signed_assertion(signer(house), **told)
    root = provider.response(
        assertion, destination=ours.acs_url, in_response_to=told["in_response_to"]
    )
    return encoded(root)


def send(house: House, begun: Begun, response: str, **options: Any) -> httpx.Response:
    return house.post(SESSIONS, json={**begun.body, "saml_response": response}, **options)


def sign_in(house: House, connection_id: str, email: str = "", **said: Any) -> httpx.Response:
    begun = begin(house, connection_id)
    return send(house, begun, answered(house, begun, email or new_email(), **said))


def encoded(root: Element) -> str:
    return base64.b64encode(provider.xml(root)).decode()


def decoded(response: str) -> Element:
    return etree.fromstring(base64.b64decode(response))


def certificates_of(metadata: bytes) -> list[x509.Certificate]:
    found = etree.fromstring(metadata).iter(tag(DS, "X509Certificate"))
    return [x509.load_der_x509_certificate(base64.b64decode(each.text or "")) for each in found]


def change(house: House, connection_id: str, **values: Any) -> None:
    """What the operations of connections would change."""
    with house.database.write() as db:
        connection = connections.enter(db, connection_id)
        for name, value in values.items():
            setattr(connection, name, value)


def put(house: House, tenant: Tenant, **body: Any) -> httpx.Response:
    return house.request("PUT", f"{tenant.path}/enterprise/sso", tenant.key, json=body)


def asked(saml_request: str) -> Element:
    """The request in the URL that a browser is sent to."""
    return etree.fromstring(zlib.decompress(base64.b64decode(saml_request), -15))


def settings(house: House, connection_id: str) -> dict[str, Any]:
    with house.database.write() as db:
        return dict(connections.enter(db, connection_id).settings)
