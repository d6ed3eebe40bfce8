"""Signatures that are missing, weak, by another key, or do more than sign."""

import base64
import copy
import hashlib
import hmac
from datetime import timedelta
from typing import Final

from cryptography.hazmat.primitives import serialization
from lxml import etree

from contract_tests.saml import provider
from contract_tests.saml.attack_parts import Made, makes, part
from contract_tests.saml.provider import (
    EVE,
    NOW,
    OTHER,
    REQUEST,
    SIGNER,
    at,
    good,
    response,
    sign,
    signed_assertion,
    transforms,
    xml,
)
from control.sso.saml.documents import DS, EXC_C14N, tag

_MORE: Final = "http://www.w3.org/2001/04/xmldsig-more#"


@makes
def unsigned() -> Made:
    element = etree.fromstring(provider.assertion_xml(email=EVE))
    yield "unsigned", xml(response(element)), "signature_missing"
    yield (
        "response signed, assertion not",
        xml(response(element, signer=SIGNER)),
        ("signature_missing"),
    )
    root = good()
    signature = part(root, DS, "Signature")
    signature.addprevious(etree.Element(tag(DS, "Signature")))
    yield "an empty signature before", xml(root), "signature_refused"
    root = good()
    root.insert(1, copy.deepcopy(part(root, DS, "Signature")))
    yield "the assertion's signature at the response too", xml(root), "signature_refused"
    root = response(signed_assertion(), signer=OTHER)
    yield "response signed by another key", xml(root), "signature_wrong"
    root = response(signed_assertion(), signer=SIGNER)
    root.set("InResponseTo", REQUEST)
    root.set("IssueInstant", at(NOW + timedelta(days=1)))
    yield "signed response changed", xml(root), "signature_wrong"
    root = good()
    for each in root.iter():
        if each.text and "ada" in each.text:
            each.text = EVE
    yield "signed assertion changed", xml(root), "signature_wrong"


@makes
def other_keys() -> Made:
    """Keys that come with the document are of no weight."""
    yield (
        "signed by a key of the attacker's, which is in KeyInfo",
        (xml(response(signed_assertion(OTHER, email=EVE)))),
        "signature_wrong",
    )
    numbers = OTHER.certificate.public_key().public_numbers()  # type: ignore[union-attr]
    for name, inside in (
        ("KeyValue", _key_value(numbers.n, numbers.e)),  # type: ignore[union-attr]
        ("RetrievalMethod", '<ds:RetrievalMethod URI="https://evil.example/key"/>'),
        ("KeyName", "<ds:KeyName>/etc/passwd</ds:KeyName>"),
        (
            "X509 by its issuer",
            _x509(
                "<ds:X509IssuerSerial><ds:X509IssuerName>CN=idp.example.com</ds:X509IssuerName>"
                "<ds:X509SerialNumber>7</ds:X509SerialNumber></ds:X509IssuerSerial>"
            ),
        ),
        (
            "the right certificate, and the attacker's key",
            _x509(f"<ds:X509Certificate>{SIGNER.der_text}</ds:X509Certificate>"),
        ),
    ):
        element = etree.fromstring(provider.assertion_xml(email=EVE))
        sign(element, OTHER, key_info=f"<ds:KeyInfo>{inside}</ds:KeyInfo>")
        yield f"attacker's key by {name}", xml(response(element)), "signature_wrong"


def _x509(inside: str) -> str:
    return f"<ds:X509Data>{inside}</ds:X509Data>"


