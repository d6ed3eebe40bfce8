"""Signature wrapping: what the provider signed for Ada is there, and so is what it never did.

By the numbers of Somorovsky and others, "On Breaking SAML: Be Whoever You Want to Be" (USENIX
Security 2012), with an ID that is new, the same, or none; and where else readers disagree.
"""

import copy
from typing import Final

from lxml import etree

from contract_tests.saml.attack_parts import Made, evil_of, makes, part
from contract_tests.saml.provider import (
    SIGNER,
    good,
    response,
    signed_assertion,
    xml,
)
from control.sso.saml.documents import DS, SAML, SAMLP, Element, tag

_WRAPPED: Final = "assertion_count document_refused signature_refused signature_missing"


def _both() -> Element:
    return response(signed_assertion(), signer=SIGNER)


@makes
def wrapped_responses() -> Made:
    """1 and 2: the signed response goes within, or beside, its signature in Eve's."""
    for which in ("new", "same", "none"):
        for number in (1, 2):
            root = _both()
            evil = evil_of(root, which)
            signature = root.find(tag(DS, "Signature"))
            assert signature is not None
            original = copy.deepcopy(root)
            original.remove(original.findall(tag(DS, "Signature"))[0])
            if number == 1:
                signature.append(original)
                evil.insert(1, signature)
            else:
                evil.insert(1, signature)
                signature.addprevious(original)
            yield f"wrapping {number}, ID {which}", xml(evil), _WRAPPED


@makes
def wrapped_assertions() -> Made:
    """3 to 8: the signed assertion goes elsewhere, and Eve's takes its place."""
    for which in ("new", "same", "none"):
        for number in range(3, 9):
            root = good()
            original = part(root, SAML, "Assertion")
            evil = evil_of(original, which)
            _wrap(number, root, original, evil)
            yield f"wrapping {number}, ID {which}", xml(root), _WRAPPED


def _wrap(number: int, root: Element, original: Element, evil: Element) -> None:
    signature = part(original, DS, "Signature")
    if number == 3:
        original.addprevious(evil)
    elif number == 4:
        root.replace(original, evil)
        evil.append(original)
    elif number == 5:
        evil.insert(1, signature)
        root.insert(list(root).index(original), evil)
    elif number == 6:
        root.replace(original, evil)
        evil.insert(1, signature)
        signature.append(original)
    elif number == 7:
        extensions = etree.Element(tag(SAMLP, "Extensions"))
        extensions.append(evil)
        root.insert(1, extensions)
    else:
        root.replace(original, evil)
        evil.insert(1, signature)
        etree.SubElement(signature, tag(DS, "Object")).append(original)


@makes
def wrapped_otherwise() -> Made:
    """Where some readers look for an assertion, and others do not."""
    for place in ("Advice", "Extensions", "StatusDetail", "Evidence"):
        root = good()
        original = part(root, SAML, "Assertion")
        evil = evil_of(original, "new")
        root.replace(original, evil)
        hidden = etree.SubElement(evil, tag(SAML, place))
        hidden.append(original)
        yield f"signed assertion within {place}", xml(root), _WRAPPED
    root = good()
    evil = evil_of(part(root, SAML, "Assertion"), "new")
    root.append(evil)
    yield "a second assertion, behind", xml(root), "assertion_count"
    root = response(signed_assertion())
    root.append(signed_assertion(id="_assertion2"))
    yield "two assertions, both signed", xml(root), "assertion_count"
    inner = good()
    outer = response(None)
    outer.append(inner)
    yield "a response within a response", xml(outer), "assertion_count document_refused"
    root = good()
    for named in ("id", "Id", "{http://www.w3.org/XML/1998/namespace}id"):
        other = copy.deepcopy(root)
        part(other, SAMLP, "Status").set(named, "_assertion1")
        yield f"the ID once more, as {named}", xml(other), "document_refused"
    root = good()
    root.tag = tag(SAML, "Response")
    yield "a response of another namespace", xml(root), "document_refused"
