"""A response lets in whom it is about; one that is not as it should be, nobody, and says why."""

from datetime import timedelta
from itertools import groupby

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from lxml import etree

from contract_tests.saml import attacks, provider
from contract_tests.saml.attack_parts import Attack
from contract_tests.saml.provider import ADA, NOW, OTHER, SIGNER, Signer, expected, trust, xml
from control.sso.saml import reasons, responses
from control.sso.saml.assertions import AssertedIdentity
from control.sso.saml.documents import EXC_C14N
from control.sso.saml.reasons import SamlRefused

ATTACKS = attacks.all_of_them()


def accepted(content: bytes, **said: object) -> AssertedIdentity:
    return responses.accept(content, trust(), expected(**said), {})


def refused(content: bytes, **said: object) -> str:
    with pytest.raises(SamlRefused) as caught:
        accepted(content, **said)
    assert caught.value.status == 401
    assert caught.value.code == "saml_refused"
    return caught.value.reason


def test_a_response_says_who_comes() -> None:
    found = accepted(xml(provider.good()))
    assert (found.subject, found.email, found.name) == (ADA, ADA, "Ada Lovelace")
    assert found.groups == ("engineers", "admins")
    assert found.assertion_id == "_assertion1"
    assert found.ends_at == NOW + timedelta(minutes=6)


@pytest.mark.parametrize(
    "attack", ATTACKS, ids=[f"{number} {one.name}" for number, one in enumerate(ATTACKS)]
)
def test_an_attack_is_refused_for_what_it_is(attack: Attack) -> None:
    assert refused(attack.xml) in attack.reasons
    assert attack.reasons <= reasons.REASONS.keys()


def test_there_are_attacks_of_each_kind() -> None:
    assert len(ATTACKS) > 130
    assert len({one.xml for one in ATTACKS}) > len(ATTACKS) - 5
    numbers = {one.name.split(",")[0] for one in ATTACKS if one.name.startswith("wrapping")}
    assert numbers == {f"wrapping {number}" for number in range(1, 9)}
    assert all(len(list(group)) < 5 for _, group in groupby(sorted(one.name for one in ATTACKS)))


def test_response_and_assertion_may_both_be_signed() -> None:
    both = provider.response(provider.signed_assertion(), signer=SIGNER)
    assert accepted(xml(both)).email == ADA


def test_the_parts_of_a_signed_response_are_read_from_what_it_signs() -> None:
    """What is verified twice is read once, of the innermost."""
    both = provider.response(provider.signed_assertion(), signer=SIGNER)
    for each in both.iter():
        if each.text == ADA:
            each.text = provider.EVE
    assert refused(xml(both)) == "signature_wrong"


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1()])
def test_elliptic_curves_sign_as_well(curve: ec.EllipticCurve) -> None:
    signer = Signer(ec.generate_private_key(curve))
    element = etree.fromstring(provider.assertion_xml())
    provider.sign(element, signer, algorithm=provider.ECDSA_SHA256)
    content = xml(provider.response(element))
    assert responses.accept(content, trust(signer), expected(), {}).email == ADA
    assert refused(content) == "signature_wrong"


def test_any_of_the_certificates_may_have_signed() -> None:
    """So that a provider can change its key: both are known for a while."""
    content = xml(provider.good())
    assert responses.accept(content, trust(OTHER, SIGNER), expected(), {}).email == ADA
    with pytest.raises(SamlRefused):
        responses.accept(content, trust(OTHER), expected(), {})


def test_a_certificate_that_is_not_valid_now_signs_nothing() -> None:
    past = Signer(SIGNER.key, ends=NOW - timedelta(seconds=1))
    future = Signer(SIGNER.key, begins=NOW + timedelta(seconds=1))
    content = xml(provider.good())
    for signers in ([past], [future], [past, future]):
        with pytest.raises(SamlRefused) as caught:
            responses.accept(content, trust(*signers), expected(), {})
        assert caught.value.reason == "certificate_expired"
    assert responses.accept(content, trust(past, SIGNER), expected(), {}).email == ADA


def test_clocks_may_differ_a_little() -> None:
    soon = provider.good(not_before=provider.at(NOW + timedelta(seconds=59)))
    assert accepted(xml(soon)).email == ADA
    past = provider.at(NOW - timedelta(seconds=59))
    assert accepted(xml(provider.good(ends=past, confirmed_until=past))).email == ADA


def test_an_assertion_is_remembered_for_a_day_at_most() -> None:
    far = provider.at(NOW + timedelta(days=4_000))
    found = accepted(xml(provider.good(ends=far, confirmed_until=far)))
    assert found.ends_at == NOW + timedelta(hours=24, minutes=1)


def test_what_the_provider_began_answers_nothing() -> None:
    content = xml(
        provider.response(provider.signed_assertion(in_response_to=""), in_response_to="")
    )
    assert accepted(content, request_id=None).email == ADA
    assert refused(content) == "in_response_to_wrong"
    # One that answers a request, of whoever, is not such a one.
    assert refused(xml(provider.good()), request_id=None) == "in_response_to_wrong"
    half = provider.response(provider.signed_assertion(), in_response_to="")
    assert refused(xml(half), request_id=None) == "in_response_to_wrong"


def test_inclusive_prefixes_are_usual() -> None:
    inside = f'<ec:InclusiveNamespaces xmlns:ec="{EXC_C14N}" PrefixList="xs"/>'
    told = provider.transforms(provider.ENVELOPED) + provider.transforms(EXC_C14N, inside=inside)
    element = etree.fromstring(provider.assertion_xml())
    canonical = etree.tostring(element, method="c14n", exclusive=True, inclusive_ns_prefixes=["xs"])
    assert b"xmlns:xs" in canonical
    # The signer of these tests digests without prefixes: what differs is found to differ.
    provider.sign(element, transforms=told)
    assert refused(xml(provider.response(element))) == "signature_wrong"


@pytest.mark.parametrize(
    ("mapping", "email", "groups"),
    [
        ({}, ADA, ("engineers", "admins")),
        ({"groups": "name"}, ADA, ("Ada Lovelace",)),
        ({"groups": "nothing"}, ADA, ()),
        ({"email": "email", "name": "nothing"}, ADA, ("engineers", "admins")),
    ],
)
def test_the_mapping_says_where_things_are(
    mapping: dict[str, str], email: str, groups: tuple[str, ...]
) -> None:
    found = responses.accept(xml(provider.good()), trust(), expected(), mapping)
    assert (found.email, found.groups) == (email, groups)


def test_an_address_is_only_where_the_mapping_says() -> None:
    with pytest.raises(SamlRefused) as caught:
        responses.accept(xml(provider.good()), trust(), expected(), {"email": "nothing"})
    assert caught.value.reason == "attribute_missing"
    persistent = "urn:oasis:names:tc:SAML:2.0:nameid-format:persistent"
    assert refused(xml(provider.good(email="", format=persistent))) == "attribute_missing"
    # Without one, a NameID that is an address will do.
    assert accepted(xml(provider.good(email=""))).email == ADA


def test_what_a_form_has_is_base64_of_a_bounded_length() -> None:
    assert responses.decoded("PGEv\r\nPg==") == b"<a/>"
    for text, reason in (("%", "document_refused"), ("A" * 400_000, "too_large")):
        with pytest.raises(SamlRefused) as caught:
            responses.decoded(text)
        assert caught.value.reason == reason
