"""The region's certificates: a local root, an intermediate, and the wildcard the gateway serves.

Custom domains have certificates too, from an intermediate of their own. `ensure` makes what is
missing and renews what is due; it may be called as often as one likes, by several processes.
Private keys of the authorities rest on disk only sealed under the cell's `seal.key`; the keys the
gateway reads are files (mode 0600).
"""

import datetime as dt
import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LEAF_LIFE = dt.timedelta(days=60)
INTERMEDIATE_LIFE = dt.timedelta(days=3 * 365)
ROOT_LIFE = dt.timedelta(days=20 * 365)
# Clients whose clock is slow must not refuse a certificate made a minute ago.
BACKDATED = dt.timedelta(hours=1)
COMMON_NAME_MAX = 64
NONCE_BYTES = 12


class PkiError(Exception):
    """The certificates on disk cannot be used or renewed."""


@dataclass(frozen=True)
class CertificateFiles:
    """Where the files are, and until when the wildcard is valid."""

    root_pem: Path
    chain_pem: Path
    wildcard_pem: Path
    wildcard_key: Path
    not_after: dt.datetime

    @property
    def renew_at(self) -> dt.datetime:
        return self.not_after - LEAF_LIFE / 3


@dataclass(frozen=True)
class _Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def ensure(home: Path, region: str, domain: str, now: dt.datetime) -> CertificateFiles:
    """Make or renew whatever is missing, due, or made for another region; change nothing else."""
    directory = home / "pki"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(directory):
        seal = _Seal(home / "seal.key")
        root = _root(directory, region, seal, now)
        intermediate = _intermediate(directory, root, f"{region}.{domain}", seal, now)
        not_after = _wildcard(directory, intermediate, f"{region}.{domain}", now)
    return CertificateFiles(
        directory / "root.pem",
        directory / "chain.pem",
        directory / "wildcard.pem",
        directory / "wildcard.key",
        not_after,
    )


def ensure_domains(
    home: Path, region: str, hosts: Iterable[str], now: dt.datetime, *, by_acme: bool = False
) -> None:
    """Have a certificate for each of the custom domains, `domains/<host>.crt`, and for no other.

    One that another authority issued stays until it is due, or where ACME renews it to its end.
    """
    directory = home / "pki"
    domains = directory / "domains"
    domains.mkdir(mode=0o700, parents=True, exist_ok=True)
    wanted = sorted(set(hosts))
    with _locked(directory):
        for path in domains.iterdir():
            if path.stem not in wanted:
                path.unlink()
        if wanted:
            seal = _Seal(home / "seal.key")
            root = _root(directory, region, seal, now)
            issuer = _domain_issuer(directory, root, region, seal, now)
            for host in wanted:
                leaf = domain_leaf(home, host)
                if leaf is not None and not _issued_by(leaf, issuer):
                    until = leaf.not_valid_after_utc if by_acme else renew_at(leaf)
                    if now < until:
                        continue
                _served(*domain_pair(home, host), issuer, [host], now)


def install_domain(home: Path, host: str, chain_pem: bytes, key_pem: bytes) -> None:
    """Put another authority's certificate in force; the gateway takes it for new connections."""
    directory = home / "pki"
    path, key_path = domain_pair(home, host)
    with _locked(directory):
        _write(key_path, key_pem, mode=0o600)
        _write(path, chain_pem)


def domain_leaf(home: Path, host: str) -> x509.Certificate | None:
    """What the domain is served with; None where that would be of no use to any client."""
    path, key_path = domain_pair(home, host)
    try:
        leaf = x509.load_pem_x509_certificate(path.read_bytes())
        key = serialization.load_pem_private_key(key_path.read_bytes(), None)
        fits = _same_key(leaf.public_key(), key) and _covers(leaf, [host])
    except (OSError, ValueError, x509.ExtensionNotFound):
        return None
    return leaf if fits else None


def renew_at(leaf: x509.Certificate) -> dt.datetime:
    """When a third of its life is left."""
    return leaf.not_valid_after_utc - (leaf.not_valid_after_utc - leaf.not_valid_before_utc) / 3


def domain_pair(home: Path, host: str) -> tuple[Path, Path]:
    directory = home / "pki" / "domains"
    return directory / f"{host}.crt", directory / f"{host}.key"


