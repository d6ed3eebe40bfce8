"""Who signed an element: what is returned is what was signed, and nothing beside it.

The form of a signature is held to the one that SAML's profile gives before any key is looked at,
so that nothing that XML Signature can do beyond it is ever run. The library verifies with the
certificates of the connection; keys that come with the document are taken out of it unread.
"""

import base64
import binascii
import copy
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from cryptography import x509
from lxml import etree

from control.sso.saml import documents
from control.sso.saml.documents import DS, EXC_C14N, Element, child, children, tag
from control.sso.saml.reasons import SamlRefused

SIGNATURE_ALGORITHMS: Final = frozenset(
    f"http://www.w3.org/2001/04/xmldsig-more#{name}"
    for name in (
        *("rsa-sha256", "rsa-sha384", "rsa-sha512"),
        *("ecdsa-sha256", "ecdsa-sha384", "ecdsa-sha512"),
    )
)
DIGEST_ALGORITHMS: Final = frozenset(
    {
        "http://www.w3.org/2001/04/xmlenc#sha256",
        "http://www.w3.org/2001/04/xmldsig-more#sha384",
        "http://www.w3.org/2001/04/xmlenc#sha512",
    }
)
_ENVELOPED: Final = f"{DS}enveloped-signature"
_TRANSFORMS: Final = [_ENVELOPED, EXC_C14N]
_ID: Final = re.compile(r"[A-Za-z_][A-Za-z0-9._-]{0,255}")
_ID_NAMES: Final = frozenset({"id", "Id", "iD", "ID"})
_PREFIXES_MAX: Final = 20
_SIGNATURE_BYTES: Final = range(64, 1_025)


def check_ids(root: Element) -> None:
    """Raises SamlRefused where one id, however its attribute is written, names two elements."""
    seen: set[str] = set()
    for element in root.iter():
        for name, value in element.attrib.items():
            if etree.QName(name).localname not in _ID_NAMES:
                continue
            if value in seen:
                raise SamlRefused("document_refused", "an ID is there twice")
            seen.add(value)


def signature_of(element: Element) -> Element | None:
    """The signature right below the element. Raises SamlRefused where there are two."""
    found = children(element, DS, "Signature")
    if len(found) > 1:
        raise SamlRefused("signature_refused", "there are two in one element")
    return found[0] if found else None


def verified(element: Element, certificates: Sequence[x509.Certificate], now: datetime) -> Element:
    """The element as it was signed, read anew from the bytes that were digested.

    Its signature is gone from it. `certificates` are all that the connection has, of which those
    count that are valid now. Raises SamlRefused for what none of them signed.
    """
    signature = signature_of(element)
    if signature is None:
        raise SamlRefused("signature_missing")
    _check_form(element, signature)
    current = [each for each in certificates if _is_current(each, now)]
    if not current:
        raise SamlRefused("certificate_expired")
    alone = _alone(element)
    for certificate in current:
        signed = _signed(alone, certificate, now)
        if signed is not None:
            return _read_signed(signed, element)
    raise SamlRefused("signature_wrong")


def _alone(element: Element) -> Element:
    """A document of just this element, namespaces of its ancestors kept, keys taken out."""
    alone = etree.fromstring(etree.tostring(element, with_tail=False), documents.parser())
    signature = children(alone, DS, "Signature")[0]
    for keys in children(signature, DS, "KeyInfo"):
        signature.remove(keys)
    return alone


def _signed(alone: Element, certificate: x509.Certificate, now: datetime) -> bytes | None:
    # Who uses no SAML does not load it: 0.2 s, and 9 MB.
    from signxml.algorithms import DigestAlgorithm, SignatureMethod  # noqa: PLC0415
    from signxml.verifier import SignatureConfiguration, XMLVerifier  # noqa: PLC0415

    config = SignatureConfiguration(
        require_x509=True,
        location="./",
        expect_references=1,
        signature_methods=frozenset(map(SignatureMethod, SIGNATURE_ALGORITHMS)),
        digest_algorithms=frozenset(map(DigestAlgorithm, DIGEST_ALGORITHMS)),
        verification_time=now,
    )
    try:
        result = XMLVerifier().verify(
            copy.deepcopy(alone), x509_cert=certificate, expect_config=config, id_attribute="ID"
        )
    except Exception:  # noqa: BLE001 -- whatever the library says of it, it is not verified
        return None
    assert not isinstance(result, list)
    return result.signed_data


