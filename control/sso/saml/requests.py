"""The request that begins a sign-in, as the URL that a browser is sent to (redirect binding)."""

import base64
import secrets
import zlib
from datetime import datetime
from typing import Final
from urllib.parse import quote_plus

from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from lxml import etree

from control.sso.saml import known
from control.sso.saml.documents import SAML, SAMLP, tag
from control.sso.saml.known import SamlSettings
from control.sso.saml.service_provider import ServiceProvider

_SIGNED_BY: Final = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256"
_ANY_NAME_ID: Final = "urn:oasis:names:tc:SAML:1.1:nameid-format:unspecified"
_ID_BYTES: Final = 20


def new_id() -> str:
    """Of a request: begins with a letter or an underscore, as XML wants it."""
    return f"_{secrets.token_hex(_ID_BYTES)}"


def redirect_url(
    provider: ServiceProvider,
    settings: SamlSettings,
    *,
    request_id: str,
    relay_state: str,
    now: datetime,
    key: RSAPrivateKey | None,
) -> str:
    """Where to send the browser. `key` signs the request; None: it is not signed."""
    packer = zlib.compressobj(wbits=-15)
    xml = _request(provider, settings, request_id, now)
    packed = packer.compress(xml) + packer.flush()
    query = f"SAMLRequest={_encoded(packed)}&RelayState={quote_plus(relay_state)}"
    if key is not None:
        query += f"&SigAlg={quote_plus(_SIGNED_BY)}"
        query += f"&Signature={_encoded(key.sign(query.encode(), PKCS1v15(), SHA256()))}"
    url = settings.sso_url
    return f"{url}{'&' if '?' in url else '?'}{query}"


def _request(
    provider: ServiceProvider, settings: SamlSettings, request_id: str, now: datetime
) -> bytes:
    root = etree.Element(tag(SAMLP, "AuthnRequest"), nsmap={"samlp": SAMLP, "saml": SAML})
    for name, value in (
        ("ID", request_id),
        ("Version", "2.0"),
        ("IssueInstant", now.strftime("%Y-%m-%dT%H:%M:%SZ")),
        ("Destination", settings.sso_url),
        ("ProtocolBinding", known.POST),
        ("AssertionConsumerServiceURL", provider.acs_url),
    ):
        root.set(name, value)
    etree.SubElement(root, tag(SAML, "Issuer")).text = provider.entity_id
    policy = etree.SubElement(root, tag(SAMLP, "NameIDPolicy"))
    policy.set("Format", _ANY_NAME_ID)
    policy.set("AllowCreate", "true")
    return etree.tostring(root)


def _encoded(content: bytes) -> str:
    return quote_plus(base64.b64encode(content))
