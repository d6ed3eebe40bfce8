"""Further hosts of an instance: domains with certificates of their own, and gRPC's."""

import contextlib
import shutil
import ssl
from pathlib import Path

import pytest

from contract_tests.gateway.authorities import SERVER, Authority
from contract_tests.gateway.backends import http
from contract_tests.gateway.conftest import MakeDoor
from contract_tests.gateway.door import ZONE, Door, raw_get, until
from contract_tests.gateway.postgres_clients import Postgres, add_postgres, connect


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority("domains", tmp_path_factory.mktemp("domains"))


def install(door: Door, authority: Authority, domain: str) -> None:
    """As the cell does it: `pki/domains/<host>.key`, then `.crt`."""
    made = authority.issue(domain, SERVER)
    directory = door.home / "pki" / "domains"
    directory.mkdir(exist_ok=True)
    shutil.copyfile(made.key, directory / f"{domain}.key")
    shutil.copyfile(made.certificate, directory / f"{domain}.crt")


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority.pem)


def answer(door: Door, domain: str, context: ssl.SSLContext) -> bytes | None:
    try:
        with door.connect(domain, context) as connection:
            return raw_get(connection)[2]
    except (ssl.SSLError, ConnectionError):
        return None


def test_a_domain_leads_to_its_instance_under_its_own_certificate(
    door: Door, authority: Authority
) -> None:
    install(door, authority, "db.example.com")
    host = door.add_instance("domain", domains=["db.example.com", "other.example.com"])
    context = trusting(authority)
    until(lambda: answer(door, "db.example.com", context) == b"domain", "its certificate is used")
    assert door.get(host).text == "domain"
    # No certificate for this one: the wildcard's, which no client takes for it.
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        door.connect("other.example.com", door.context())


def test_a_renewed_certificate_of_a_domain_is_used(door: Door, authority: Authority) -> None:
    domain = "renewed.example.com"
    install(door, authority, domain)
    door.add_instance("renewed", domains=[domain])
    context = trusting(authority)

    def serial() -> str | None:
        with contextlib.suppress(ssl.SSLError), door.connect(domain, context) as connection:
            return str((connection.getpeercert() or {})["serialNumber"])
        return None

    before = until(serial, "its certificate is used")
    install(door, authority, domain)
    until(lambda: serial() not in (None, before), "the new one is used")


def test_what_holds_for_the_host_holds_for_its_domains(door: Door, authority: Authority) -> None:
    install(door, authority, "listed.example.com")
    door.add_instance("listed-domain", domains=["listed.example.com"], allow_cidrs=["127.0.0.2"])
    context = trusting(authority)
    assert answer(door, "listed.example.com", context) is None

    def let_in() -> bool:
        try:
            with door.connect("listed.example.com", context, source="127.0.0.2") as connection:
                return raw_get(connection)[2] == b"listed-domain"
        except ssl.SSLError:
            return False

    until(let_in, "the listed address gets in")


def test_no_domain_takes_the_host_of_another(door: Door) -> None:
    host = door.add_instance("own")
    door.add_instance("a-thief", domains=[host, f"cell.{ZONE}"])
    door.add_instance("z-thief", domains=[host, f"cell.{ZONE}"])
    assert door.get(host).text == "own"
    door.serve(door.cell_socket, http("the cell"))
    assert door.get(f"cell.{ZONE}").text == "the cell"


def test_a_domain_that_is_gone_leads_nowhere(door: Door) -> None:
    host = door.add_instance("going", domains=["going.example.com"])
    assert door.knows("going.example.com")
    door.set_route(host, domains=[])
    until(lambda: not door.knows("going.example.com"), "the domain is unknown")
    assert door.get(host).text == "going"


def test_psycopg_connects_by_a_domain(
    make_door: MakeDoor, authority: Authority, postgres: Postgres, tmp_path: Path
) -> None:
    door = make_door(ports={"https": 0, "postgres": 0})
    install(door, authority, "pg.example.com")
    add_postgres(door, "domain-pg", postgres, domains=["pg.example.com"])
    root = tmp_path / "root.pem"
    root.write_text(authority.pem)
    with connect(door, "pg.example.com", sslrootcert=str(root)) as connection:
        assert connection.execute("SELECT 1").fetchall() == [(1,)]


@pytest.fixture
def grpc_context(door: Door) -> ssl.SSLContext:
    context = door.context()
    context.set_alpn_protocols(["h2"])
    return context


def test_the_grpc_host_leads_to_the_second_socket(door: Door, grpc_context: ssl.SSLContext) -> None:
    second = door.home / "run" / "grpc-second.sock"
    door.serve(second, http("second"))
    host = door.add_instance("two", grpc_socket=str(second))
    label, _, zone = host.partition(".")
    grpc_host = f"{label}-grpc.{zone}"
    assert door.get(host).text == "two"
    with door.connect(grpc_host, grpc_context) as connection:
        assert connection.selected_alpn_protocol() == "h2"
        assert raw_get(connection)[2] == b"second"
    http_only = door.context()
    http_only.set_alpn_protocols(["http/1.1"])
    with pytest.raises(ssl.SSLError, match="no application protocol"):
        door.connect(grpc_host, http_only)


def test_a_refusal_of_grpc_is_a_goaway(door: Door, grpc_context: ssl.SSLContext) -> None:
    host = door.add_instance(
        "paused-grpc", grpc_socket="/nowhere", state="paused", refusal="the instance is paused"
    )
    label, _, zone = host.partition(".")
    with door.connect(f"{label}-grpc.{zone}", grpc_context) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0")
        said = b""
        while chunk := connection.recv(1_000):
            said += chunk
    assert said.startswith(b"\0\0\0\x04\0\0\0\0\0")
    assert said[9 + 3] == 7  # GOAWAY
    assert said.endswith(b"the instance is paused")


def test_an_instance_without_a_second_socket_has_no_grpc_host(door: Door) -> None:
    host = door.add_instance("single")
    label, _, zone = host.partition(".")
    assert not door.knows(f"{label}-grpc.{zone}")


def test_a_host_of_two_protocols_is_served_on_both_ports(make_door: MakeDoor) -> None:
    door = make_door(ports={"https": 0, "clickhouse_https": 0})
    by_https = door.home / "run" / "by-https.sock"
    door.serve(by_https, http("by https"))
    host = door.add_instance(
        "house", backend=False, protocol="clickhouse", https_socket=str(by_https)
    )
    with pytest.raises(ssl.SSLError, match="unrecognized name"):
        door.connect(host)
    door.ports["https"] = door.ports["clickhouse_https"]
    assert door.get(host).text == "by https"
