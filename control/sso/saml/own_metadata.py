"""What this service says of itself to an identity provider, as its metadata."""

import base64

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from lxml import etree

from control.sso.saml import known
from control.sso.saml.documents import DS, METADATA, SAMLP, Element, tag
from control.sso.saml.service_provider import ServiceProvider


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
    place.set("Binding", known.POST)
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
