"""Further hosts of an instance: domains with certificates of their own, and gRPC's."""

import contextlib
import shutil
import ssl
from pathlib import Path

import pytest

from contract_tests.gateway.authorities import SERVER, Authority
from contract_tests.gateway.backends import http
from contract_tests.gateway.conftest import MakeGateway
from contract_tests.gateway.postgres_clients import Postgres, add_postgres, connect
from contract_tests.gateway.rig import ZONE, GatewayRig, raw_get, until


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority("domains", tmp_path_factory.mktemp("domains"))


def install(gateway: GatewayRig, authority: Authority, domain: str) -> None:
    """As the cell does it: `pki/domains/<host>.key`, then `.crt`."""
    made = authority.issue(domain, SERVER)
    directory = gateway.home / "pki" / "domains"
    directory.mkdir(exist_ok=True)
    shutil.copyfile(made.key, directory / f"{domain}.key")
    shutil.copyfile(made.certificate, directory / f"{domain}.crt")


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority.pem)


def answer(gateway: GatewayRig, domain: str, context: ssl.SSLContext) -> bytes | None:
    try:
        with gateway.connect(domain, context) as connection:
            return raw_get(connection)[2]
    except (ssl.SSLError, ConnectionError):
        return None


def test_a_domain_leads_to_its_instance_under_its_own_certificate(
    gateway: GatewayRig, authority: Authority
) -> None:
    install(gateway, authority, "db.example.com")
    host = gateway.add_instance("domain", domains=["db.example.com", "other.example.com"])
    context = trusting(authority)
    until(
        lambda: answer(gateway, "db.example.com", context) == b"domain", "its certificate is used"
    )
    assert gateway.get(host).text == "domain"
    # No certificate for this one: the wildcard's, which no client takes for it.
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        gateway.connect("other.example.com", gateway.context())


def test_a_renewed_certificate_of_a_domain_is_used(
    gateway: GatewayRig, authority: Authority
) -> None:
    domain = "renewed.example.com"
    install(gateway, authority, domain)
    gateway.add_instance("renewed", domains=[domain])
    context = trusting(authority)

    def serial() -> str | None:
        with contextlib.suppress(ssl.SSLError), gateway.connect(domain, context) as connection:
            return str((connection.getpeercert() or {})["serialNumber"])
        return None

    before = until(serial, "its certificate is used")
    install(gateway, authority, domain)
    until(lambda: serial() not in (None, before), "the new one is used")


def test_what_holds_for_the_host_holds_for_its_domains(
    gateway: GatewayRig, authority: Authority
) -> None:
    install(gateway, authority, "listed.example.com")
    gateway.add_instance("listed-domain", domains=["listed.example.com"], allow_cidrs=["127.0.0.2"])
    context = trusting(authority)
    assert answer(gateway, "listed.example.com", context) is None

    def let_in() -> bool:
        try:
            with gateway.connect("listed.example.com", context, source="127.0.0.2") as connection:
                return raw_get(connection)[2] == b"listed-domain"
        except ssl.SSLError:
            return False

    until(let_in, "the listed address gets in")


def test_no_domain_takes_the_host_of_another(gateway: GatewayRig) -> None:
    host = gateway.add_instance("own")
    gateway.add_instance("a-thief", domains=[host, f"cell.{ZONE}"])
    gateway.add_instance("z-thief", domains=[host, f"cell.{ZONE}"])
    assert gateway.get(host).text == "own"
    gateway.serve(gateway.cell_socket, http("the cell"))
    assert gateway.get(f"cell.{ZONE}").text == "the cell"


def test_a_domain_that_is_gone_leads_nowhere(gateway: GatewayRig) -> None:
    host = gateway.add_instance("going", domains=["going.example.com"])
    assert gateway.knows("going.example.com")
    gateway.set_route(host, domains=[])
    until(lambda: not gateway.knows("going.example.com"), "the domain is unknown")
    assert gateway.get(host).text == "going"


def test_psycopg_connects_by_a_domain(
    make_gateway: MakeGateway, authority: Authority, postgres: Postgres, tmp_path: Path
) -> None:
    gateway = make_gateway(ports={"https": 0, "postgres": 0})
    install(gateway, authority, "pg.example.com")
    add_postgres(gateway, "domain-pg", postgres, domains=["pg.example.com"])
    root = tmp_path / "root.pem"
    root.write_text(authority.pem)
    with connect(gateway, "pg.example.com", sslrootcert=str(root)) as connection:
        assert connection.execute("SELECT 1").fetchall() == [(1,)]


@pytest.fixture
def grpc_context(gateway: GatewayRig) -> ssl.SSLContext:
    context = gateway.context()
    context.set_alpn_protocols(["h2"])
    return context


def test_the_grpc_host_leads_to_the_second_socket(
    gateway: GatewayRig, grpc_context: ssl.SSLContext
) -> None:
    second = gateway.home / "run" / "grpc-second.sock"
    gateway.serve(second, http("second"))
    host = gateway.add_instance("two", grpc_socket=str(second))
    label, _, zone = host.partition(".")
    grpc_host = f"{label}-grpc.{zone}"
    assert gateway.get(host).text == "two"
    with gateway.connect(grpc_host, grpc_context) as connection:
        assert connection.selected_alpn_protocol() == "h2"
        assert raw_get(connection)[2] == b"second"
    http_only = gateway.context()
    http_only.set_alpn_protocols(["http/1.1"])
    with pytest.raises(ssl.SSLError, match="no application protocol"):
        gateway.connect(grpc_host, http_only)


def test_a_refusal_of_grpc_is_a_goaway(gateway: GatewayRig, grpc_context: ssl.SSLContext) -> None:
    host = gateway.add_instance(
        "paused-grpc", grpc_socket="/nowhere", state="paused", refusal="the instance is paused"
    )
    label, _, zone = host.partition(".")
    with gateway.connect(f"{label}-grpc.{zone}", grpc_context) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0")
        said = b""
        while chunk := connection.recv(1_000):
            said += chunk
    assert said.startswith(b"\0\0\0\x04\0\0\0\0\0")
    assert said[9 + 3] == 7  # GOAWAY
    assert said.endswith(b"the instance is paused")


def test_an_instance_without_a_second_socket_has_no_grpc_host(gateway: GatewayRig) -> None:
    host = gateway.add_instance("single")
    label, _, zone = host.partition(".")
    assert not gateway.knows(f"{label}-grpc.{zone}")


def test_a_host_of_two_protocols_is_served_on_both_ports(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(ports={"https": 0, "clickhouse_https": 0})
    by_https = gateway.home / "run" / "by-https.sock"
    gateway.serve(by_https, http("by https"))
    host = gateway.add_instance(
        "house", backend=False, protocol="clickhouse", https_socket=str(by_https)
    )
    with pytest.raises(ssl.SSLError, match="unrecognized name"):
        gateway.connect(host)
    gateway.ports["https"] = gateway.ports["clickhouse_https"]
    assert gateway.get(host).text == "by https"
