"""Whether a verified assertion is for us and for now, and whom it is about.

Nothing here is given anything but the element that `signatures.verified` returns.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from control.sso.saml import documents
from control.sso.saml.documents import SAML, Element, XmlRefused, child, children, tag
from control.sso.saml.reasons import SamlRefused
from control.sso.saml.service_provider import ServiceProvider

LEEWAY: Final = timedelta(seconds=60)
"""By which the clocks of the provider and of our database may differ."""
LASTS_MAX: Final = timedelta(hours=24)
"""Of an assertion: for so long it has to be remembered as used."""
BEARER: Final = "urn:oasis:names:tc:SAML:2.0:cm:bearer"
_TRANSIENT: Final = "urn:oasis:names:tc:SAML:2.0:nameid-format:transient"
# A persistent one may look like an address, and is none.
_MAY_BE_EMAIL: Final = frozenset(
    {
        "",
        "urn:oasis:names:tc:SAML:1.1:nameid-format:emailAddress",
        "urn:oasis:names:tc:SAML:1.1:nameid-format:unspecified",
    }
)
_KNOWN_CONDITIONS: Final = frozenset(
    tag(SAML, name) for name in ("AudienceRestriction", "OneTimeUse", "ProxyRestriction")
)
# xs:dateTime in UTC, which SAML demands; fractions of any length.
_INSTANT: Final = re.compile(
    r"(\d{4}-(?:0\d|1[0-2])-[0-3]\dT[0-2]\d:[0-5]\d:[0-5]\d)(\.\d{1,20})?(?:Z|\+00:00)"
)
_SUBJECT_MAX: Final = 500
_TEXT_MAX: Final = 500
_GROUPS_MAX: Final = 500
_ID_MAX: Final = 256
_CLAIMS: Final = "http://schemas.xmlsoap.org/ws/2005/05/identity/claims"
DEFAULT_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "email": (
        *("email", "mail", f"{_CLAIMS}/emailaddress", "urn:oid:0.9.2342.19200300.100.1.3"),
        *("emailAddress", "Email"),
    ),
    "name": (
        *("name", "displayName", "http://schemas.microsoft.com/identity/claims/displayname"),
        *("urn:oid:2.16.840.1.113730.3.1.241", "cn"),
    ),
    "groups": (
        *("groups", "http://schemas.microsoft.com/ws/2008/06/identity/claims/groups"),
        *("memberOf", "Group", "urn:oid:1.3.6.1.4.1.5923.1.5.1.1"),
    ),
}
"""Where each is looked for, in this order, unless the connection's attribute mapping names it."""


_MFA: Final = frozenset(
    {
        "http://schemas.microsoft.com/claims/multipleauthn",
        "https://refeds.org/profile/mfa",
        "urn:oasis:names:tc:SAML:2.0:ac:classes:MobileTwoFactorContract",
        "urn:oasis:names:tc:SAML:2.0:ac:classes:MobileTwoFactorUnregistered",
    }
)
"""What providers say of a second factor: as the context of a sign-in or, Entra ID, an attribute."""
_METHODS: Final = "http://schemas.microsoft.com/claims/authnmethodsreferences"


@dataclass(frozen=True)
class ExpectedAssertion:
    """What an assertion has to say. `request_id`: None, where the provider began the sign-in."""

    issuer: str
    provider: ServiceProvider
    request_id: str | None
    now: datetime


@dataclass(frozen=True)
class AssertedIdentity:
    """Of a person, as verified; `assertion_id` may be used once until `ends_at`.

    `has_mfa` is whether the provider says that they passed a second factor, and when: at
    `authenticated_at`, as long ago as that may be.
    """

    assertion_id: str
    ends_at: datetime
    subject: str
    email: str
    name: str
    groups: tuple[str, ...]
    has_mfa: bool = False
    authenticated_at: datetime | None = None


