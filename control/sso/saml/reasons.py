"""What is refused of SAML, and why: one code, and a reason that tells an administrator what to do.

The reasons are read by people who set a connection up. None tells more than was sent: a caller
learns nothing of keys, of other connections or of who has an account.
"""

from typing import Final

from specserver import Unauthenticated

REASONS: Final[dict[str, str]] = {
    "algorithm_refused": "the signature must be RSA or ECDSA with SHA-256, SHA-384 or SHA-512",
    "assertion_count": "the response must have one assertion, below its root, and no other",
    "assertion_expired": "the assertion has expired; check the clock of the identity provider",
    "assertion_not_yet_valid": (
        "the assertion is not valid yet; check the clock of the identity provider"
    ),
    "attribute_missing": "the identity provider sent no email address; check the attribute mapping",
    "attribute_refused": "an attribute has a value that cannot be used",
    "audience_wrong": "the assertion is for another service; check the entity ID (audience)",
    "certificate_expired": "the signing certificates of the connection have expired; record new"
    " metadata",
    "condition_unknown": "the assertion has a condition that this service does not know",
    "confirmation_missing": "the assertion has no usable bearer confirmation",
    "decryption_failed": "the assertion could not be decrypted, or its signature is wrong",
    "destination_wrong": "the response was made for another address; check the ACS URL",
    "document_refused": "the response is no document that SAML allows",
    "encryption_missing": "the connection wants encrypted assertions, and this one is not",
    "encryption_unexpected": "the connection has no encryption, and the assertion is encrypted",
    "identity_provider_refused": "the identity provider did not sign anybody in",
    "in_response_to_wrong": "the response answers no sign-in that this browser has begun here",
    "issuer_wrong": "the response comes from another identity provider than the connection's",
    "name_id_refused": "the NameID must be a plain text that stays the same for a person",
    "not_signed_in": "the assertion does not say that somebody signed in",
    "recipient_wrong": "the assertion was made for another address; check the ACS URL",
    "replayed": "this assertion has been used before",
    "session_expired": "the session at the identity provider has ended",
    "sign_in_unknown": "the sign-in has ended, was used, or began in another browser; begin again",
    "signature_missing": "the assertion must be signed itself; a signed response is not enough",
    "signature_refused": "the signature has a form that is not accepted",
    "signature_wrong": "the signature was made by none of the connection's certificates, or what"
    " it signs was changed",
    "too_large": "the response is larger than 256 KiB, or nested too deeply",
    "unsolicited": "the sign-in must begin here: the connection takes none that the identity"
    " provider began",
    "version_wrong": "the response must be of SAML 2.0",
}


class SamlRefused(Unauthenticated):
    """401 `saml_refused` with `reason`, one of REASONS; `more` is added to its sentence."""

    def __init__(self, reason: str, more: str = "") -> None:
        told = f"the sign-in was refused: {REASONS[reason]}{f' ({more})' if more else ''}"
        super().__init__(told, code="saml_refused", reason=reason)
        self.reason = reason
