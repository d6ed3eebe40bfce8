"""Certificates are renewed under live connections: nobody is cut, and new ones get the new one."""

import datetime as dt
import hashlib
import shutil
import ssl
from pathlib import Path

from cell.certificates import pki
from contract_tests.gateway.authorities import Authority
from contract_tests.gateway.conftest import MakeGateway
from contract_tests.gateway.rig import DOMAIN, REGION, GatewayRig, raw_get, until
from gateway.certificates import Certificates


def fingerprint(connection: ssl.SSLSocket) -> str:
    certificate = connection.getpeercert(binary_form=True)
    assert certificate is not None
    return hashlib.sha256(certificate).hexdigest()


def served(gateway: GatewayRig, host: str) -> str:
    with gateway.connect(host) as connection:
        return fingerprint(connection)


def renew(gateway: GatewayRig) -> None:
    """As the calendar would: the old pair is made to look due."""
    (gateway.home / "pki" / "wildcard.pem").unlink()
    assert pki.ensure(gateway.home, REGION, DOMAIN, dt.datetime.now(dt.UTC)).wildcard_pem.exists()


def test_a_renewed_certificate_reaches_new_connections_and_cuts_no_old_one(
    make_gateway: MakeGateway,
) -> None:
    gateway = make_gateway()
    host = gateway.add_instance("rotated")
    with gateway.connect(host) as established:
        before = fingerprint(established)
        assert raw_get(established)[0] == 200
        renew(gateway)
        until(lambda: served(gateway, host) != before, "the new certificate is served")
        assert raw_get(established)[0] == 200
        assert fingerprint(established) == before


def test_a_pair_that_does_not_fit_is_not_put_into_force(make_gateway: MakeGateway) -> None:
    gateway = make_gateway()
    host = gateway.add_instance("misfit")
    before = served(gateway, host)
    key = gateway.home / "pki" / "wildcard.key"
    former = key.read_bytes()
    key.write_text("not a key")
    until(
        lambda: any(line["event"] == "gateway.certificate_kept" for line in gateway.log()),
        "the misfit was seen",
    )
    assert served(gateway, host) == before
    key.write_bytes(former)
    renew(gateway)
    until(lambda: served(gateway, host) != before, "a pair that fits is served")


def test_a_gateway_without_certificates_begins_to_serve_when_they_come(
    make_gateway: MakeGateway,
) -> None:
    gateway = make_gateway(restarts=True)
    host = gateway.add_instance("early")
    (gateway.home / "pki").rename(gateway.home / "pki-later")
    gateway.process.terminate()
    gateway.restart()
    with gateway.dial() as plain:
        context = ssl.create_default_context(cafile=str(gateway.home / "pki-later" / "root.pem"))
        try:
            context.wrap_socket(plain, server_hostname=host)
        except ssl.SSLError as error:
            assert error.reason == "TLSV1_ALERT_INTERNAL_ERROR"  # noqa: PT017 - a socket to close
        else:
            raise AssertionError("there is nothing to serve it with")
    (gateway.home / "pki-later").rename(gateway.home / "pki")
    until(lambda: _serves(gateway, host), "it serves")


def _serves(gateway: GatewayRig, host: str) -> bool:
    try:
        return gateway.get(host).status_code == 200
    except Exception:  # noqa: BLE001 - any refusal means "not yet"
        return False


def test_no_context_is_kept_for_authorities_that_nobody_asks_for(tmp_path: Path) -> None:
    """Each takes some 100 KB, and a bundle can be replaced often."""
    pki.ensure(tmp_path, REGION, DOMAIN, dt.datetime.now(dt.UTC))
    certificates = Certificates(tmp_path / "pki")
    bundles = [Authority(f"{number}", tmp_path).pem for number in range(5)]
    for bundle in bundles:
        assert certificates.context((), "", bundle) is not None
    kept = certificates.context((), "", bundles[3])
    certificates.refresh({bundles[3]})
    assert [key[2] for key in certificates._made] == [bundles[3]]
    assert certificates.context((), "", bundles[3]) is kept


def test_no_context_is_kept_for_a_domain_that_is_gone(tmp_path: Path) -> None:
    pki.ensure(tmp_path, REGION, DOMAIN, dt.datetime.now(dt.UTC))
    certificates, domains = Certificates(tmp_path / "pki"), tmp_path / "pki" / "domains"
    domains.mkdir(exist_ok=True)
    for kind, of in ((".crt", "pem"), (".key", "key")):
        shutil.copy(tmp_path / "pki" / f"wildcard.{of}", domains / f"shop.example{kind}")
    certificates.refresh(())
    own = certificates.context((), "shop.example")
    assert own is not certificates.context((), "other.example")
    (domains / "shop.example.crt").unlink()
    certificates.refresh(())
    assert certificates.context((), "shop.example") is certificates.context((), "other.example")
    assert len(certificates._made) == 1
