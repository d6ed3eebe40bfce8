"""What the provider did sign, and not for this service, this sign-in, this moment or anybody."""

from datetime import timedelta
from typing import Final

from lxml import etree

from contract_tests.saml import provider
from contract_tests.saml.attack_parts import Made, evil_of, makes, part
from contract_tests.saml.provider import (
    ISSUER,
    NOW,
    SP,
    at,
    good,
    response,
    sign,
    signed_assertion,
    xml,
)
from control.sso.saml.documents import SAML


@makes
def not_for_us() -> Made:
    """All of these the provider has signed."""
    other = "https://menagerie.example/v1/sso/saml/ssoc_01JD7QK3V8Y2M4N6P8R0S2T4V7/metadata"
    for name, said, reason in (
        ("another connection's audience", {"audience": other}, "audience_wrong"),
        ("audience that begins alike", {"audience": SP.entity_id + "x"}, "audience_wrong"),
        (
            "a second restriction",
            {"conditions": _restriction("https://other.example")},
            "audience_wrong",
        ),
        ("another recipient", {"recipient": "https://other.example/acs"}, "recipient_wrong"),
        ("recipient with a query", {"recipient": SP.acs_url + "?x"}, "recipient_wrong"),
        ("another request's", {"in_response_to": "_another"}, "in_response_to_wrong"),
        ("no request's", {"in_response_to": ""}, "in_response_to_wrong"),
        ("another issuer", {"issuer": "https://evil.example"}, "issuer_wrong"),
        ("issuer with a slash", {"issuer": f"{ISSUER}/"}, "issuer_wrong"),
        ("ended", {"ends": at(NOW - timedelta(minutes=2))}, "assertion_expired"),
        (
            "confirmation ended",
            {"confirmed_until": at(NOW - timedelta(minutes=2))},
            "assertion_expired",
        ),
        ("not yet", {"not_before": at(NOW + timedelta(minutes=2))}, "assertion_not_yet_valid"),
        ("a time without a zone", {"ends": "2026-11-30T12:05:00"}, "document_refused"),
        ("a time in another zone", {"ends": "2026-11-30T12:05:00+14:00"}, "document_refused"),
        ("no time", {"ends": "never"}, "document_refused"),
        ("no day", {"ends": "2026-11-31T12:05:00Z"}, "document_refused"),
        ("holder of key", {"method": "urn:oasis:names:tc:SAML:2.0:cm:holder-of-key"}, _NO_BEARER),
        ("sender vouches", {"method": "urn:oasis:names:tc:SAML:2.0:cm:sender-vouches"}, _NO_BEARER),
        ("an unknown condition", {"conditions": '<x xmlns="urn:x"/>'}, "condition_unknown"),
        ("SAML 1", {"version": "1.1"}, "version_wrong"),
        ("transient", {"format": f"{_FORMAT}:transient"}, "name_id_refused"),
        ("no NameID", {"name_id": ""}, "name_id_refused"),
        ("long NameID", {"name_id": "x" * 501}, "name_id_refused"),
        ("line in NameID", {"name_id": "eve\nada"}, "name_id_refused"),
        ("no address", {"email": "", "name_id": "x", "format": ""}, "attribute_missing"),
        ("line in an address", {"email": "eve@example.com\nBcc: x"}, "attribute_refused"),
        ("long address", {"email": "x" * 600}, "attribute_refused"),
        ("many groups", {"groups": [f"g{n}" for n in range(501)]}, "attribute_refused"),
        ("text that turns round", {"groups": ["a\u202eb"]}, "attribute_refused"),
    ):
        yield name, xml(good(**said)), reason


@makes
def responses_not_for_us() -> Made:
    """Around an assertion that is right."""
    for name, said, reason in (
        ("another destination", {"destination": "https://other.example/acs"}, "destination_wrong"),
        ("another issuer's response", {"issuer": "https://evil.example"}, "issuer_wrong"),
        ("response to another", {"in_response_to": "_another"}, "in_response_to_wrong"),
        ("response to none", {"in_response_to": ""}, "in_response_to_wrong"),
        ("SAML 1 response", {"version": "1.1"}, "version_wrong"),
        ("refused", {"status": f"{_STATUS}:Responder"}, "identity_provider_refused"),
    ):
        yield name, xml(response(signed_assertion(), signer=None, **said)), reason
    yield (
        "refused, nothing inside",
        xml(response(None, status=f"{_STATUS}:Requester")),
        ("identity_provider_refused"),
    )
    yield "success, nothing inside", xml(response(None)), "assertion_count"


_NO_BEARER: Final = "confirmation_missing"
_FORMAT: Final = "urn:oasis:names:tc:SAML:2.0:nameid-format"
_STATUS: Final = "urn:oasis:names:tc:SAML:2.0:status"


def _restriction(audience: str) -> str:
    return (
        f"<saml:AudienceRestriction><saml:Audience>{audience}</saml:Audience>"
        "</saml:AudienceRestriction>"
    )


@makes
def parts_missing() -> Made:
    """Signed by the provider, without a part that is needed, or with one twice."""
    for name, reasons in (
        ("Conditions", "audience_wrong"),
        ("AudienceRestriction", "audience_wrong"),
        ("AuthnStatement", "not_signed_in"),
        ("Subject", "name_id_refused"),
        ("NameID", "name_id_refused"),
        ("SubjectConfirmation", "confirmation_missing"),
        ("SubjectConfirmationData", "confirmation_missing"),
    ):
        element = etree.fromstring(provider.assertion_xml())
        gone = part(element, SAML, name)
        parent = gone.getparent()
        assert parent is not None
        parent.remove(gone)
        sign(element)
        yield f"without {name}", xml(response(element)), reasons
        element = etree.fromstring(provider.assertion_xml())
        twice = part(element, SAML, name)
        twice.addnext(evil_of(twice, "same"))
        if name in {"Conditions", "Subject", "NameID", "SubjectConfirmationData"}:
            sign(element)
            yield f"two of {name}", xml(response(element)), "document_refused"
    for name, attribute, value, reasons in (
        ("SubjectConfirmationData", "NotOnOrAfter", None, "confirmation_missing"),
        ("SubjectConfirmationData", "NotBefore", at(NOW), "confirmation_missing"),
        ("SubjectConfirmationData", "Recipient", None, "recipient_wrong"),
        ("AuthnStatement", "SessionNotOnOrAfter", at(NOW - timedelta(hours=1)), "session_expired"),
    ):
        element = etree.fromstring(provider.assertion_xml())
        place = part(element, SAML, name)
        if value is None:
            del place.attrib[attribute]
        else:
            place.set(attribute, value)
        sign(element)
        yield f"{attribute} of {name}: {value}", xml(response(element)), reasons
