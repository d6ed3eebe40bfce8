"""What an identity provider says of itself: its name, where people sign in, what it signs with.

Metadata is taken as an administrator gives it, or as it is at the URL that they gave: it is no more
trustworthy than either, so a signature in it is not looked at.
"""

import base64
import binascii
from typing import Final
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding

from control.sso.saml import documents
from control.sso.saml.documents import DS, METADATA, SAMLP, Element, XmlRefused, children, tag
from control.sso.saml.known import REDIRECT, SamlSettings, subject

CERTIFICATES_MAX: Final = 10
_ENTITIES_MAX: Final = 1
_RSA_BITS: Final = range(2_048, 8_193)
_CURVES: Final = ("secp256r1", "secp384r1", "secp521r1")
_ENTITY_ID_MAX: Final = 1_024
_URL_MAX: Final = 2_000


class MetadataRefused(ValueError):  # noqa: N818 -- a fact about a document
    """No connection can be made of it; the message follows "the metadata" and says what to do."""


def parse(xml: bytes, *, allows_http: bool = False) -> SamlSettings:
    """Raises MetadataRefused. `allows_http`: a development server's URL may be without TLS."""
    try:
        root = documents.read(xml, documents.METADATA_BYTES_MAX)
        return _settings(_entity(root), allows_http=allows_http)
    except XmlRefused as refused:
        raise MetadataRefused(str(refused)) from None


def _settings(entity: Element, *, allows_http: bool) -> SamlSettings:
    role = _role(entity)
    entity_id = entity.get("entityID", "")
    if not 0 < len(entity_id) <= _ENTITY_ID_MAX or not entity_id.isprintable():
        raise MetadataRefused(f"must have an entityID of at most {_ENTITY_ID_MAX:,} characters")
    return SamlSettings(
        entity_id=entity_id,
        sso_url=_sso_url(role, allows_http=allows_http),
        certificates=_certificates(role),
        signs_requests=role.get("WantAuthnRequestsSigned", "") in {"true", "1"},
        valid_until=entity.get("validUntil"),
    )


def _entity(root: Element) -> Element:
    if root.tag == tag(METADATA, "EntityDescriptor"):
        return root
    if root.tag != tag(METADATA, "EntitiesDescriptor"):
        raise MetadataRefused("must be an EntityDescriptor of SAML 2.0: is this another document?")
    found = [
        each
        for each in root.iter(tag(METADATA, "EntityDescriptor"))
        if children(each, METADATA, "IDPSSODescriptor")
    ]
    if len(found) != _ENTITIES_MAX:
        raise MetadataRefused(
            f"has {len(found)} identity providers: it must have one; ask for that of yours alone"
        )
    return found[0]


def _role(entity: Element) -> Element:
    roles = [
        each
        for each in children(entity, METADATA, "IDPSSODescriptor")
        if SAMLP in each.get("protocolSupportEnumeration", "").split()
    ]
    if len(roles) != 1:
        raise MetadataRefused(
            "must describe one identity provider (IDPSSODescriptor) that supports SAML 2.0;"
            " that of a service provider, such as this service's own, is not what is asked for"
        )
    return roles[0]


def _sso_url(role: Element, *, allows_http: bool) -> str:
    places = children(role, METADATA, "SingleSignOnService")
    place = next((each for each in places if each.get("Binding") == REDIRECT), None)
    if place is None:
        raise MetadataRefused(
            "must have a SingleSignOnService with the binding HTTP-Redirect, where people are sent"
        )
    url = place.get("Location", "")
    if not is_sso_url(url, allows_http=allows_http):
        raise MetadataRefused(
            "must have a SingleSignOnService whose Location is a URL with https://"
        )
    return url


def is_sso_url(url: str, *, allows_http: bool) -> bool:
    """People are sent there: a URL that every reader takes apart alike."""
    if not 0 < len(url) <= _URL_MAX or any(not "!" <= each <= "~" for each in url):
        return False
    if "\\" in url or "#" in url:
        return False
    try:
        parts = urlsplit(url)
        is_here = allows_http and parts.hostname in {"localhost", "127.0.0.1", "::1"}
    except ValueError:
        return False
    return bool(
        parts.hostname
        and "@" not in parts.netloc
        and (parts.scheme == "https" or (parts.scheme == "http" and is_here))
    )


def _certificates(role: Element) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for key in children(role, METADATA, "KeyDescriptor"):
        if key.get("use", "signing") != "signing":
            continue
        for each in key.iter(tag(DS, "X509Certificate")):
            found.setdefault(_pem(documents.text_of(each)))
    if not found:
        raise MetadataRefused("must have a certificate for signing (X509Certificate)")
    if len(found) > CERTIFICATES_MAX:
        raise MetadataRefused(f"must have at most {CERTIFICATES_MAX} certificates for signing")
    return tuple(found)


def _pem(text: str) -> str:
    try:
        der = base64.b64decode("".join(text.split()), validate=True)
        certificate = x509.load_der_x509_certificate(der)
        key = certificate.public_key()
        _ = certificate.not_valid_after_utc, subject(certificate)
    except (binascii.Error, ValueError, TypeError) as error:
        raise MetadataRefused("has a certificate that cannot be read") from error
    except Exception as error:
        # Of keys that the library does not know.
        raise MetadataRefused("has a certificate with a key of an unknown kind") from error
    is_rsa = isinstance(key, rsa.RSAPublicKey) and key.key_size in _RSA_BITS
    if not is_rsa and not (
        isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in _CURVES
    ):
        raise MetadataRefused(
            "has a certificate whose key is too weak or of an unknown kind: it must be RSA of 2048"
            " to 8192 bits, or ECDSA on P-256, P-384 or P-521"
        )
    return certificate.public_bytes(Encoding.PEM).decode()
