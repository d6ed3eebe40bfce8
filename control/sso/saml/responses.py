"""A response of an identity provider: taken apart, verified, and read.

The document may have one response, one assertion and their signatures where the profile has them.
What could be taken for another of these, wherever it is, is refused, and the identity is read only
from what `signatures.verified` returns.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from control.sso.saml import assertions, documents, encryption, signatures
from control.sso.saml.assertions import AssertedIdentity, ExpectedAssertion
from control.sso.saml.documents import (
    DS,
    SAML,
    SAMLP,
    DocumentTooLarge,
    Element,
    XmlRefused,
    child,
    tag,
)
from control.sso.saml.known import SamlSettings
from control.sso.saml.reasons import SamlRefused

_SUCCESS: Final = "urn:oasis:names:tc:SAML:2.0:status:Success"
_STATUS: Final = "urn:oasis:names:tc:SAML:2.0:status:"
_CODE_MAX: Final = 60
ENCODED_MAX: Final = (documents.RESPONSE_BYTES_MAX + 2) // 3 * 4 + 8_192
"""Of a response in base64, line breaks included."""


@dataclass(frozen=True)
class Trust:
    """What the connection knows. `key` opens encrypted assertions; None: it takes none."""

    settings: SamlSettings
    key: RSAPrivateKey | None = None


def decoded(text: str) -> bytes:
    """What a form has as SAMLResponse. Raises SamlRefused."""
    if len(text) > ENCODED_MAX:
        raise SamlRefused("too_large")
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise SamlRefused("document_refused", "it is not base64") from None


def accept(
    xml: bytes, trust: Trust, expected: ExpectedAssertion, mapping: Mapping[str, str]
) -> AssertedIdentity:
    """Whom it is about. Raises SamlRefused for everything that is not as it should be."""
    try:
        root = documents.read(xml)
        _check_shape(root)
        _check_response(root, expected)
        assertion = _verified_assertion(root, trust, expected)
    except DocumentTooLarge:
        raise SamlRefused("too_large") from None
    except XmlRefused as refused:
        raise SamlRefused("document_refused", f"it {refused}") from None
    return assertions.identity_of(assertion, expected, mapping)


def _check_shape(root: Element) -> None:
    if root.tag != tag(SAMLP, "Response"):
        raise SamlRefused("document_refused", "it is no Response of SAML 2.0")
    signatures.check_ids(root)
    encrypted = list(root.iter(tag(SAML, "EncryptedAssertion")))
    plain = list(root.iter(tag(SAML, "Assertion")))
    # None is right where the provider refused somebody, which its status says.
    if len(encrypted) + len(plain) > 1 or any(
        each.getparent() is not root for each in (*encrypted, *plain)
    ):
        raise SamlRefused("assertion_count")
    if len(list(root.iter(tag(SAMLP, "Response")))) > 1:
        raise SamlRefused("document_refused", "it has a response within the response")
    _check_signatures(root, (root, *plain))


def _check_signatures(root: Element, bearers: tuple[Element, ...]) -> None:
    """Right below what they sign, and nowhere else: in no Object, extension or other signature."""
    for each in root.iter(tag(DS, "Signature")):
        if not any(each.getparent() is bearer for bearer in bearers):
            raise SamlRefused("signature_refused", "it is not right below what it signs")


def _check_response(root: Element, expected: ExpectedAssertion) -> None:
    """What is around the assertion. It may be unsigned: this refuses, and never lets anybody in."""
    if root.get("Version") != "2.0":
        raise SamlRefused("version_wrong")
    if root.get("Destination") not in {None, expected.provider.acs_url}:
        raise SamlRefused("destination_wrong")
    issuer = child(root, SAML, "Issuer")
    if issuer is not None and documents.text_of(issuer) != expected.issuer:
        raise SamlRefused("issuer_wrong")
    if root.get("InResponseTo") != expected.request_id:
        raise SamlRefused("in_response_to_wrong")
    _check_status(root)


def _check_status(root: Element) -> None:
    status = child(root, SAMLP, "Status")
    code = None if status is None else child(status, SAMLP, "StatusCode")
    if code is None:
        raise SamlRefused("document_refused", "it has no status")
    if code.get("Value") == _SUCCESS:
        return
    inner = child(code, SAMLP, "StatusCode")
    told = [each.get("Value", "") for each in (code, inner) if each is not None]
    names = [each.removeprefix(_STATUS) for each in told if each.startswith(_STATUS)]
    # A word of the specification, and not whatever somebody put there.
    raise SamlRefused(
        "identity_provider_refused",
        ", ".join(each for each in names if each.isalpha() and len(each) <= _CODE_MAX),
    )


def _verified_assertion(root: Element, trust: Trust, expected: ExpectedAssertion) -> Element:
    certificates = trust.settings.loaded()
    if signatures.signature_of(root) is not None:
        # As it was signed: what follows looks at nothing else.
        root = signatures.verified(root, certificates, expected.now)
    plain = child(root, SAML, "Assertion")
    if plain is not None:
        if trust.key is not None:
            raise SamlRefused("encryption_missing")
        return signatures.verified(plain, certificates, expected.now)
    sealed = child(root, SAML, "EncryptedAssertion")
    if sealed is None:
        raise SamlRefused("assertion_count")
    if trust.key is None:
        raise SamlRefused("encryption_unexpected")
    return _decrypted(sealed, trust.key, trust.settings, expected)


def _decrypted(
    sealed: Element, key: RSAPrivateKey, settings: SamlSettings, expected: ExpectedAssertion
) -> Element:
    """One refusal for whatever is wrong until the signature is right.

    Otherwise the answers would tell, of guess after guess, what somebody else's assertion says
    that was encrypted in CBC.
    """
    try:
        assertion = documents.read(encryption.decrypted(sealed, key))
        _check_assertion_alone(assertion)
        return signatures.verified(assertion, settings.loaded(), expected.now)
    except (XmlRefused, SamlRefused):
        raise SamlRefused("decryption_failed") from None


def _check_assertion_alone(assertion: Element) -> None:
    """As `_check_shape`, of what came out of an encryption."""
    signatures.check_ids(assertion)
    inside = list(assertion.iter(tag(SAML, "Assertion"), tag(SAML, "EncryptedAssertion")))
    if assertion.tag != tag(SAML, "Assertion") or len(inside) > 1:
        raise SamlRefused("assertion_count")
    _check_signatures(assertion, (assertion,))