def identity_of(
    assertion: Element, expected: ExpectedAssertion, mapping: Mapping[str, str]
) -> AssertedIdentity:
    """Raises SamlRefused for an assertion that is not for us, not for now, or of nobody."""
    try:
        _check_head(assertion, expected)
        ends_at = _check_conditions(assertion, expected)
        subject = child(assertion, SAML, "Subject")
        if subject is None:
            raise SamlRefused("name_id_refused")
        confirmed_until = _check_confirmation(subject, expected)
        _check_signed_in(assertion, expected.now)
        return _read(assertion, subject, mapping, min(ends_at, confirmed_until))
    except XmlRefused as refused:
        raise SamlRefused("document_refused", str(refused)) from None


def _check_head(assertion: Element, expected: ExpectedAssertion) -> None:
    if assertion.get("Version") != "2.0":
        raise SamlRefused("version_wrong")
    if not 0 < len(assertion.get("ID", "")) <= _ID_MAX:
        raise SamlRefused("document_refused", "the assertion has no ID")
    issuer = child(assertion, SAML, "Issuer")
    if issuer is None or documents.text_of(issuer) != expected.issuer:
        raise SamlRefused("issuer_wrong")


def _check_conditions(assertion: Element, expected: ExpectedAssertion) -> datetime:
    """When they end."""
    conditions = child(assertion, SAML, "Conditions")
    if conditions is None:
        raise SamlRefused("audience_wrong", "there is no AudienceRestriction")
    if any(each.tag not in _KNOWN_CONDITIONS for each in conditions):
        raise SamlRefused("condition_unknown")
    _check_not_before(conditions, expected.now)
    restrictions = children(conditions, SAML, "AudienceRestriction")
    if not restrictions:
        raise SamlRefused("audience_wrong", "there is no AudienceRestriction")
    for restriction in restrictions:
        audiences = [documents.text_of(one) for one in children(restriction, SAML, "Audience")]
        if expected.provider.entity_id not in audiences:
            raise SamlRefused("audience_wrong")
    return _end(conditions, expected.now) or expected.now + LASTS_MAX


def _check_confirmation(subject: Element, expected: ExpectedAssertion) -> datetime:
    """When it ends; of several confirmations one has to be right, and the last says what is not."""
    refused = SamlRefused("confirmation_missing")
    for confirmation in children(subject, SAML, "SubjectConfirmation"):
        if confirmation.get("Method") != BEARER:
            continue
        data = child(confirmation, SAML, "SubjectConfirmationData")
        try:
            return _check_bearer(data, expected)
        except SamlRefused as why:
            refused = why
    raise refused


def _check_bearer(data: Element | None, expected: ExpectedAssertion) -> datetime:
    if data is None:
        raise SamlRefused("confirmation_missing", "it has no SubjectConfirmationData")
    if data.get("Recipient") != expected.provider.acs_url:
        raise SamlRefused("recipient_wrong")
    if data.get("NotBefore") is not None:
        raise SamlRefused("confirmation_missing", "a bearer confirmation has no NotBefore")
    if data.get("InResponseTo") != expected.request_id:
        raise SamlRefused("in_response_to_wrong")
    end = _end(data, expected.now)
    if end is None:
        raise SamlRefused("confirmation_missing", "it has no NotOnOrAfter")
    return end


def _check_signed_in(assertion: Element, now: datetime) -> None:
    statements = children(assertion, SAML, "AuthnStatement")
    if not statements:
        raise SamlRefused("not_signed_in")
    for statement in statements:
        until = statement.get("SessionNotOnOrAfter")
        if until is not None and _instant(until) + LEEWAY <= now:
            raise SamlRefused("session_expired")


def _check_not_before(element: Element, now: datetime) -> None:
    begins = element.get("NotBefore")
    if begins is not None and _instant(begins) - LEEWAY > now:
        raise SamlRefused("assertion_not_yet_valid")


