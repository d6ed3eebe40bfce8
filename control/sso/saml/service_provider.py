"""What this service is to an identity provider: its name, its address, its key, its metadata.

Each connection has an entity ID of its own, so that what is signed for one says nothing to
another, and a key of its own.
"""

import base64
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from lxml import etree

from control.sso.saml import metadata
from control.sso.saml.documents import DS, METADATA, SAMLP, Element, tag

METADATA_MEDIA_TYPE: Final = "application/samlmetadata+xml"
_KEY_BITS: Final = 2_048
# What providers do with the time of a certificate differs; the key is as old as its connection.
_CERTIFICATE_YEARS: Final = 20
_EXPONENT: Final = 65_537


@dataclass(frozen=True)
class ServiceProvider:
    """Of one connection: what it is called, and where responses are sent."""

    entity_id: str
    acs_url: str


@dataclass(frozen=True)
class KeyPair:
    """PEM both; the certificate is shown to everybody."""

    private_key: str
    certificate: str

    def __repr__(self) -> str:
        return "KeyPair()"

    def loaded(self) -> rsa.RSAPrivateKey:
        key = serialization.load_pem_private_key(self.private_key.encode(), None)
        assert isinstance(key, rsa.RSAPrivateKey)
        return key


def of(base_url: str, connection_id: str) -> ServiceProvider:
    base = base_url.rstrip("/")
    return ServiceProvider(
        entity_id=f"{base}/v1/sso/saml/{connection_id}/metadata",
        acs_url=f"{base}/account/sso/{connection_id}/acs",
    )


def new_key_pair(connection_id: str, now: datetime) -> KeyPair:
    """For signing requests and for assertions that are encrypted for us. Takes some 50 ms."""
    key = rsa.generate_private_key(_EXPONENT, _KEY_BITS)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, connection_id)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=365 * _CERTIFICATE_YEARS))
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    public = certificate.public_bytes(serialization.Encoding.PEM)
    return KeyPair(private.decode(), public.decode())


def metadata_xml(
    provider: ServiceProvider, certificate: str, *, signs_requests: bool, wants_encrypted: bool
) -> bytes:
    """For the identity provider. Whoever finds a key for encryption in it encrypts with it."""
    root = etree.Element(tag(METADATA, "EntityDescriptor"), nsmap={"md": METADATA, "ds": DS})
    root.set("entityID", provider.entity_id)
    role = etree.SubElement(root, tag(METADATA, "SPSSODescriptor"))
    role.set("protocolSupportEnumeration", SAMLP)
    role.set("AuthnRequestsSigned", "true" if signs_requests else "false")
    role.set("WantAssertionsSigned", "true")
    _add_key(role, certificate, "signing")
    if wants_encrypted:
        key = _add_key(role, certificate, "encryption")
        for algorithm in (
            "http://www.w3.org/2009/xmlenc11#aes256-gcm",
            "http://www.w3.org/2001/04/xmlenc#rsa-oaep-mgf1p",
        ):
            etree.SubElement(key, tag(METADATA, "EncryptionMethod")).set("Algorithm", algorithm)
    place = etree.SubElement(role, tag(METADATA, "AssertionConsumerService"))
    place.set("Binding", metadata.POST)
    place.set("Location", provider.acs_url)
    place.set("index", "0")
    place.set("isDefault", "true")
    return etree.tostring(root, xml_declaration=True, encoding="UTF-8", pretty_print=True)


def _add_key(role: Element, certificate: str, use: str) -> Element:
    der = x509.load_pem_x509_certificate(certificate.encode()).public_bytes(
        serialization.Encoding.DER
    )
    key = etree.SubElement(role, tag(METADATA, "KeyDescriptor"))
    key.set("use", use)
    info = etree.SubElement(key, tag(DS, "KeyInfo"))
    data = etree.SubElement(info, tag(DS, "X509Data"))
    etree.SubElement(data, tag(DS, "X509Certificate")).text = base64.b64encode(der).decode()
    return key
