"""What this service is to an identity provider: its name, its address, its key.

Each connection has an entity ID of its own, so that what is signed for one says nothing to
another, and a key of its own.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

_KEY_BITS: Final = 2_048
# What providers do with the time of a certificate differs; the key is as old as its connection.
_CERTIFICATE_YEARS: Final = 20
_EXPONENT: Final = 65_537


@dataclass(frozen=True)
class ServiceProvider:
    """Of one connection: what it is called, and where responses are sent."""

    entity_id: str
    acs_url: str


@dataclass(frozen=True)
class KeyPair:
    """PEM both; the certificate is shown to everybody."""

    private_key: str
    certificate: str

    def __repr__(self) -> str:
        return "KeyPair()"

    def loaded(self) -> rsa.RSAPrivateKey:
        key = serialization.load_pem_private_key(self.private_key.encode(), None)
        assert isinstance(key, rsa.RSAPrivateKey)
        return key


def of(base_url: str, connection_id: str) -> ServiceProvider:
    base = base_url.rstrip("/")
    return ServiceProvider(
        entity_id=f"{base}/v1/sso/saml/{connection_id}/metadata",
        acs_url=f"{base}/account/sso/{connection_id}/acs",
    )


def new_key_pair(connection_id: str, now: datetime) -> KeyPair:
    """For signing requests and for assertions that are encrypted for us. Takes some 50 ms."""
    key = rsa.generate_private_key(_EXPONENT, _KEY_BITS)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, connection_id)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=365 * _CERTIFICATE_YEARS))
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    public = certificate.public_bytes(serialization.Encoding.PEM)
    return KeyPair(private.decode(), public.decode())