def _end(element: Element, now: datetime) -> datetime | None:
    told = element.get("NotOnOrAfter")
    if told is None:
        return None
    end = _instant(told)
    if end + LEEWAY <= now:
        raise SamlRefused("assertion_expired")
    return min(end, now + LASTS_MAX)


def _instant(text: str) -> datetime:
    found = _INSTANT.fullmatch(text)
    try:
        if found is not None:
            return datetime.fromisoformat(found[1]).replace(tzinfo=UTC)
    except ValueError:
        pass
    raise SamlRefused("document_refused", "a time is not one in UTC, as 2026-11-30T12:00:00Z")


def _read(
    assertion: Element, subject: Element, mapping: Mapping[str, str], ends_at: datetime
) -> AssertedIdentity:
    name_id = child(subject, SAML, "NameID")
    if name_id is None:
        raise SamlRefused("name_id_refused")
    named, kind = documents.text_of(name_id), name_id.get("Format", "")
    if kind == _TRANSIENT or not _is_text(named, _SUBJECT_MAX):
        raise SamlRefused("name_id_refused")
    told = _attributes(assertion)
    email = _first(told, mapping, "email")
    # Where the mapping names an attribute, nothing else is an address.
    if not email and not mapping.get("email") and kind in _MAY_BE_EMAIL and "@" in named:
        email = named
    if not email:
        raise SamlRefused("attribute_missing")
    signed_in_at = _signed_in_at(assertion)
    tells_of_mfa = not _MFA.isdisjoint([*_contexts(assertion), *told.get(_METHODS, ())])
    return AssertedIdentity(
        assertion_id=assertion.get("ID", ""),
        ends_at=ends_at + LEEWAY,
        subject=named,
        email=email,
        name=_first(told, mapping, "name"),
        groups=_all(told, mapping, "groups"),
        # One that was passed nobody knows when is none.
        has_mfa=tells_of_mfa and signed_in_at is not None,
        authenticated_at=signed_in_at,
    )


def _signed_in_at(assertion: Element) -> datetime | None:
    """Of several times the first; None where one of them cannot be read."""
    statements = children(assertion, SAML, "AuthnStatement")
    try:
        return min(_instant(each.get("AuthnInstant", "")) for each in statements)
    except SamlRefused:
        return None


def _contexts(assertion: Element) -> list[str]:
    found = assertion.iter(tag(SAML, "AuthnContextClassRef"))
    return [documents.text_of(each) for each in found]


def _attributes(assertion: Element) -> dict[str, list[str]]:
    """Their texts by name. Values that are no texts count as none."""
    found: dict[str, list[str]] = {}
    for statement in children(assertion, SAML, "AttributeStatement"):
        for attribute in children(statement, SAML, "Attribute"):
            texts = found.setdefault(attribute.get("Name", ""), [])
            for value in children(attribute, SAML, "AttributeValue"):
                if not len(value) and (text := (value.text or "").strip()):
                    texts.append(text)
    return found


def _all(told: Mapping[str, list[str]], mapping: Mapping[str, str], wanted: str) -> tuple[str, ...]:
    """Raises SamlRefused for a value that cannot be stored and shown as it is, or too many."""
    names = (mapping[wanted],) if mapping.get(wanted) else DEFAULT_NAMES[wanted]
    texts = next((told[name] for name in names if told.get(name)), [])
    if len(texts) > _GROUPS_MAX or not all(_is_text(each, _TEXT_MAX) for each in texts):
        raise SamlRefused("attribute_refused", wanted)
    return tuple(dict.fromkeys(texts))


def _first(told: Mapping[str, list[str]], mapping: Mapping[str, str], wanted: str) -> str:
    found = _all(told, mapping, wanted)
    if len(found) > 1 and wanted == "email":
        raise SamlRefused("attribute_refused", "there is more than one email address")
    return found[0] if found else ""


def _is_text(text: str, characters_max: int) -> bool:
    return 0 < len(text) <= characters_max and text.isprintable()
