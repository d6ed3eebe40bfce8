"""Domains get certificates from a real ACME server, and are served with them."""

import contextlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from cryptography import x509

from contract_tests.cell.certificates.region import Region
from contract_tests.cell.rig import VALKEY, Rig, until


def light(region: Region) -> Rig:
    """The same cell, where the engine need not be one that the gateway serves on its port."""
    return replace(region.rig, usual=VALKEY)


@pytest.fixture(scope="module")
def instance_id(region: Region) -> str:
    """For tests that give it domains, and leave it none."""
    return region.rig.make()


@pytest.mark.nightly
def test_a_domain_is_certified_by_the_acme_server(region: Region) -> None:
    host = "db.example.com"
    region.point(host)
    instance_id = region.rig.make()
    password = region.rig.reveal(instance_id)["password"]
    region.rig.put(instance_id, domains=[host])
    told = region.issued(instance_id, host)
    assert (told["status_reason"], told["retry_at"]) == (None, None)
    context = region.trusting()
    until(lambda: region.taken(host, context), "the gateway serves it")
    assert region.query(host, password, context, "SELECT 42 AS n").json()["rows"] == [[42]]
    assert not region.taken(host, region.trusting_local())
    # The hosts of the region stay the local CA's.
    own = region.rig.observe(instance_id)["host"]
    assert region.taken(own, region.trusting_local())
    assert not region.taken(own, context)
    region.rig.action(instance_id, "erase")


@pytest.mark.nightly
def test_there_is_no_moment_without_a_certificate(region: Region, instance_id: str) -> None:
    host = "at-once.example.com"  # its name leads nowhere, so that the server refuses it
    region.rig.put(instance_id, domains=[host])
    region.served_locally(host)
    told = region.failed(instance_id, host, "Could not resolve")
    assert told["issued_by"] == "local"
    assert told["retry_at"] is not None
    region.served_locally(host)
    region.point(host)
    region.issued(instance_id, host)
    region.rig.put(instance_id)


@pytest.mark.nightly
def test_whom_an_instance_lets_in_holds_up_no_certificate(region: Region) -> None:
    host = "closed.example.com"
    region.point(host)
    root = (region.rig.home / "pki" / "root.pem").read_text()
    instance_id = light(region).make(allow_cidrs=["192.0.2.1"], client_ca_pem=root)
    light(region).put(instance_id, allow_cidrs=["192.0.2.1"], client_ca_pem=root, domains=[host])
    region.issued(instance_id, host)
    region.rig.action(instance_id, "erase")


# Slow for what it adds by day.
@pytest.mark.nightly
def test_libpq_connects_by_a_domain(region: Region, tmp_path: Path) -> None:
    versions = region.versions("postgres")
    if not versions:
        pytest.skip("this machine has no PostgreSQL")
    host = "pg.example.com"
    region.point(host)
    given = {
        "engine": "postgres",
        "engine_version": versions[0],
        "host": "postgres-acme.local.localhost",
    }
    instance_id = region.rig.make(**given)
    region.rig.put(instance_id, **given, domains=[host])
    region.issued(instance_id, host)
    until(lambda: region.taken_by_postgres(host), "the gateway serves it")
    roots = tmp_path / "acme.pem"
    roots.write_text(region.pebble.root_pem)
    credential = region.rig.reveal(instance_id)
    with psycopg.connect(
        host=host,
        hostaddr="127.0.0.1",
        port=region.ports["postgres"],
        dbname="app",
        user=credential["username"],
        password=credential["password"],
        sslmode="verify-full",
        sslrootcert=str(roots),
    ) as connection:
        assert connection.execute("SELECT 1").fetchall() == [(1,)]
    region.rig.action(instance_id, "erase")


@pytest.mark.nightly
def test_what_is_secret_rests_so_and_goes_with_the_domain(region: Region) -> None:
    host, other = "gone.example.com", "stays.example.com"
    region.point(host, other)
    instance_id = light(region).make()
    light(region).put(instance_id, domains=[host, other])
    for each in (host, other):
        region.issued(instance_id, each)
    pki = region.rig.home / "pki"
    assert (pki / "domains" / f"{host}.key").stat().st_mode & 0o777 == 0o600
    assert list((pki / "challenges").iterdir()) == []
    for file in region.rig.home.glob("cell.db*"):
        with contextlib.suppress(FileNotFoundError):  # SQLite's own come and go
            assert b"PRIVATE KEY" not in file.read_bytes()
    light(region).put(instance_id, domains=[other])
    left = {path.name for path in (pki / "domains").iterdir() if host in path.name}
    assert left == set()
    told = region.rig.observe(instance_id)["domains"]
    assert [one["hostname"] for one in told] == [other]
    region.rig.action(instance_id, "delete")
    assert list((pki / "domains").glob(f"{other}.*")) == []
    region.rig.action(instance_id, "erase")


# Slow for what it adds by day.
@pytest.mark.nightly
def test_the_certificate_names_the_domain_and_no_other(region: Region, instance_id: str) -> None:
    host = f"{'a' * 63}.{'b' * 20}.example.com"  # too long for a common name
    region.point(host)
    region.rig.put(instance_id, domains=[host])
    region.issued(instance_id, host)
    leaf = x509.load_pem_x509_certificate(
        (region.rig.home / "pki" / "domains" / f"{host}.crt").read_bytes()
    )
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [host]
    region.rig.put(instance_id)


@pytest.mark.nightly
def test_a_cell_without_it_imports_none_of_it() -> None:
    program = (
        "import sys, cell.main, cell.agent\n"
        "late = {'acme', 'josepy', 'OpenSSL', 'cell.certificates.acme.server'}\n"
        "print(sorted(late & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    assert ran.stdout.strip() == "[]"
