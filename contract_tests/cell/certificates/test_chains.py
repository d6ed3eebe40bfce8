"""What an ACME server must send to have it put in force: bounded, usual, and fit to be served."""

import asyncio
import datetime as dt
import threading
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from cell.certificates.acme import chains, issuing
from cell.certificates.acme.ledger import AcmeOrder
from cell.certificates.acme.problems import AcmeError
from cell.certificates.acme.server import OrderStatus
from contract_tests.gateway.authorities import SERVER, Authority

HOST = "db.example.com"


class Issued(NamedTuple):
    leaf: bytes
    issuer: bytes
    key: str


def issued(folder: Path, curve: ec.EllipticCurve | None = None) -> Issued:
    authority = Authority("issuer", folder, curve=curve)
    pair = authority.issue(HOST, SERVER)
    return Issued(pair.certificate.read_bytes(), authority.pem.encode(), pair.key.read_text())


def checked(chain: bytes, key: str, host: str = HOST, days: int = 0) -> bytes:
    return chains.checked(chain, key, host, dt.datetime.now(dt.UTC) + dt.timedelta(days=days))


def test_only_what_a_client_takes_is_put_in_force(tmp_path: Path) -> None:
    leaf, issuer, key = issued(tmp_path)
    assert checked(leaf + issuer, key) == leaf + issuer
    assert checked(leaf, key) == leaf
    stranger = Authority("stranger", tmp_path).pem.encode()
    for broken in (b"", b"<html>", leaf + stranger, leaf.replace(b"MI", b"\xff\0", 1)):
        with pytest.raises(AcmeError, match="invalid certificate chain"):
            checked(broken, key)
    with pytest.raises(AcmeError, match="for another name or key"):
        checked(leaf + issuer, issuing.new_key())
    with pytest.raises(AcmeError, match="for another name or key"):
        checked(leaf + issuer, key, "other.example.com")
    with pytest.raises(AcmeError, match="not currently valid"):
        checked(leaf + issuer, key, days=2)


def test_nothing_else_that_comes_with_it_is_served(tmp_path: Path) -> None:
    leaf, issuer, key = issued(tmp_path)
    other = issuing.new_key().encode()
    assert checked(other + b"hello\n" + leaf + other + issuer + b"-" * 99, key) == leaf + issuer


def test_a_chain_is_bounded_before_it_is_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each link takes time: where it is checked, and in every handshake."""
    leaf, issuer, key = issued(tmp_path)
    checked(leaf + issuer * (chains.LINKS_MAX - 1), key)

    def read(_pem: bytes) -> None:
        raise AssertionError("what is too large is read")

    with monkeypatch.context() as patch:
        patch.setattr(x509, "load_pem_x509_certificates", read)
        with pytest.raises(AcmeError, match="more than 64 KiB"):
            checked((leaf + issuer).ljust(chains.BYTES_MAX + 1), key)
    # Whose signatures fit no better: nobody looked.
    stranger = Authority("stranger", tmp_path).pem.encode()
    with pytest.raises(AcmeError, match="more than 10 certificates"):
        checked(leaf + stranger * chains.LINKS_MAX, key)


@pytest.mark.parametrize("curve", [ec.SECP384R1(), ec.SECP521R1()])
def test_usual_keys_are_taken(tmp_path: Path, curve: ec.EllipticCurve) -> None:
    leaf, issuer, key = issued(tmp_path, curve)
    assert checked(leaf + issuer, key) == leaf + issuer


def test_keys_that_take_long_are_refused(tmp_path: Path) -> None:
    leaf, issuer, key = issued(tmp_path, ec.BrainpoolP512R1())
    with pytest.raises(AcmeError, match="has a key on the curve brainpoolP512r1"):
        checked(leaf + issuer, key)


@pytest.mark.parametrize(("bits", "why"), [(1024, "gateway cannot serve"), (2048, None)])
def test_what_the_gateway_cannot_serve_takes_no_place(
    tmp_path: Path, bits: int, why: str | None
) -> None:
    """OpenSSL refuses such an intermediate when it loads the chain: there would be no TLS."""
    leaf, issuer, key = weak(tmp_path, bits)
    if why is None:
        assert checked(leaf + issuer, key) == leaf + issuer
        return
    with pytest.raises(AcmeError, match=why) as refused:
        checked(leaf + issuer, key)
    assert "CA_KEY_TOO_SMALL" in refused.value.text


def weak(folder: Path, bits: int) -> Issued:
    """As `issued`, with an issuer whose key is RSA."""
    key = rsa.generate_private_key(65537, bits)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuer")])
    now = dt.datetime.now(dt.UTC)
    builder = x509.CertificateBuilder().issuer_name(name).serial_number(7)
    builder = builder.not_valid_before(now - dt.timedelta(hours=1))
    builder = builder.not_valid_after(now + dt.timedelta(days=1))
    ca = x509.BasicConstraints(ca=True, path_length=None)
    above = builder.subject_name(name).public_key(key.public_key())
    above = above.add_extension(ca, critical=True)
    leaf_key = serialization.load_pem_private_key(issuing.new_key().encode(), None)
    assert isinstance(leaf_key, ec.EllipticCurvePrivateKey)
    names = x509.SubjectAlternativeName([x509.DNSName(HOST)])
    below = builder.subject_name(x509.Name([])).public_key(leaf_key.public_key())
    below = below.add_extension(names, critical=True)
    pem = serialization.Encoding.PEM
    kept = leaf_key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Issued(
        below.sign(key, hashes.SHA256()).public_bytes(pem),
        above.sign(key, hashes.SHA256()).public_bytes(pem),
        kept.decode(),
    )


def test_the_event_loop_does_not_wait_while_a_chain_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaf, _, key = issued(tmp_path)
    by: list[threading.Thread] = []

    def check(*_given: Any) -> bytes:
        by.append(threading.current_thread())
        return leaf

    class Server:
        def look(self, _url: str) -> OrderStatus:
            return OrderStatus("valid", (), "https://a/f", "https://a/c", None)

        def download(self, _url: str) -> bytes:
            return leaf

    monkeypatch.setattr(chains, "checked", check)
    order = AcmeOrder("https://a/1", key)
    server = cast("Any", Server())
    assert asyncio.run(issuing.fulfil(server, tmp_path, HOST, order)) == leaf
    assert by
    assert threading.main_thread() not in by