def _domain_issuer(
    directory: Path, root: _Authority, region: str, seal: "_Seal", now: dt.datetime
) -> _Authority:
    """An authority beside the other intermediate, which may sign for the region's zone only."""
    path, key_path = directory / "domains.pem", directory / "domains.key.sealed"
    if path.exists() and key_path.exists():
        former = x509.load_pem_x509_certificate(path.read_bytes())
        if now < former.not_valid_after_utc - INTERMEDIATE_LIFE / 3 and _issued_by(former, root):
            return _Authority(former, seal.open_key(key_path))
    key = ec.generate_private_key(ec.SECP256R1())
    until = min(now + INTERMEDIATE_LIFE, root.certificate.not_valid_after_utc)
    name = _name(f"Menagerie {region} domains {now:%Y-%m}")
    builder = _authority(_builder(name, root.certificate.subject, key, now, until), path_length=0)
    certificate = builder.add_extension(_issued_with(root), critical=False).sign(
        root.key, hashes.SHA256()
    )
    seal.write_key(key_path, key)
    _write(path, _pem(certificate))
    return _Authority(certificate, key)


def _root(directory: Path, region: str, seal: "_Seal", now: dt.datetime) -> _Authority:
    path, key_path = directory / "root.pem", directory / "root.key.sealed"
    if path.exists() and key_path.exists():
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        return _Authority(certificate, seal.open_key(key_path))
    if path.exists() or (directory / "wildcard.pem").exists():
        # A new root would silently break every client that trusts the old one.
        raise PkiError(f"{key_path} or {path} is missing while certificates are in use")
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"Menagerie {region} root")
    builder = _builder(name, name, key, now, now + ROOT_LIFE)
    certificate = _authority(builder, path_length=1).sign(key, hashes.SHA256())
    seal.write_key(key_path, key)
    _write(path, _pem(certificate))
    return _Authority(certificate, key)


def _intermediate(
    directory: Path, root: _Authority, zone: str, seal: "_Seal", now: dt.datetime
) -> _Authority:
    path, key_path = directory / "intermediate.pem", directory / "intermediate.key.sealed"
    former: list[x509.Certificate] = []
    if path.exists() and key_path.exists():
        former = x509.load_pem_x509_certificates(path.read_bytes())
        due = former[0].not_valid_after_utc - INTERMEDIATE_LIFE / 3
        if now < due and _serves_zone(former[0], zone) and _issued_by(former[0], root):
            key = seal.open_key(key_path)
            if _same_key(former[0].public_key(), key):
                return _Authority(former[0], key)
    key = ec.generate_private_key(ec.SECP256R1())
    until = min(now + INTERMEDIATE_LIFE, root.certificate.not_valid_after_utc)
    name = _name(f"Menagerie {zone} {now:%Y-%m}"[:COMMON_NAME_MAX])
    builder = _authority(_builder(name, root.certificate.subject, key, now, until), path_length=0)
    builder = builder.add_extension(_issued_with(root), critical=False).add_extension(
        x509.NameConstraints([x509.DNSName(zone)], None), critical=True
    )
    certificate = builder.sign(root.key, hashes.SHA256())
    kept = [certificate, *(old for old in former if now < old.not_valid_after_utc)]
    # Clients pin an authority, so the former one stays listed while it is valid; with the root
    # in it the file is also a complete CA file for clients that refuse partial chains.
    _write(directory / "chain.pem", b"".join(_pem(each) for each in [*kept, root.certificate]))
    seal.write_key(key_path, key)
    _write(path, b"".join(_pem(each) for each in kept))
    return _Authority(certificate, key)


def _wildcard(directory: Path, issuer: _Authority, zone: str, now: dt.datetime) -> dt.datetime:
    names = [f"*.{zone}", f"cell.{zone}"]
    return _served(directory / "wildcard.pem", directory / "wildcard.key", issuer, names, now)


