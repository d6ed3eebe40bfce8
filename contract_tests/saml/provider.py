"""An identity provider for tests that says whatever a test wants, signed in any way it wants.

It signs by itself, with `cryptography` and lxml alone: what verifies is not what signed. The
provider that plays by the rules and is not ours is pysaml2's, in identity_provider.py.
"""

import base64
import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa, utils
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.x509.oid import NameOID
from lxml import etree

from control.sso.saml import service_provider
from control.sso.saml.assertions import ExpectedAssertion
from control.sso.saml.documents import DS, EXC_C14N, SAML, SAMLP, Element, tag
from control.sso.saml.known import SamlSettings
from control.sso.saml.responses import Trust

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
ISSUER = "https://idp.example.com/saml"
SSO_URL = "https://idp.example.com/sso"
SP = service_provider.of("https://menagerie.example", "ssoc_01JD7QK3V8Y2M4N6P8R0S2T4V6")
REQUEST = "_0123456789abcdef"
ADA, EVE = "ada@example.com", "eve@example.com"
RSA_SHA256 = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256"
ECDSA_SHA256 = "http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha256"
SHA256 = "http://www.w3.org/2001/04/xmlenc#sha256"
ENVELOPED = f"{DS}enveloped-signature"
_HASHES: dict[str, Any] = {
    RSA_SHA256: hashes.SHA256(),
    "http://www.w3.org/2001/04/xmldsig-more#rsa-sha512": hashes.SHA512(),
    f"{DS}rsa-sha1": hashes.SHA1(),
    "http://www.w3.org/2001/04/xmldsig-more#rsa-md5": hashes.MD5(),
    "http://www.w3.org/2001/04/xmldsig-more#rsa-sha224": hashes.SHA224(),
}
_DIGESTS = {
    SHA256: "sha256",
    f"{DS}sha1": "sha1",
    "http://www.w3.org/2001/04/xmldsig-more#md5": "md5",
    "http://www.w3.org/2001/04/xmlenc#sha512": "sha512",
}
PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


@dataclass
class Signer:
    """A key with its certificate, valid around NOW unless told otherwise."""

    key: PrivateKey = field(default_factory=lambda: rsa.generate_private_key(65_537, 2_048))
    begins: datetime = NOW - timedelta(days=30)
    ends: datetime = NOW + timedelta(days=30)

    @property
    def certificate(self) -> x509.Certificate:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "idp.example.com")])
        made = x509.CertificateBuilder().subject_name(name).issuer_name(name)
        made = made.public_key(self.key.public_key()).serial_number(7)
        made = made.not_valid_before(self.begins).not_valid_after(self.ends)
        return made.sign(self.key, hashes.SHA256())

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def der_text(self) -> str:
        der = self.certificate.public_bytes(serialization.Encoding.DER)
        return base64.b64encode(der).decode()

    def sign(self, content: bytes, algorithm: str) -> bytes:
        if isinstance(self.key, ec.EllipticCurvePrivateKey):
            r, s = utils.decode_dss_signature(self.key.sign(content, ec.ECDSA(hashes.SHA256())))
            size = (self.key.key_size + 7) // 8
            return r.to_bytes(size, "big") + s.to_bytes(size, "big")
        return self.key.sign(content, PKCS1v15(), _HASHES[algorithm])


# Made once: a key takes long.
SIGNER = Signer()
OTHER = Signer()


