"""A certificate authority's challenge is answered on the HTTPS port, and to nobody else."""

import hashlib
import socket
import ssl
from collections.abc import Iterator

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from cell.certificates.acme import challenge
from contract_tests.gateway.authorities import Authority
from contract_tests.gateway.rig import WAIT_S, GatewayRig

KEY_AUTHORIZATION = (
    "evaGxfADs6pSRb2LAv9IZf17Dt3juxGJ-PCt92wr-oA.9jg46WB3rR_AHD-EBXdN7cBkH1WOu0tA3M9fm21mqTI"
)
# SHA-256 of it, an OCTET STRING of 32 bytes in DER.
PROOF = bytes.fromhex("0420")
HOST = "asked.example.com"


def ask(
    gateway: GatewayRig,
    host: str,
    *alpn: str,
    source: str = "127.0.0.1",
    version: ssl.TLSVersion | None = None,
) -> tuple[x509.Certificate, str | None, bytes]:
    """What is shown, the protocol agreed on, and all that is said after the handshake."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = version or ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(list(alpn))
    plain = socket.create_connection(
        ("127.0.0.1", gateway.port), WAIT_S, source_address=(source, 0)
    )
    with plain, context.wrap_socket(plain, server_hostname=host) as connection:
        shown = connection.getpeercert(binary_form=True)
        assert shown is not None
        agreed = connection.selected_alpn_protocol()
        said = connection.recv(100) if agreed == "acme-tls/1" else b""
        return x509.load_der_x509_certificate(shown), agreed, said


@pytest.fixture
def asked(gateway: GatewayRig) -> Iterator[None]:
    challenge.publish(gateway.home, HOST, KEY_AUTHORIZATION)
    yield
    challenge.withdraw(gateway.home, HOST)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.usefixtures("asked")
def test_the_answer_is_that_of_rfc_8737(gateway: GatewayRig, version: ssl.TLSVersion) -> None:
    shown, agreed, said = ask(gateway, HOST, "acme-tls/1", version=version)
    assert agreed == "acme-tls/1"
    assert said == b"", "nothing but the handshake, and its end"
    names = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert list(names) == [x509.DNSName(HOST)]
    proof = shown.extensions.get_extension_for_oid(challenge.ACME_IDENTIFIER)
    assert proof.critical
    assert isinstance(proof.value, x509.UnrecognizedExtension)
    digest = hashlib.sha256(KEY_AUTHORIZATION.encode()).digest()
    assert proof.value.value == PROOF + digest
    key = shown.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert shown.issuer == shown.subject


@pytest.mark.usefixtures("asked")
def test_it_is_answered_to_every_address_and_without_a_certificate(
    gateway: GatewayRig, tmp_path_factory: pytest.TempPathFactory
) -> None:
    authority = Authority("challenged", tmp_path_factory.mktemp("challenged"))
    gateway.add_instance(
        "challenged",
        domains=[HOST],
        allow_cidrs=["192.0.2.1"],
        client_ca_pem=authority.pem,
        protocol="postgres",
    )
    assert ask(gateway, HOST.upper(), "acme-tls/1", source="127.0.0.3")[1] == "acme-tls/1"


@pytest.mark.usefixtures("asked")
def test_nobody_else_gets_it(gateway: GatewayRig) -> None:
    domain = "both.example.com"
    challenge.publish(gateway.home, domain, KEY_AUTHORIZATION)
    gateway.add_instance("both", domains=[domain])
    for alpn in (["http/1.1"], ["acme-tls/1", "http/1.1"], []):
        shown, agreed, _ = ask(gateway, domain, *alpn) if alpn else ask_plainly(gateway, domain)
        assert agreed != "acme-tls/1"
        with pytest.raises(x509.ExtensionNotFound):
            shown.extensions.get_extension_for_oid(challenge.ACME_IDENTIFIER)


def ask_plainly(gateway: GatewayRig, host: str) -> tuple[x509.Certificate, str | None, bytes]:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with gateway.connect(host, context) as connection:
        shown = connection.getpeercert(binary_form=True)
        assert shown is not None
        return x509.load_der_x509_certificate(shown), connection.selected_alpn_protocol(), b""


@pytest.mark.parametrize("host", ["unasked.example.com", "a_b.example.com", "single"])
def test_where_none_is_under_way_the_host_is_unknown(gateway: GatewayRig, host: str) -> None:
    with pytest.raises(ssl.SSLError, match="unrecognized name"):
        ask(gateway, host, "acme-tls/1")


def test_a_name_leads_to_no_file_but_its_own(gateway: GatewayRig) -> None:
    (gateway.home / "pki" / "challenges").mkdir(exist_ok=True)
    both = (gateway.home / "pki" / "wildcard.pem").read_bytes()
    both += (gateway.home / "pki" / "wildcard.key").read_bytes()
    (gateway.home / "pki" / "outside.example.pem").write_bytes(both)
    hello = client_hello("../outside.example")
    with socket.create_connection(("127.0.0.1", gateway.port), WAIT_S) as plain:
        plain.sendall(hello)
        assert plain.recv(100) == bytes((21, 3, 3, 0, 2, 2, 112))


def client_hello(name: str) -> bytes:
    """As OpenSSL writes it for a name that it would not take, of the same length as one it does."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.set_alpn_protocols(["acme-tls/1"])
    stand_in = "a" * (len(name) - 8) + ".example"
    session = context.wrap_bio(incoming, outgoing, server_hostname=stand_in)
    with pytest.raises(ssl.SSLWantReadError):
        session.do_handshake()
    return outgoing.read().replace(stand_in.encode(), name.encode())


def test_a_broken_answer_harms_nothing(gateway: GatewayRig) -> None:
    broken = challenge.path(gateway.home, "broken.example.com")
    broken.parent.mkdir(exist_ok=True)
    broken.write_text("no certificate")
    with pytest.raises(ssl.SSLError, match="unrecognized name"):
        ask(gateway, "broken.example.com", "acme-tls/1")
    host = gateway.add_instance("after-broken")
    assert gateway.get(host).text == "after-broken"


def test_it_is_asked_on_the_port_of_https_only(protocols_gateway: GatewayRig) -> None:
    challenge.publish(protocols_gateway.home, HOST, KEY_AUTHORIZATION)
    assert ask(protocols_gateway, HOST, "acme-tls/1")[1] == "acme-tls/1"
    https, protocols_gateway.ports["https"] = (
        protocols_gateway.ports["https"],
        protocols_gateway.ports["resp"],
    )
    try:
        with pytest.raises(ssl.SSLError, match="unrecognized name"):
            ask(protocols_gateway, HOST, "acme-tls/1")
    finally:
        protocols_gateway.ports["https"] = https
