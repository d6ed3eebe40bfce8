"""Metadata: what a provider's says is kept, what cannot be used is told, ours says what we are."""

import base64
from typing import Any
from urllib.parse import parse_qs, urlsplit
from zlib import decompress

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from lxml import etree

from contract_tests.saml import provider
from contract_tests.saml.provider import ISSUER, NOW, OTHER, SIGNER, SP, SSO_URL, Signer
from control.sso.saml import metadata, own_metadata, requests, service_provider
from control.sso.saml.documents import DS, METADATA, SAML, SAMLP, tag
from control.sso.saml.known import SamlSettings
from control.sso.saml.metadata import MetadataRefused

PAIR = service_provider.new_key_pair("ssoc_01JD7QK3V8Y2M4N6P8R0S2T4V6", NOW)


def test_metadata_says_who_signs_and_where_people_go() -> None:
    found = metadata.parse(provider.metadata_xml(SIGNER, OTHER, SIGNER))
    assert found == SamlSettings(ISSUER, SSO_URL, (SIGNER.pem, OTHER.pem))
    assert SamlSettings.of_json(found.as_json()) == found


def test_keys_for_encryption_sign_nothing() -> None:
    with pytest.raises(MetadataRefused, match="certificate for signing"):
        metadata.parse(provider.metadata_xml(use="encryption"))


def test_a_federation_may_have_one_provider() -> None:
    one = provider.metadata_xml().split(b"?>")[1]
    around = b'<f:EntitiesDescriptor xmlns:f="%s">%%s</f:EntitiesDescriptor>' % METADATA.encode()
    assert metadata.parse(around % one).entity_id == ISSUER
    with pytest.raises(MetadataRefused, match="has 2 identity providers"):
        metadata.parse(around % (one * 2))


@pytest.mark.parametrize(
    ("xml", "told"),
    [
        (b"", "not well-formed"),
        (b"<html/>", "must be an EntityDescriptor"),
        (b"<!DOCTYPE x [<!ENTITY a 'b'>]><x>&a;</x>", "must not have a DTD"),
        (b"<a>" * 200 + b"</a>" * 200, "deep"),
        (b"<a>" + b" " * 600_000 + b"</a>", "at most 512 KiB"),
        (provider.metadata_xml(entity_id=""), "must have an entityID"),
        (provider.metadata_xml(sso_url="http://idp.example.com/"), "https://"),
        (provider.metadata_xml(sso_url="javascript:alert(1)"), "https://"),
        (provider.metadata_xml(sso_url="https://u:p@idp.example.com/"), "https://"),
        (provider.metadata_xml(sso_url="https://idp.example.com\\@evil.example/"), "https://"),
        (provider.metadata_xml(sso_url="https://idp.example.com/#x"), "https://"),
        (provider.metadata_xml(sso_url="//idp.example.com/"), "https://"),
        (provider.metadata_xml(sso_url="https://[::1"), "https://"),
        (provider.metadata_xml(Signer(rsa.generate_private_key(65_537, 1_024))), "too weak"),
        (provider.metadata_xml(Signer(ec.generate_private_key(ec.SECP192R1()))), "too weak"),
        (provider.metadata_xml().replace(b"MII", b"NII"), "cannot be read"),
        (provider.metadata_xml().replace(b"MII", b"%%%"), "cannot be read"),
        (provider.metadata_xml().replace(b"HTTP-Redirect", b"SOAP"), "HTTP-Redirect"),
        (provider.metadata_xml().replace(b"IDPSSODescriptor", b"SPSSODescriptor"), "service prov"),
        (
            provider.metadata_xml(
                *(Signer(SIGNER.key, begins=NOW.replace(day=d)) for d in range(1, 12))
            ),
            "at most 10",
        ),
    ],
)
def test_what_cannot_be_used_is_told(xml: bytes, told: str) -> None:
    with pytest.raises(MetadataRefused, match=told):
        metadata.parse(xml)


def test_our_own_metadata_is_not_taken_for_a_providers() -> None:
    with pytest.raises(MetadataRefused, match="this service's own"):
        metadata.parse(ours())


def ours(**said: Any) -> bytes:
    told = {"signs_requests": True, "wants_encrypted": False, **said}
    return own_metadata.metadata_xml(SP, PAIR.certificate, **told)


def test_ours_says_where_responses_go_and_what_signs() -> None:
    root = etree.fromstring(ours())
    assert root.get("entityID") == SP.entity_id
    role = root[0]
    assert role.get("WantAssertionsSigned") == "true"
    assert role.get("AuthnRequestsSigned") == "true"
    place = role.find(tag(METADATA, "AssertionConsumerService"))
    assert place is not None
    assert (
        place.get("Location")
        == SP.acs_url
        == ("https://menagerie.example/account/sso/ssoc_01JD7QK3V8Y2M4N6P8R0S2T4V6/acs")
    )
    uses = [each.get("use") for each in root.iter(tag(METADATA, "KeyDescriptor"))]
    assert uses == ["signing"]
    both = etree.fromstring(ours(wants_encrypted=True))
    uses = [each.get("use") for each in both.iter(tag(METADATA, "KeyDescriptor"))]
    assert uses == ["signing", "encryption"]
    assert len(list(both.iter(tag(DS, "X509Certificate")))) == 2


def asked(url: str) -> tuple[dict[str, str], etree._Element]:
    query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
    packed = base64.b64decode(query["SAMLRequest"])
    return query, etree.fromstring(decompress(packed, -15))


def test_a_request_says_who_asks_and_where_to_answer() -> None:
    settings = SamlSettings(ISSUER, f"{SSO_URL}?tenant=1", (SIGNER.pem,))
    url = requests.redirect_url(
        SP, settings, request_id="_1", relay_state="st&te", now=NOW, key=None
    )
    assert url.startswith(f"{SSO_URL}?tenant=1&SAMLRequest=")
    query, root = asked(url)
    assert query.keys() == {"tenant", "SAMLRequest", "RelayState"}
    assert query["RelayState"] == "st&te"
    assert root.tag == tag(SAMLP, "AuthnRequest")
    assert root.get("ID") == "_1"
    assert root.get("IssueInstant") == "2026-11-30T12:00:00Z"
    assert root.get("AssertionConsumerServiceURL") == SP.acs_url
    assert root.findtext(tag(SAML, "Issuer")) == SP.entity_id


def test_a_signed_request_is_verified_by_our_certificate() -> None:
    settings = SamlSettings(ISSUER, SSO_URL, (SIGNER.pem,))
    key = PAIR.loaded()
    url = requests.redirect_url(SP, settings, request_id="_1", relay_state="x", now=NOW, key=key)
    signed, _, _ = urlsplit(url).query.partition("&Signature=")
    value = base64.b64decode(asked(url)[0]["Signature"])
    key.public_key().verify(value, signed.encode(), PKCS1v15(), SHA256())


def test_ids_of_requests_are_names_and_are_not_guessed() -> None:
    made = {requests.new_id() for _ in range(100)}
    assert len(made) == 100
    assert all(len(each) == 41 and each.startswith("_") for each in made)
