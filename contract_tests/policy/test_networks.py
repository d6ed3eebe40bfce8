"""Who may connect: the lists and bundles that are taken, how they are kept, whom they let in."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from control.policy.networks import (
    AUTHORITIES_MAX,
    Authority,
    admits,
    authorities,
    is_open,
    normal_authorities,
    normal_cidrs,
)
from control.policy.violations import Violation

NOW = datetime(2026, 5, 4, 3, 2, tzinfo=UTC)
KEY = ec.generate_private_key(ec.SECP256R1())
BARE = "must be one or more PEM certificates, one after the other"


def certificate(
    name: str | None = "Clients",
    *,
    ca: bool | None = True,
    ends: datetime | None = None,
    key: ec.EllipticCurvePrivateKey = KEY,
) -> x509.Certificate:
    """One that has no name, or says nothing of being a CA, where that is None."""
    ends = ends or NOW + timedelta(days=1)
    parts = [] if name is None else [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(parts))
        .issuer_name(x509.Name(parts))
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(ends - timedelta(days=9))
        .not_valid_after(ends)
    )
    if ca is not None:
        made = made.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    return made.sign(KEY, hashes.SHA256())


def pem(*certificates: x509.Certificate) -> str:
    return "".join(each.public_bytes(Encoding.PEM).decode() for each in certificates)


def faults(bundle: str) -> list[str]:
    kept, wrong = normal_authorities(bundle, NOW)
    assert {(one["pointer"], one["keyword"]) for one in wrong} <= {("/client_ca_pem", "format")}
    assert kept == bundle
    return [one["message"] for one in wrong]


def test_networks_are_kept_in_one_form_and_once() -> None:
    asked = ["192.0.2.1", "2001:DB8::/32", "192.0.2.1/32", "0.0.0.0/0"]
    assert normal_cidrs(asked) == (["192.0.2.1/32", "2001:db8::/32", "0.0.0.0/0"], [])
    assert normal_cidrs([]) == ([], [])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("here", "write an address or a network, such as 203.0.113.0/24"),
        ("192.0.2.0/33", "write an address or a network, such as 203.0.113.0/24"),
        ("192.0.2.1/24", "host bits are set; use 192.0.2.0/24"),
        ("::ffff:192.0.2.0/120", "this is an IPv4 network in IPv6 form; write it as IPv4"),
        ("fe80::1%eth0", "zone identifiers are not allowed"),
    ],
)
def test_a_network_that_is_refused_says_which_and_why(text: str, why: str) -> None:
    kept, wrong = normal_cidrs(["198.51.100.7", text, "198.51.100.8"])
    assert kept == ["198.51.100.7/32", "198.51.100.8/32"]
    message = f"{text!r} is not a valid CIDR network: {why}"
    assert wrong == [Violation(pointer="/allow_cidrs/1", keyword="format", message=message)]


def test_what_every_address_may_use_is_open() -> None:
    assert is_open(None)
    assert is_open(["192.0.2.0/24", "0.0.0.0/0"])
    assert is_open(["::/0"])
    assert not is_open([])
    assert not is_open(["0.0.0.0/1", "128.0.0.0/1"])


def test_whom_a_list_lets_in() -> None:
    listed = ["192.0.2.0/24", "2001:db8::/32"]
    assert admits(None, "203.0.113.9")
    assert admits(None, "unknown")
    for address in ("192.0.2.0", "192.0.2.255", "::ffff:192.0.2.7", "2001:db8::1"):
        assert admits(listed, address), address
    for address in ("192.0.3.0", "::ffff:192.0.3.7", "2001:db9::1", "unknown", ""):
        assert not admits(listed, address), address
    assert not admits([], "192.0.2.1")


def test_a_bundle_is_kept_as_its_certificates_alone() -> None:
    first, second = certificate("One"), certificate("Two")
    bundle = f"these are ours:\r\n{pem(first)}\tand\n{pem(second)}"
    assert normal_authorities(bundle, NOW) == (pem(first, second), [])
    assert authorities(pem(first, second)) == [
        Authority(f"CN={name}", each.fingerprint(hashes.SHA256()).hex(), NOW + timedelta(days=1))
        for name, each in (("One", first), ("Two", second))
    ]
    assert authorities(None) == []


def test_a_private_key_is_refused_whatever_is_beside_it() -> None:
    bundle = pem(certificate()) + "-----BEGIN EC PRIVATE KEY-----\n"
    told = "the bundle contains a private key; send certificates only, and replace that key"
    assert faults(bundle) == [told]


@pytest.mark.parametrize(
    "bundle",
    [
        "", "text", pem(certificate()).replace("M", "!", 1), pem(certificate()) + "\0",
        pem(certificate()) + "\x1b[2J",
    ],
)  # fmt: skip
def test_what_is_no_bundle_is_refused(bundle: str) -> None:
    assert faults(bundle) == [f"the bundle {BARE}"]


def test_a_bundle_has_so_many_certificates_and_no_more() -> None:
    many = [certificate(str(number)) for number in range(AUTHORITIES_MAX + 1)]
    assert faults(pem(*many[1:])) == []
    assert faults(pem(*many)) == ["the bundle has 21 certificates; at most 20 are allowed"]


def test_each_certificate_must_be_that_of_an_authority() -> None:
    fault = "is not a CA certificate (basicConstraints CA is not set)"
    wrong = [certificate("Leaf", ca=False), certificate("Old form", ca=None)]
    assert faults(pem(certificate(), *wrong, certificate(None, ca=False))) == [
        f"certificate CN=Leaf {fault}",
        f"certificate CN=Old form {fault}",
        f"certificate without a name {fault}",
    ]


def test_a_key_that_takes_long_to_verify_by_is_refused() -> None:
    assert faults(pem(certificate(key=ec.generate_private_key(ec.SECP521R1())))) == []
    (fault,) = faults(pem(certificate(key=ec.generate_private_key(ec.BrainpoolP512R1()))))
    told = "certificate CN=Clients has a key on the curve brainpoolP512r1; allowed are RSA of up to"
    assert fault.startswith(told)


def test_a_certificate_that_has_expired_is_refused() -> None:
    assert faults(pem(certificate(ends=NOW + timedelta(seconds=1)))) == []
    assert faults(pem(certificate(ends=NOW))) == [
        "certificate CN=Clients expired at 2026-05-04 03:02 UTC"
    ]