def _read_signed(signed: bytes, element: Element) -> Element:
    """Raises SamlRefused where that is not the element that was asked about."""
    root = documents.read(signed)
    if root.tag != element.tag or root.get("ID") != element.get("ID"):
        raise SamlRefused("signature_refused", "it is of another element")
    return root


def _check_form(element: Element, signature: Element) -> None:
    """One reference, to the element around it, by the transforms of the profile; no more."""
    _check_children(signature, ("SignedInfo", "SignatureValue"), optional="KeyInfo")
    info = _only(signature, "SignedInfo")
    _check_children(info, ("CanonicalizationMethod", "SignatureMethod", "Reference"))
    _check_canonicalization(_only(info, "CanonicalizationMethod"))
    _check_algorithm(_only(info, "SignatureMethod"), SIGNATURE_ALGORITHMS)
    reference = _only(info, "Reference")
    _check_children(reference, ("Transforms", "DigestMethod", "DigestValue"))
    _check_algorithm(_only(reference, "DigestMethod"), DIGEST_ALGORITHMS)
    _check_reference(element, reference)
    if len(_decoded(_only(signature, "SignatureValue"))) not in _SIGNATURE_BYTES:
        raise SamlRefused("signature_refused", "its value has no length that a key gives")


def _check_reference(element: Element, reference: Element) -> None:
    named = element.get("ID", "")
    if not _ID.fullmatch(named):
        raise SamlRefused("signature_refused", "what it signs has no usable ID")
    if reference.get("URI") != f"#{named}":
        raise SamlRefused("signature_refused", "it must refer to the element that it is in")
    transforms = list(_only(reference, "Transforms"))
    if [each.get("Algorithm") for each in transforms] != _TRANSFORMS or any(
        each.tag != tag(DS, "Transform") for each in transforms
    ):
        raise SamlRefused(
            "signature_refused",
            "its transforms must be enveloped-signature and exclusive canonicalization",
        )
    if len(transforms[0]):
        raise SamlRefused("signature_refused", "a transform has parameters")
    _check_canonicalization(transforms[1])


def _check_canonicalization(method: Element) -> None:
    if method.get("Algorithm") != EXC_C14N:
        raise SamlRefused("signature_refused", "canonicalization must be exclusive")
    for each in method:
        prefixes = each.get("PrefixList", "").split()
        if each.tag != tag(EXC_C14N, "InclusiveNamespaces") or len(each):
            raise SamlRefused("signature_refused", "canonicalization has unknown parameters")
        if len(method) > 1 or len(prefixes) > _PREFIXES_MAX:
            raise SamlRefused("signature_refused", "canonicalization has too many parameters")


def _check_algorithm(method: Element, allowed: frozenset[str]) -> None:
    # HMACOutputLength and whatever else there may be shortens or changes what is compared.
    if method.get("Algorithm") not in allowed or len(method):
        raise SamlRefused("algorithm_refused")


def _check_children(parent: Element, names: Sequence[str], optional: str = "") -> None:
    wanted = [tag(DS, name) for name in names]
    found = [each.tag for each in parent]
    if found not in (wanted, [*wanted, tag(DS, optional)]):
        raise SamlRefused(
            "signature_refused", f"{etree.QName(parent).localname} has parts that are not allowed"
        )


def _only(parent: Element, name: str) -> Element:
    found = child(parent, DS, name)
    assert found is not None, "its parts were checked"
    return found


def _decoded(element: Element) -> bytes:
    try:
        text = "".join(documents.text_of(element).split())
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SamlRefused("signature_refused", "its value is not base64") from None


def _is_current(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc
