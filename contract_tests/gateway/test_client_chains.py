"""What clients may show as certificates: nothing that takes long to verify."""

import datetime as dt
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa, x25519

from contract_tests.by_day import one_in
from contract_tests.gateway.authorities import Authority, Pair
from contract_tests.gateway.conftest import MakeGateway
from contract_tests.gateway.rig import GatewayRig, raw_get, until
from gateway.client_chains import SHOWN_MAX, key_fault

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
UNUSUAL = ec.BrainpoolP384R1()


def show(
    gateway: GatewayRig, host: str, pair: Pair, above: list[Authority], version: ssl.TLSVersion
) -> Any:
    """The status of a request, or the alert; shown are the certificate and those above it."""
    path = pair.certificate.with_suffix(".chain")
    path.write_text(pair.certificate.read_text() + "".join(each.pem for each in reversed(above)))
    context = gateway.context()
    context.maximum_version = version
    context.load_cert_chain(path, pair.key)
    try:
        with gateway.connect(host, context) as connection:
            return raw_get(connection)[0]
    except ssl.SSLError as error:
        return error.reason


def below(root: Authority, length: int) -> list[Authority]:
    found = [root]
    for number in range(length):
        found.append(found[-1].subordinate(f"below-{number}"))
    return found[1:]


def is_counted(gateway: GatewayRig) -> bool:
    refused = [line for line in gateway.log() if line["event"] == "gateway.refused"]
    return any(line.get("costly_certificates") for line in refused)


@pytest.mark.nightly
@pytest.mark.parametrize("version", one_in(2, VERSIONS))
def test_so_many_certificates_are_verified_and_no_more(
    make_gateway: MakeGateway, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    gateway, root = make_gateway(), Authority("root", tmp_path)
    host = gateway.add_instance("long-chains", client_ca_pem=root.pem)
    above = below(root, SHOWN_MAX)
    most = above[: SHOWN_MAX - 1]
    assert show(gateway, host, most[-1].issue("app"), most, version) == 200
    assert show(gateway, host, above[-1].issue("app"), above, version) == "TLSV1_ALERT_UNKNOWN_CA"
    until(lambda: is_counted(gateway), "the log says why")


@pytest.mark.parametrize("version", VERSIONS)
def test_unusual_keys_are_refused(
    gateway: GatewayRig, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    root = Authority("root", tmp_path)
    host = gateway.add_instance(f"unusual-{version.name[-1]}", client_ca_pem=root.pem)
    unusual, usual = root.subordinate("a", UNUSUAL), root.subordinate("b", ec.SECP521R1())
    assert show(gateway, host, usual.issue("app"), [usual], version) == 200
    refused = show(gateway, host, unusual.issue("app"), [unusual], version)
    assert refused == "TLSV1_ALERT_UNKNOWN_CA"


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_refused_is_not_verified_first(
    gateway: GatewayRig, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """A wrong signature is told by another alert, where it was looked at."""
    root = Authority("root", tmp_path)
    host = gateway.add_instance(f"unverified-{version.name[-1]}", client_ca_pem=root.pem)
    for length, told in ((3, "TLSV1_ALERT_DECRYPT_ERROR"), (20, "TLSV1_ALERT_UNKNOWN_CA")):
        above = below(root, length)
        impostor = Authority(above[-1].name, tmp_path)  # the same name, another key
        assert show(gateway, host, impostor.issue("app"), above, version) == told


def test_authorities_with_unusual_keys_are_left_out(
    make_gateway: MakeGateway, tmp_path: Path
) -> None:
    gateway, version = make_gateway(), ssl.TLSVersion.TLSv1_3
    usual, unusual = Authority("a", tmp_path), Authority("b", tmp_path, curve=UNUSUAL)
    host = gateway.add_instance("left-out", client_ca_pem=unusual.pem + usual.pem)
    assert show(gateway, host, usual.issue("app"), [], version) == 200
    assert show(gateway, host, unusual.issue("app"), [], version) == "TLSV1_ALERT_UNKNOWN_CA"
    ignored = [each for each in gateway.log() if each["event"] == "gateway.authority_ignored"]
    assert ignored[0]["reason"] == "has a key on the curve brainpoolP384r1"


def certified(key: Any) -> x509.Certificate:
    now, name = dt.datetime.now(dt.UTC), x509.Name([])
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key)
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now)
        .sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    )


def long_rsa(bits: int) -> rsa.RSAPublicKey:
    return rsa.RSAPublicNumbers(65_537, 2 ** (bits - 1) + 1).public_key()


@pytest.mark.parametrize(
    ("key", "fault"),
    [
        (long_rsa(2_048), None),
        (long_rsa(8_192), None),
        (long_rsa(8_200), "has an RSA key of 8200 bits"),
        *((ec.generate_private_key(curve()).public_key(), None)
          for curve in (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)),
        (ec.generate_private_key(UNUSUAL).public_key(), "has a key on the curve brainpoolP384r1"),
        (ed25519.Ed25519PrivateKey.generate().public_key(), None),
        (ed448.Ed448PrivateKey.generate().public_key(), None),
        (x25519.X25519PrivateKey.generate().public_key(), "has a key of another kind"),
    ],
)  # fmt: skip
def test_keys_are_of_kinds_that_are_verified_fast(key: Any, fault: str | None) -> None:
    assert key_fault(certified(key)) == fault