def at(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def assertion_xml(**said: Any) -> str:
    """`said` replaces what a right one has, by the names in the text below."""
    told: dict[str, Any] = {
        "id": "_assertion1",
        "issuer": ISSUER,
        "name_id": EVE if said.get("email") == EVE else ADA,
        "format": "urn:oasis:names:tc:SAML:1.1:nameid-format:emailAddress",
        "recipient": SP.acs_url,
        "in_response_to": REQUEST,
        "audience": SP.entity_id,
        "not_before": at(NOW - timedelta(minutes=1)),
        "ends": at(NOW + timedelta(minutes=5)),
        "confirmed_until": at(NOW + timedelta(minutes=5)),
        "email": ADA,
        "name": "Ada Lovelace",
        "groups": ("engineers", "admins"),
        "method": "urn:oasis:names:tc:SAML:2.0:cm:bearer",
        "conditions": "",
        "inside": "",
        "version": "2.0",
        "signed_in_at": at(NOW),
        "context": "urn:oasis:names:tc:SAML:2.0:ac:classes:Password",
        **said,
    }
    answered = f' InResponseTo="{told["in_response_to"]}"' if told["in_response_to"] else ""
    groups = "".join(f"<saml:AttributeValue>{one}</saml:AttributeValue>" for one in told["groups"])
    return (
        f'<saml:Assertion xmlns:saml="{SAML}" xmlns:xs="http://www.w3.org/2001/XMLSchema"'
        f' xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'
        f' ID="{told["id"]}" Version="{told["version"]}" IssueInstant="{at(NOW)}">'
        f"<saml:Issuer>{told['issuer']}</saml:Issuer>"
        f'<saml:Subject><saml:NameID Format="{told["format"]}">{told["name_id"]}</saml:NameID>'
        f'<saml:SubjectConfirmation Method="{told["method"]}"><saml:SubjectConfirmationData'
        f' NotOnOrAfter="{told["confirmed_until"]}" Recipient="{told["recipient"]}"{answered}/>'
        "</saml:SubjectConfirmation></saml:Subject>"
        f'<saml:Conditions NotBefore="{told["not_before"]}" NotOnOrAfter="{told["ends"]}">'
        f"<saml:AudienceRestriction><saml:Audience>{told['audience']}</saml:Audience>"
        f"</saml:AudienceRestriction>{told['conditions']}</saml:Conditions>"
        f'<saml:AuthnStatement AuthnInstant="{told["signed_in_at"]}"><saml:AuthnContext>'
        f"<saml:AuthnContextClassRef>{told['context']}"
        "</saml:AuthnContextClassRef></saml:AuthnContext></saml:AuthnStatement>"
        "<saml:AttributeStatement>"
        '<saml:Attribute Name="email"><saml:AttributeValue xsi:type="xs:string">'
        f"{told['email']}</saml:AttributeValue></saml:Attribute>"
        f'<saml:Attribute Name="name"><saml:AttributeValue>{told["name"]}</saml:AttributeValue>'
        f'</saml:Attribute><saml:Attribute Name="groups">{groups}</saml:Attribute>'
        f"</saml:AttributeStatement>{told['inside']}</saml:Assertion>"
    )


def response_xml(inside: str, **said: Any) -> str:
    told: dict[str, Any] = {
        "id": "_response1",
        "issuer": ISSUER,
        "destination": SP.acs_url,
        "in_response_to": REQUEST,
        "status": "urn:oasis:names:tc:SAML:2.0:status:Success",
        "version": "2.0",
        **said,
    }
    answered = f' InResponseTo="{told["in_response_to"]}"' if told["in_response_to"] else ""
    return (
        f'<samlp:Response xmlns:samlp="{SAMLP}" xmlns:saml="{SAML}" ID="{told["id"]}"'
        f' Version="{told["version"]}" IssueInstant="{at(NOW)}"'
        f' Destination="{told["destination"]}"{answered}>'
        f"<saml:Issuer>{told['issuer']}</saml:Issuer>"
        f'<samlp:Status><samlp:StatusCode Value="{told["status"]}"/></samlp:Status>'
        f"{inside}</samlp:Response>"
    )


def signature_xml(element: Element, signer: Signer = SIGNER, **said: Any) -> str:
    """A signature of the element as it is now, without any signature in it."""
    told: dict[str, Any] = {
        "algorithm": RSA_SHA256,
        "digest": SHA256,
        "canonicalization": EXC_C14N,
        "uri": f"#{element.get('ID')}",
        "transforms": transforms(),
        "key_info": f"<ds:KeyInfo><ds:X509Data><ds:X509Certificate>{signer.der_text}"
        "</ds:X509Certificate></ds:X509Data></ds:KeyInfo>",
        "references": 1,
        "object": "",
        "method_inside": "",
        "value": None,
        **said,
    }
    canonical = etree.tostring(element, method="c14n", exclusive=True, with_comments=False)
    hashed = hashlib.new(_DIGESTS.get(told["digest"], "sha256"), canonical).digest()
    reference = (
        f'<ds:Reference URI="{told["uri"]}"><ds:Transforms>{told["transforms"]}</ds:Transforms>'
        f'<ds:DigestMethod Algorithm="{told["digest"]}"></ds:DigestMethod>'
        f"<ds:DigestValue>{base64.b64encode(hashed).decode()}</ds:DigestValue></ds:Reference>"
    )
    info = (
        f'<ds:SignedInfo xmlns:ds="{DS}"><ds:CanonicalizationMethod'
        f' Algorithm="{told["canonicalization"]}"></ds:CanonicalizationMethod>'
        f'<ds:SignatureMethod Algorithm="{told["algorithm"]}">{told["method_inside"]}'
        f"</ds:SignatureMethod>{reference * told['references']}</ds:SignedInfo>"
    )
    canonical_info = etree.tostring(etree.fromstring(info), method="c14n", exclusive=True)
    value = told["value"]
    signed = (
        value(canonical_info)
        if value is not None
        else signer.sign(canonical_info, told["algorithm"])
    )
    return (
        f'<ds:Signature xmlns:ds="{DS}">{info}<ds:SignatureValue>'
        f"{base64.b64encode(signed).decode()}</ds:SignatureValue>{told['key_info']}"
        f"{told['object']}</ds:Signature>"
    )


def transforms(*algorithms: str, inside: str = "") -> str:
    return "".join(
        f'<ds:Transform Algorithm="{one}">{inside}</ds:Transform>'
        for one in algorithms or (ENVELOPED, EXC_C14N)
    )


def sign(element: Element, signer: Signer = SIGNER, **said: Any) -> Element:
    """Put a signature where the profile has it: right after the issuer."""
    made = etree.fromstring(signature_xml(element, signer, **said))
    issuer = element.find(tag(SAML, "Issuer"))
    assert issuer is not None
    issuer.addnext(made)
    return made


def signed_assertion(signer: Signer = SIGNER, **said: Any) -> Element:
    element = etree.fromstring(assertion_xml(**said))
    sign(element, signer)
    return element


def response(assertion: Element | None, *, signer: Signer | None = None, **said: Any) -> Element:
    """With `signer`, the response is signed as well."""
    inside = "" if assertion is None else etree.tostring(assertion).decode()
    root = etree.fromstring(response_xml(inside, **said))
    if signer is not None:
        sign(root, signer)
    return root


def good(**said: Any) -> Element:
    return response(signed_assertion(**said))


def xml(root: Element) -> bytes:
    return etree.tostring(root)


def trust(*signers: Signer, **said: Any) -> Trust:
    pems = tuple(one.pem for one in signers or (SIGNER,))
    return Trust(SamlSettings(ISSUER, SSO_URL, pems), **said)


def expected(**said: Any) -> ExpectedAssertion:
    return ExpectedAssertion(
        **{"issuer": ISSUER, "provider": SP, "request_id": REQUEST, "now": NOW, **said}
    )


def metadata_xml(*signers: Signer, **said: Any) -> bytes:
    told: dict[str, Any] = {"entity_id": ISSUER, "sso_url": SSO_URL, "use": "signing", **said}
    keys = "".join(
        f'<md:KeyDescriptor use="{told["use"]}"><ds:KeyInfo><ds:X509Data><ds:X509Certificate>'
        f"{one.der_text}</ds:X509Certificate></ds:X509Data></ds:KeyInfo></md:KeyDescriptor>"
        for one in signers or (SIGNER,)
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>'
        '<md:EntityDescriptor xmlns:md="urn:oasis:names:tc:SAML:2.0:metadata"'
        f' xmlns:ds="{DS}" entityID="{told["entity_id"]}">'
        f'<md:IDPSSODescriptor protocolSupportEnumeration="{SAMLP}">{keys}'
        '<md:SingleSignOnService Binding="urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Redirect"'
        f' Location="{told["sso_url"]}"/></md:IDPSSODescriptor></md:EntityDescriptor>'
    ).encode()
