"""What an identity provider that is not ours sends is taken, and it takes what we send."""

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from lxml import etree
from saml2.response import IncorrectlySigned
from saml2.sigver import SIG_RSA_SHA512
from saml2.xmldsig import DIGEST_SHA512

from contract_tests.saml import identity_provider, provider
from contract_tests.saml.identity_provider import IdentityProvider
from contract_tests.saml.provider import ADA, SP, Signer
from control.sso.saml import metadata, own_metadata, requests, responses, service_provider
from control.sso.saml.assertions import ExpectedAssertion
from control.sso.saml.documents import SAML, XENC, XENC11, tag
from control.sso.saml.reasons import SamlRefused
from control.sso.saml.responses import Trust

NOW = datetime.now(UTC).replace(microsecond=0)
SIGNER = Signer(provider.SIGNER.key, NOW - timedelta(days=1), NOW + timedelta(days=1))
PAIR = service_provider.new_key_pair("ssoc_01JD7QK3V8Y2M4N6P8R0S2T4V6", NOW)
REQUEST = requests.new_id()


@pytest.fixture
def theirs(tmp_path: Path) -> IdentityProvider:
    return made(tmp_path)


def made(folder: Path, *, signs: bool = False) -> IdentityProvider:
    identity_provider.skip_without()
    ours = own_metadata.metadata_xml(
        SP, PAIR.certificate, signs_requests=signs, wants_encrypted=False
    )
    return IdentityProvider("https://idp.example.com", folder, SIGNER, ours, wants_signed=signs)


def query(theirs: IdentityProvider, *, signs: bool = False) -> dict[str, str]:
    url = requests.redirect_url(
        SP,
        metadata.parse(theirs.metadata),
        request_id=REQUEST,
        relay_state="state",
        now=NOW,
        key=PAIR.loaded() if signs else None,
    )
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


def accepted(theirs: IdentityProvider, answer: str, **said: Any) -> Any:
    trust = Trust(metadata.parse(theirs.metadata), **said)
    expected = ExpectedAssertion(trust.settings.entity_id, SP, REQUEST, datetime.now(UTC))
    return responses.accept(responses.decoded(answer), trust, expected, {})


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sign_response": True},
        {"sign_alg": SIG_RSA_SHA512, "digest_alg": DIGEST_SHA512},
    ],
)
def test_its_answer_is_taken(theirs: IdentityProvider, options: dict[str, Any]) -> None:
    found = accepted(theirs, theirs.answer(query(theirs), ADA, **options))
    assert (found.subject, found.email, found.name) == (f"persistent-{ADA}", ADA, "Ada Lovelace")
    assert found.groups == ("engineers",)


def test_it_reads_our_request(theirs: IdentityProvider) -> None:
    asked = theirs.asked(query(theirs))
    assert asked.id == REQUEST
    assert asked.assertion_consumer_service_url == SP.acs_url
    assert asked.issuer.text == SP.entity_id


def test_it_verifies_our_signed_request(tmp_path: Path) -> None:
    theirs = made(tmp_path, signs=True)
    signed = query(theirs, signs=True)
    assert theirs.asked(signed).id == REQUEST
    with pytest.raises(IncorrectlySigned):
        theirs.asked({**signed, "RelayState": "another"})


def test_what_it_does_by_itself_is_too_weak(theirs: IdentityProvider) -> None:
    weak = theirs.answer(query(theirs), ADA, sign_alg=None, digest_alg=None)
    with pytest.raises(SamlRefused) as caught:
        accepted(theirs, weak)
    assert caught.value.reason == "algorithm_refused"
    only_response = theirs.answer(query(theirs), ADA, sign_assertion=False, sign_response=True)
    with pytest.raises(SamlRefused) as caught:
        accepted(theirs, only_response)
    assert caught.value.reason == "signature_missing"


@pytest.mark.parametrize("algorithm", [f"{XENC}aes256-cbc", f"{XENC11}aes256-gcm"])
def test_what_xmlsec_encrypts_is_opened(
    theirs: IdentityProvider, tmp_path: Path, algorithm: str
) -> None:
    root = etree.fromstring(base64.b64decode(theirs.answer(query(theirs), ADA)))
    assertion = root.find(tag(SAML, "Assertion"))
    assert assertion is not None
    content = etree.tostring(assertion, with_tail=False)
    sealed = identity_provider.encrypted(content, PAIR.certificate, algorithm, tmp_path)
    around = etree.Element(tag(SAML, "EncryptedAssertion"))
    around.append(etree.fromstring(sealed))
    root.replace(assertion, around)
    answer = base64.b64encode(etree.tostring(root)).decode()
    assert accepted(theirs, answer, key=PAIR.loaded()).email == ADA
