"""A SAML connection: its metadata recorded, its key, a sign-in begun and finished by it.

Of its record, `settings` are what an administrator chose and our certificate, `provider` is what
the identity provider's metadata says, and `secrets_sealed` our private key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import orjson
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from control.sealing import Sealer, SealError
from control.sso.saml import known, service_provider
from control.sso.saml.known import CertificateFacts, SamlSettings
from control.sso.saml.service_provider import KeyPair, ServiceProvider
from specserver import Conflict
from storage.sso.connections import SsoConnection

if TYPE_CHECKING:  # whoever uses no SAML does not load what reads XML: 8 MB, and 60 ms
    from control.sso.saml.assertions import AssertedIdentity

CHOICES: Final[Mapping[str, Any]] = {
    "metadata_url": None,
    "allows_idp_initiated": False,
    "signs_requests": False,
    "wants_encrypted": False,
}
"""What an administrator chooses, with what holds unless they do."""


@dataclass(frozen=True)
class BegunSignIn:
    """Where the browser is sent, and the id of the request, which the response must name."""

    redirect_url: str
    request_id: str


def new_settings(
    connection_id: str, chosen: Mapping[str, Any], sealer: Sealer, now: datetime
) -> tuple[dict[str, Any], bytes]:
    """`settings` and `secrets_sealed` of a new connection, with a key of its own."""
    pair = service_provider.new_key_pair(connection_id, now)
    told = {name: chosen.get(name, default) for name, default in CHOICES.items()}
    secrets = orjson.dumps({"private_key": pair.private_key})
    sealed = sealer.seal(secrets, _context(connection_id))
    return {**told, "certificate": pair.certificate}, sealed


def chosen(body: Mapping[str, Any]) -> dict[str, Any]:
    """What of a body is such a choice. What is given as XML is read again nowhere."""
    source = {"metadata_url": None} if "metadata_xml" in body else {}
    return {**source, **{name: body[name] for name in CHOICES if name in body}}


def record_metadata(connection: SsoConnection, told: SamlSettings, now: datetime) -> None:
    """From now on these sign; whoever comes next proves that they are right."""
    connection.became_known(told.as_json(), None, now)
    connection.last_used_at = None
    if connection.status != "disabled":
        connection.status = "pending_verification"


def metadata_of(connection: SsoConnection) -> SamlSettings:
    """Raises Conflict where none has been recorded yet."""
    if connection.provider is None:
        raise Conflict(
            "the identity provider's metadata has not been recorded yet; an administrator of the"
            " organization has to record it",
            code="saml_metadata_missing",
        )
    return SamlSettings.of_json(connection.provider)


def begin(
    connection: SsoConnection, base_url: str, sealer: Sealer, *, relay_state: str, now: datetime
) -> BegunSignIn:
    """Raises Conflict where the connection has no metadata yet."""
    from control.sso.saml import requests  # noqa: PLC0415 -- see above

    told, request_id = metadata_of(connection), requests.new_id()
    url = requests.redirect_url(
        service_provider.of(base_url, connection.id),
        told,
        request_id=request_id,
        relay_state=relay_state,
        now=now,
        key=_key(connection, sealer) if signs_requests(connection) else None,
    )
    return BegunSignIn(url, request_id)


def seal_request(begun: BegunSignIn, sealer: Sealer, state_hash: str) -> bytes:
    """What the record of the sign-in keeps until the response comes."""
    return sealer.seal(begun.request_id.encode(), _sign_in_context(state_hash))


def request_id_of(sealed: bytes, sealer: Sealer, state_hash: str) -> str:
    return sealer.open(sealed, _sign_in_context(state_hash)).decode()


def finish(
    connection: SsoConnection,
    base_url: str,
    sealer: Sealer,
    *,
    saml_response: str,
    request_id: str | None,
    now: datetime,
) -> AssertedIdentity:
    """Who comes by the response (base64). `request_id`: None where the provider began it.

    Raises SamlRefused for one that lets nobody in, Conflict where there is no metadata yet.
    """
    from control.sso.saml import assertions, responses  # noqa: PLC0415 -- see above

    told = metadata_of(connection)
    wants_encrypted = connection.settings["wants_encrypted"]
    trust = responses.Trust(told, _key(connection, sealer) if wants_encrypted else None)
    expected = assertions.ExpectedAssertion(
        issuer=told.entity_id,
        provider=service_provider.of(base_url, connection.id),
        request_id=request_id,
        now=now,
    )
    content = responses.decoded(saml_response)
    return responses.accept(content, trust, expected, connection.attribute_mapping)


def metadata_xml(connection: SsoConnection, base_url: str) -> bytes:
    """What the identity provider is given to read."""
    from control.sso.saml import own_metadata  # noqa: PLC0415 -- see above

    return own_metadata.metadata_xml(
        service_provider.of(base_url, connection.id),
        connection.settings["certificate"],
        signs_requests=signs_requests(connection),
        wants_encrypted=connection.settings["wants_encrypted"],
    )


def signs_requests(connection: SsoConnection) -> bool:
    """As an administrator chose, or as the provider's metadata wants it."""
    wanted = (connection.provider or {}).get("signs_requests", False)
    return bool(connection.settings["signs_requests"] or wanted)


def provider_of(connection: SsoConnection, base_url: str) -> ServiceProvider:
    return service_provider.of(base_url, connection.id)


def certificates(connection: SsoConnection) -> list[CertificateFacts]:
    """Those of the provider, for whoever compares them; none before there is metadata.

    Of a connection by OpenID Connect there are none: its keys do not say when they end.
    """
    if connection.provider is None or connection.kind != "saml":
        return []
    told = SamlSettings.of_json(connection.provider)
    return [known.certificate_facts(each) for each in told.loaded()]


def _key(connection: SsoConnection, sealer: Sealer) -> RSAPrivateKey:
    assert connection.secrets_sealed is not None, "each SAML connection is made with a key"
    try:
        secrets = orjson.loads(sealer.open(connection.secrets_sealed, _context(connection.id)))
    except SealError:
        raise Conflict(
            "the connection's key cannot be opened by this installation: an administrator has to"
            " make the connection anew",
            code="sso_secret_unreadable",
        ) from None
    return KeyPair(secrets["private_key"], connection.settings["certificate"]).loaded()


def _context(connection_id: str) -> str:
    return f"sso connection {connection_id}"


def _sign_in_context(state_hash: str) -> str:
    return f"sso sign-in {state_hash}"
