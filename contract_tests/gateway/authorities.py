"""Certificate authorities of the tests' own, for client certificates and for domains."""

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CLIENT, SERVER = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(subject: str, issuer: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
    )


@dataclass(frozen=True)
class Pair:
    """Files with a certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    def __init__(
        self,
        name: str,
        directory: Path,
        above: "Authority | None" = None,
        curve: ec.EllipticCurve | None = None,
    ) -> None:
        self.name = name
        self._directory = directory
        self._key = ec.generate_private_key(curve or ec.SECP256R1())
        issuer = above or self
        made = (
            _builder(name, issuer.name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(issuer._key, hashes.SHA256())
        )
        self.pem = made.public_bytes(serialization.Encoding.PEM).decode()

    def subordinate(self, name: str, curve: ec.EllipticCurve | None = None) -> "Authority":
        return Authority(name, self._directory, self, curve)

    def issue(self, name: str, usage: x509.ObjectIdentifier = CLIENT) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        made = (
            _builder(name, self.name, key)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        base = self._directory / f"{self.name}-{name}"
        pair = Pair(base.with_suffix(".crt"), base.with_suffix(".key"))
        pair.certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        pair.key.chmod(0o600)  # libpq wants nobody else to read it
        return pair
