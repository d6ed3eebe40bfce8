"""Holds that a custom domain has a certificate before its route, and none once it is gone."""

import datetime as dt
from pathlib import Path

from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store

from cell.certificates import pki
from contract_tests.cell.rig import Rig

NOW = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)


def verify(home: Path, host: str, now: dt.datetime) -> x509.Certificate:
    """The certificate of the domain, which a client that trusts the root alone accepts."""
    root = x509.load_pem_x509_certificate((home / "pki" / "root.pem").read_bytes())
    served = (home / "pki" / "domains" / f"{host}.crt").read_bytes()
    leaf, *intermediates = x509.load_pem_x509_certificates(served)
    builder = PolicyBuilder().store(Store([root])).time(now.replace(tzinfo=None))
    builder.build_server_verifier(x509.DNSName(host)).verify(leaf, intermediates)
    return leaf


def test_a_domain_comes_with_a_certificate_and_goes_with_it(light_rig: Rig) -> None:
    folder = light_rig.home / "pki" / "domains"
    # Instances of other tests may have domains too.
    others = {path.name for path in folder.iterdir()} if folder.exists() else set()
    first, second = light_rig.make(), light_rig.make()
    light_rig.put(first, domains=["db.example.com", "DB2.example.com"])
    light_rig.put(second, domains=["other.example.com"])
    for host in ("db.example.com", "db2.example.com", "other.example.com"):
        verify(light_rig.home, host, dt.datetime.now(dt.UTC))
    route = light_rig.route(first)
    assert route is not None
    assert route["domains"] == ["db.example.com", "db2.example.com"]
    light_rig.put(first, domains=["db2.example.com"])
    kept = {path.name for path in folder.iterdir()} - others
    hosts = ("db2.example.com", "other.example.com")
    assert kept == {f"{host}.{kind}" for host in hosts for kind in ("crt", "key")}
    for instance_id in (first, second):
        light_rig.action(instance_id, "erase")


def test_the_longest_domain_has_files_too(light_rig: Rig) -> None:
    longest = "a." * 118 + "test"
    instance_id = light_rig.make(domains=[longest])
    assert light_rig.route(instance_id)["domains"] == [longest]  # type: ignore[index]
    light_rig.action(instance_id, "erase")


def test_certificates_of_domains_are_renewed_when_due(tmp_path: Path) -> None:
    pki.ensure(tmp_path, "eu-1", "db.example", NOW)
    pki.ensure_domains(tmp_path, "eu-1", ["db.customer.example"], NOW)
    first = verify(tmp_path, "db.customer.example", NOW)
    pki.ensure_domains(tmp_path, "eu-1", ["db.customer.example"], NOW + 39 * DAY)
    assert verify(tmp_path, "db.customer.example", NOW + 39 * DAY) == first
    later = NOW + 41 * DAY
    pki.ensure_domains(tmp_path, "eu-1", ["db.customer.example"], later)
    renewed = verify(tmp_path, "db.customer.example", later)
    assert renewed.not_valid_after_utc == later + 60 * DAY
    # The authority is renewed too, in its time, and serves what was made before it.
    much_later = NOW + 1000 * DAY
    pki.ensure_domains(tmp_path, "eu-1", ["db.customer.example"], much_later)
    verify(tmp_path, "db.customer.example", much_later)
    key = tmp_path / "pki" / "domains" / "db.customer.example.key"
    assert key.stat().st_mode & 0o777 == 0o600
