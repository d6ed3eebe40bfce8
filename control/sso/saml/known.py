"""What a connection knows of an identity provider, as it is stored; no XML is read here."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256

REDIRECT: Final = "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Redirect"
POST: Final = "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST"


@dataclass(frozen=True)
class SamlSettings:
    """`certificates` are PEM, those that are still to begin and those that have ended included.

    `sso_url` takes the redirect binding. `signs_requests`: the provider wants requests signed.
    """

    entity_id: str
    sso_url: str
    certificates: tuple[str, ...]
    signs_requests: bool = False
    valid_until: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "certificates": list(self.certificates)}

    @classmethod
    def of_json(cls, told: Mapping[str, Any]) -> "SamlSettings":
        return cls(
            entity_id=told["entity_id"],
            sso_url=told["sso_url"],
            certificates=tuple(told["certificates"]),
            signs_requests=told.get("signs_requests", False),
            valid_until=told.get("valid_until"),
        )

    def has_ended(self, now: datetime) -> bool:
        """Whether the metadata says that it is not to be relied on any more."""
        try:
            end = datetime.fromisoformat(self.valid_until or "")
        except ValueError:
            return False
        return (end if end.tzinfo else end.replace(tzinfo=UTC)) <= now

    def loaded(self) -> list[x509.Certificate]:
        return [x509.load_pem_x509_certificate(each.encode()) for each in self.certificates]


@dataclass(frozen=True)
class CertificateFacts:
    """What an administrator compares with what the provider shows."""

    sha256: str
    subject: str
    not_before: datetime
    not_after: datetime


def certificate_facts(certificate: x509.Certificate) -> CertificateFacts:
    return CertificateFacts(
        sha256=certificate.fingerprint(SHA256()).hex(),
        subject=subject(certificate),
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
    )


def subject(certificate: x509.Certificate) -> str:
    return "".join(c for c in certificate.subject.rfc4514_string() if c.isprintable())[:200]
