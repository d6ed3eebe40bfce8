"""Encrypted assertions: opened with the connection's key, verified inside, refused in one way."""

import base64
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, OAEP
from lxml import etree

from contract_tests.saml import attack_parts, provider, sealing
from contract_tests.saml.provider import ADA, NOW, expected, trust, xml
from control.sso.saml import own_metadata, responses, service_provider
from control.sso.saml.documents import SAML, XENC, XENC11, Element, tag
from control.sso.saml.reasons import SamlRefused

PAIR = service_provider.new_key_pair("ssoc_01JD7QK3V8Y2M4N6P8R0S2T4V6", NOW)
KEY = PAIR.loaded()


def around(content: bytes, **said: Any) -> bytes:
    root = provider.response(None)
    root.append(sealing.encrypted(content, KEY.public_key(), **said))
    return xml(root)


def good(**said: Any) -> bytes:
    return around(xml(provider.signed_assertion()), **said)


def reason(content: bytes, key: rsa.RSAPrivateKey | None = KEY) -> str:
    with pytest.raises(SamlRefused) as caught:
        responses.accept(content, trust(key=key), expected(), {})
    return caught.value.reason


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"beside": True},
        {"algorithm": sealing.CBC},
        {"algorithm": f"{XENC11}aes128-gcm", "secret": b"k" * 16},
        {"algorithm": f"{XENC}aes128-cbc", "secret": b"k" * 16},
        {
            "wrapping": f"{XENC11}rsa-oaep",
            "method_inside": sealing.SHA256_OAEP,
            "padding": OAEP(MGF1(hashes.SHA256()), hashes.SHA256(), None),
        },
    ],
)
def test_an_encrypted_assertion_says_who_comes(said: dict[str, Any]) -> None:
    found = responses.accept(good(**said), trust(key=KEY), expected(), {})
    assert (found.email, found.groups) == (ADA, ("engineers", "admins"))


def test_a_signed_response_may_have_one() -> None:
    root = etree.fromstring(good())
    provider.sign(root)
    assert responses.accept(xml(root), trust(key=KEY), expected(), {}).email == ADA


def test_what_is_wanted_is_what_is_taken() -> None:
    """Who reads along could otherwise send the assertion on without its encryption."""
    assert reason(xml(provider.good())) == "encryption_missing"
    assert reason(good(), None) == "encryption_unexpected"


def _unsigned() -> bytes:
    return provider.assertion_xml(email=provider.EVE).encode()


def _hidden(element: Element) -> bytes:
    """The signed assertion within Eve's."""
    evil = attack_parts.evil_of(element, "new")
    evil.append(element)
    return xml(evil)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("unsigned", around(_unsigned())),
        ("unsigned, in CBC", around(_unsigned(), algorithm=sealing.CBC)),
        ("wrapped inside", around(_hidden(provider.signed_assertion()))),
        ("signed by another", around(xml(provider.signed_assertion(provider.OTHER)))),
        ("no assertion", around(b"<a/>")),
        ("a response", around(xml(provider.good()))),
        ("a DTD", around(b"<!DOCTYPE a><a/>")),
        ("no XML", around(b"text")),
        ("zeros", good(sealed=b"\0" * 160)),
        ("short", good(sealed=b"\0" * 3)),
        ("not whole", good(sealed=b"\0" * 33, algorithm=sealing.CBC)),
        ("bad padding", good(sealed=b"\0" * 160, algorithm=sealing.CBC)),
        ("PKCS #1 1.5", good(wrapping=f"{XENC}rsa-1_5", padding=sealing.PKCS1)),
        ("3DES", good(algorithm=f"{XENC}tripledes-cbc")),
        ("a short key", good(secret=b"k" * 16)),
        ("MGF of the old OAEP", good(method_inside=sealing.SHA256_OAEP)),
        (
            "parameters",
            good(method_inside=f'<x:OAEPparams xmlns:x="{XENC}">AA==</x:OAEPparams>'),
        ),
    ],
)
def test_whatever_is_wrong_is_told_in_one_way(name: str, content: bytes) -> None:
    """Otherwise the answers would tell what is in it, guess by guess."""
    assert reason(content) == "decryption_failed"


def test_another_key_opens_nothing() -> None:
    assert reason(good(), rsa.generate_private_key(65_537, 2_048)) == "decryption_failed"


def test_two_are_one_too_many() -> None:
    root = etree.fromstring(good())
    sealed = root.find(tag(SAML, "EncryptedAssertion"))
    assert sealed is not None
    root.append(etree.fromstring(xml(sealed)))
    assert reason(xml(root)) == "assertion_count"
    root = etree.fromstring(good())
    root.append(provider.signed_assertion())
    assert reason(xml(root)) == "assertion_count"


def test_each_changed_byte_is_refused() -> None:
    """In CBC they can be changed so that it still decrypts: the signature inside is what counts."""
    secret, content = b"k" * 32, xml(provider.signed_assertion())
    sealed = sealing.cbc(content, secret)
    for at in range(0, len(sealed), 97):
        changed = sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :]
        told = good(sealed=changed, secret=secret, algorithm=sealing.CBC)
        try:
            found = responses.accept(told, trust(key=KEY), expected(), {})
        except SamlRefused as refused:
            assert refused.reason == "decryption_failed"  # noqa: PT017
        else:
            # Padding is arbitrary but for its last byte, and signature values may have spaces.
            assert found.email == ADA


def test_keys_are_shown_nowhere() -> None:
    assert repr(PAIR) == "KeyPair()"
    shown = own_metadata.metadata_xml(
        provider.SP, PAIR.certificate, signs_requests=True, wants_encrypted=True
    )
    assert b"PRIVATE" not in shown
    assert base64.b64encode(b"PRIVATE")[:6] not in shown