def _key_value(modulus: int, exponent: int) -> str:
    def text(number: int) -> str:
        return base64.b64encode(number.to_bytes((number.bit_length() + 7) // 8, "big")).decode()

    return (
        f"<ds:KeyValue><ds:RSAKeyValue><ds:Modulus>{text(modulus)}</ds:Modulus>"
        f"<ds:Exponent>{text(exponent)}</ds:Exponent></ds:RSAKeyValue></ds:KeyValue>"
    )


@makes
def weak_algorithms() -> Made:
    for algorithm in (f"{DS}rsa-sha1", f"{_MORE}rsa-md5", f"{_MORE}rsa-sha224"):
        element = etree.fromstring(provider.assertion_xml(email=EVE))
        sign(element, algorithm=algorithm)
        yield f"signed with {algorithm}", xml(response(element)), "algorithm_refused"
    for digest in (f"{DS}sha1", f"{_MORE}md5"):
        element = etree.fromstring(provider.assertion_xml(email=EVE))
        sign(element, digest=digest)
        yield f"digested with {digest}", xml(response(element)), "algorithm_refused"
    for algorithm in ("", "none", "http://www.w3.org/2007/05/xmldsig-more#sha1-rsa-MGF1"):
        element = etree.fromstring(provider.assertion_xml(email=EVE))
        sign(element, algorithm=algorithm, value=lambda _info: b"\0" * 256)
        yield f"algorithm '{algorithm}'", xml(response(element)), "algorithm_refused"


@makes
def public_key_as_secret() -> Made:
    """HMAC, whose secret would be what everybody knows."""
    public = SIGNER.certificate.public_bytes(serialization.Encoding.PEM)
    der = SIGNER.certificate.public_bytes(serialization.Encoding.DER)
    for secret in (public, der, public.strip(), b""):
        element = etree.fromstring(provider.assertion_xml(email=EVE))
        sign(
            element,
            algorithm=f"{_MORE}hmac-sha256",
            value=lambda info, secret=secret: hmac.digest(secret, info, hashlib.sha256),
        )
        yield f"HMAC of {len(secret)} bytes", xml(response(element)), "algorithm_refused"
    element = etree.fromstring(provider.assertion_xml(email=EVE))
    sign(element, method_inside="<ds:HMACOutputLength>0</ds:HMACOutputLength>")
    yield "HMACOutputLength of RSA", xml(response(element)), "algorithm_refused"


_XSLT: Final = (
    '<xsl:stylesheet xmlns:xsl="http://www.w3.org/1999/XSL/Transform" version="1.0">'
    '<xsl:template match="/"><xsl:copy-of select="document(\'file:///etc/passwd\')"/>'
    "</xsl:template></xsl:stylesheet>"
)


@makes
def transformed() -> Made:
    """What a signature may do with what it signs, beyond what SAML needs."""
    for name, told in (
        ("XSLT", transforms("http://www.w3.org/TR/1999/REC-xslt-19991116", inside=_XSLT)),
        ("XPath", transforms("http://www.w3.org/TR/1999/REC-xpath-19991116", inside="1=1")),
        ("XPath filter", transforms("http://www.w3.org/2002/06/xmldsig-filter2")),
        ("base64", transforms(f"{DS}base64")),
        ("enveloped alone", transforms(provider.ENVELOPED)),
        ("canonicalization alone", transforms(EXC_C14N)),
        ("none", ""),
        ("twice", transforms(*(provider.ENVELOPED, EXC_C14N) * 2)),
        ("in another order", transforms(EXC_C14N, provider.ENVELOPED)),
        ("with comments", transforms(provider.ENVELOPED, f"{EXC_C14N}WithComments")),
        ("inclusive", transforms(provider.ENVELOPED, "http://www.w3.org/2006/12/xml-c14n11")),
        ("unknown", transforms(provider.ENVELOPED, "urn:example:unknown")),
        ("parameters", transforms(inside="<ds:XPath>self::node()</ds:XPath>")),
    ):
        element = etree.fromstring(provider.assertion_xml(email=EVE))
        sign(element, transforms=told)
        yield f"transforms: {name}", xml(response(element)), "signature_refused"
    inclusive = "http://www.w3.org/TR/2001/REC-xml-c14n-20010315"
    element = etree.fromstring(provider.assertion_xml(email=EVE))
    sign(element, canonicalization=inclusive)
    yield "SignedInfo by another canonicalization", xml(response(element)), "signature_refused"
    many = " ".join(f"p{number}" for number in range(1_000))
    told = transforms(provider.ENVELOPED) + transforms(
        EXC_C14N, inside=f'<ec:InclusiveNamespaces xmlns:ec="{EXC_C14N}" PrefixList="{many}"/>'
    )
    element = etree.fromstring(provider.assertion_xml(email=EVE))
    sign(element, transforms=told)
    yield "a thousand prefixes", xml(response(element)), "signature_refused"


@makes
def references() -> Made:
    for uri in (
        *("", "#", "#_response1", "#_none", "#xpointer(/)", "#xpointer(id('_assertion1'))"),
        *("file:///etc/passwd", "https://evil.example/assertion", "_assertion1", "#_assertion1 "),
    ):
        element = etree.fromstring(provider.assertion_xml(email=EVE))
        sign(element, uri=uri)
        yield f"reference to '{uri}'", xml(response(element)), "signature_refused"
    for count in (0, 2, 50):
        element = etree.fromstring(provider.assertion_xml(email=EVE))
        sign(element, references=count)
        yield f"{count} references", xml(response(element)), "signature_refused"
    element = etree.fromstring(provider.assertion_xml(email=EVE))
    sign(element, object="<ds:Object><ds:Manifest/></ds:Object>")
    yield "an Object", xml(response(element)), "signature_refused"
    element = etree.fromstring(provider.assertion_xml(email=EVE))
    sign(element, value=lambda _info: b"")
    yield "an empty value", xml(response(element)), "signature_refused"
    for ident in ("", "1st", "a b", "_x'or'1'='1", "_" + "x" * 300):
        element = signed_assertion(id=ident)
        yield f"ID '{ident[:20]}'", xml(response(element)), "signature_refused document_refused"
