"""The certificate by which a TLS-ALPN-01 challenge is answered, and where the gateway finds it."""

import datetime as dt
import hashlib
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from cell.layout import write_atomically

# id-pe-acmeIdentifier
ACME_IDENTIFIER = x509.ObjectIdentifier("1.3.6.1.5.5.7.1.31")
OCTET_STRING = 0x04
LIFE = dt.timedelta(days=1)


def path(home: Path, host: str) -> Path:
    """Certificate and key in one file, so that the gateway never sees one without the other."""
    return home / "pki" / "challenges" / f"{host}.pem"


def publish(home: Path, host: str, key_authorization: str) -> None:
    """From now on the gateway answers `acme-tls/1` for the host."""
    file = path(home, host)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomically(file, _pem(host, key_authorization))


def withdraw(home: Path, host: str) -> None:
    path(home, host).unlink(missing_ok=True)


def withdraw_all(home: Path) -> None:
    """What a cell that ended in the middle of an order has left."""
    for file in (home / "pki" / "challenges").glob("*.pem"):
        file.unlink(missing_ok=True)


def _pem(host: str, key_authorization: str) -> bytes:
    digest = hashlib.sha256(key_authorization.encode()).digest()
    proof = bytes((OCTET_STRING, len(digest))) + digest
    key = ec.generate_private_key(ec.SECP256R1())
    now = dt.datetime.now(dt.UTC)
    nobody = x509.Name([])
    made = (
        x509.CertificateBuilder()
        .subject_name(nobody)
        .issuer_name(nobody)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - LIFE)
        .not_valid_after(now + LIFE)
        # Critical where there is no subject.
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=True)
        .add_extension(x509.UnrecognizedExtension(ACME_IDENTIFIER, proof), critical=True)
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
