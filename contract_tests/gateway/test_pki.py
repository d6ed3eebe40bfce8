"""The region's certificates: strict clients accept them, and they renew themselves in time."""

import datetime as dt
import shutil
import socket
import ssl
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store

from cell.certificates import pki

NOW = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
ZONE = "eu-1.db.example"


def make(home: Path, now: dt.datetime = NOW) -> pki.CertificateFiles:
    return pki.ensure(home, "eu-1", "db.example", now)


def chain(path: Path) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(path.read_bytes())


def verify(made: pki.CertificateFiles, name: str, now: dt.datetime) -> None:
    leaf, *intermediates = chain(made.wildcard_pem)
    builder = PolicyBuilder().store(Store(chain(made.root_pem))).time(now.replace(tzinfo=None))
    builder.build_server_verifier(x509.DNSName(name)).verify(leaf, intermediates)


def contents(home: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (home / "pki").iterdir()}


@pytest.mark.parametrize("name", [f"duckdb-01jd.{ZONE}", f"cell.{ZONE}"])
def test_a_strict_verifier_accepts_the_chain(tmp_path: Path, name: str) -> None:
    verify(make(tmp_path), name, NOW)


@pytest.mark.parametrize("name", ["db.example", f"a.b.{ZONE}", "duckdb.eu-2.db.example"])
def test_other_names_are_not_covered(tmp_path: Path, name: str) -> None:
    with pytest.raises(x509.verification.VerificationError):
        verify(make(tmp_path), name, NOW)


@pytest.mark.parametrize("trusted", ["root.pem", "chain.pem"])
def test_python_with_every_strict_flag_accepts_it(tmp_path: Path, trusted: str) -> None:
    made = pki.ensure(tmp_path, "eu-1", "db.example", dt.datetime.now(dt.UTC))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(made.wildcard_pem, made.wildcard_key)
    client = ssl.create_default_context(cafile=str(tmp_path / "pki" / trusted))
    client.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with theirs, server.wrap_socket(theirs, server_side=True) as connection:
            connection.recv(1)

    thread = threading.Thread(target=serve)
    thread.start()
    with ours, client.wrap_socket(ours, server_hostname=f"a.{ZONE}") as connection:
        assert connection.version() == "TLSv1.3"
        connection.sendall(b"x")
    thread.join(10)


def test_openssl_accepts_it_strictly(tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    made = make(tmp_path)
    ran = subprocess.run(
        [
            *(openssl, "verify", "-x509_strict", "-purpose", "sslserver", "-check_ss_sig"),
            *("-policy_check", "-attime", str(int(NOW.timestamp()))),
            *("-verify_hostname", f"duckdb-1.{ZONE}", "-CAfile", str(made.root_pem)),
            *("-untrusted", str(made.chain_pem), str(made.wildcard_pem)),
        ],
        capture_output=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def test_the_intermediate_signs_for_its_zone_only(tmp_path: Path) -> None:
    intermediate = chain(make(tmp_path).wildcard_pem)[1]
    constraints = intermediate.extensions.get_extension_for_class(x509.NameConstraints)
    assert constraints.critical
    assert constraints.value.permitted_subtrees == [x509.DNSName(ZONE)]


def test_no_authoritys_key_is_readable_and_the_wildcards_by_the_owner_only(tmp_path: Path) -> None:
    make(tmp_path)
    keys = [path for path in (tmp_path / "pki").iterdir() if b"PRIVATE" in path.read_bytes()]
    assert [path.name for path in keys] == ["wildcard.key"]
    assert keys[0].stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "seal.key").stat().st_mode & 0o777 == 0o600
    for sealed in (tmp_path / "pki").glob("*.sealed"):
        assert sealed.stat().st_mode & 0o777 == 0o600


def test_nothing_changes_until_two_thirds_of_the_life(tmp_path: Path) -> None:
    made = make(tmp_path)
    assert made.not_after - NOW == 60 * DAY
    before = contents(tmp_path)
    make(tmp_path, NOW + 39 * DAY)
    assert contents(tmp_path) == before
    assert made.renew_at == NOW + 40 * DAY


def test_the_wildcard_alone_is_renewed_when_due(tmp_path: Path) -> None:
    make(tmp_path)
    before = contents(tmp_path)
    later = NOW + 41 * DAY
    make(tmp_path, later)
    after = contents(tmp_path)
    assert {name for name in after if after[name] != before[name]} == {
        "wildcard.pem",
        "wildcard.key",
    }
    verify(make(tmp_path, later), f"a.{ZONE}", later)


def test_a_renewed_intermediate_leaves_the_former_trusted(tmp_path: Path) -> None:
    former = chain(make(tmp_path).wildcard_pem)[1]
    later = NOW + 800 * DAY
    made = make(tmp_path, later)
    current = chain(made.wildcard_pem)[1]
    assert current != former
    assert chain(made.chain_pem) == [current, former, *chain(made.root_pem)]
    verify(made, f"a.{ZONE}", later)


def test_another_region_gets_its_own_names_under_the_same_root(tmp_path: Path) -> None:
    root = make(tmp_path).root_pem.read_bytes()
    made = pki.ensure(tmp_path, "eu-2", "db.example", NOW)
    assert made.root_pem.read_bytes() == root
    verify(made, "a.eu-2.db.example", NOW)


def test_a_key_that_does_not_fit_is_replaced(tmp_path: Path) -> None:
    made = make(tmp_path)
    other = make(tmp_path / "other")
    made.wildcard_key.write_bytes(other.wildcard_key.read_bytes())
    renewed = make(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(renewed.wildcard_pem, renewed.wildcard_key)


def test_another_seal_key_is_named_as_the_cause(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "seal.key").write_bytes(b"another" * 5)
    with pytest.raises(pki.PkiError, match="under another seal"):
        make(tmp_path)


def test_a_lost_root_key_is_an_error_and_not_a_new_root(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "pki" / "root.key.sealed").unlink()
    with pytest.raises(pki.PkiError, match="missing"):
        make(tmp_path)


def test_many_at_once_agree(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: make(tmp_path), range(16)))
    assert len({each.not_after for each in made}) == 1
    verify(made[0], f"a.{ZONE}", NOW)


def test_a_long_domain_fits(tmp_path: Path) -> None:
    domain = "-".join(["long"] * 10) + ".example"
    made = pki.ensure(tmp_path, "region-with-a-long-name", domain, NOW)
    verify(made, f"a.region-with-a-long-name.{domain}", NOW)