def _served(
    path: Path, key_path: Path, issuer: _Authority, names: list[str], now: dt.datetime
) -> dt.datetime:
    """Until when the certificate is valid; it is made or renewed where that is due."""
    if path.exists() and key_path.exists():
        leaf = x509.load_pem_x509_certificate(path.read_bytes())
        current = _issued_by(leaf, issuer) and _same_key(
            leaf.public_key(), serialization.load_pem_private_key(key_path.read_bytes(), None)
        )
        if current and now < leaf.not_valid_after_utc - LEAF_LIFE / 3 and _covers(leaf, names):
            return leaf.not_valid_after_utc
    key = ec.generate_private_key(ec.SECP256R1())
    until = min(now + LEAF_LIFE, issuer.certificate.not_valid_after_utc)
    leaf = _leaf(key, issuer, names, now, until)
    # The gateway keeps its old pair until both files fit together.
    _write(key_path, _key_pem(key), mode=0o600)
    _write(path, _pem(leaf) + _pem(issuer.certificate))
    return leaf.not_valid_after_utc


def _leaf(
    key: ec.EllipticCurvePrivateKey,
    issuer: _Authority,
    names: list[str],
    now: dt.datetime,
    until: dt.datetime,
) -> x509.Certificate:
    name = _name(names[0] if len(names[0]) <= COMMON_NAME_MAX else "Menagerie gateway")
    alternatives = x509.SubjectAlternativeName([x509.DNSName(each) for each in names])
    return (
        _builder(name, issuer.certificate.subject, key, now, until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(sign_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(alternatives, critical=False)
        .add_extension(_issued_with(issuer), critical=False)
        .sign(issuer.key, hashes.SHA256())
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: dt.datetime,
    until: dt.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _authority(builder: x509.CertificateBuilder, path_length: int) -> x509.CertificateBuilder:
    constraints = x509.BasicConstraints(ca=True, path_length=path_length)
    return builder.add_extension(constraints, critical=True).add_extension(
        _usage(sign_certificates=True), critical=True
    )


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not sign_certificates,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _issued_with(issuer: _Authority) -> x509.AuthorityKeyIdentifier:
    identifier = issuer.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier.value)


def _issued_by(certificate: x509.Certificate, issuer: _Authority) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer.certificate)
    except Exception:  # noqa: BLE001 - the library raises several kinds; each means "not by it"
        return False
    return True


def _covers(leaf: x509.Certificate, names: list[str]) -> bool:
    found = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return set(names) <= set(found.get_values_for_type(x509.DNSName))


def _serves_zone(intermediate: x509.Certificate, zone: str) -> bool:
    permitted = intermediate.extensions.get_extension_for_class(x509.NameConstraints).value
    return permitted.permitted_subtrees == [x509.DNSName(zone)]


def _same_key(public: object, private: object) -> bool:
    return (
        isinstance(public, ec.EllipticCurvePublicKey)
        and isinstance(private, ec.EllipticCurvePrivateKey)
        and public == private.public_key()
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


class _Seal:
    """Seals private keys with AES-GCM; the file's name is authenticated with its content."""

    def __init__(self, path: Path) -> None:
        # Derived, so that the form of the cell's key does not matter and no other use of it
        # shares a cipher key with this one.
        derivation = HKDF(hashes.SHA256(), 32, salt=None, info=b"menagerie cell pki v1")
        self._cipher = AESGCM(derivation.derive(_seal_key(path)))

    def write_key(self, path: Path, key: ec.EllipticCurvePrivateKey) -> None:
        nonce = os.urandom(NONCE_BYTES)
        sealed = self._cipher.encrypt(nonce, _key_pem(key), path.name.encode())
        _write(path, nonce + sealed, mode=0o600)

    def open_key(self, path: Path) -> ec.EllipticCurvePrivateKey:
        sealed = path.read_bytes()
        try:
            opened = self._cipher.decrypt(
                sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], path.name.encode()
            )
        except InvalidTag as error:
            raise PkiError(f"cannot open {path}: it was sealed under another seal.key") from error
        key = serialization.load_pem_private_key(opened, None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise PkiError(f"{path} does not contain an elliptic-curve key")
        return key


def _seal_key(path: Path) -> bytes:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_bytes()
    with os.fdopen(descriptor, "wb") as file:
        key = os.urandom(32)
        file.write(key)
    return key


def _write(path: Path, content: bytes, mode: int = 0o644) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    temporary.replace(path)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    with (directory / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
