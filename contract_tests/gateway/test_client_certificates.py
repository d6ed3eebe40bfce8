"""Client certificates: asked for on the hosts that want them, and on no other."""

import asyncio
import concurrent.futures
import ssl
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest

from contract_tests.gateway.authorities import SERVER, Authority, Pair
from contract_tests.gateway.backends import answer, read_head
from contract_tests.gateway.conftest import MakeGateway
from contract_tests.gateway.postgres_clients import (
    Postgres,
    add_postgres,
    asked_for_tls,
    connect,
    label,
    read_error,
    startup,
)
from contract_tests.gateway.rig import GatewayRig, raw_get, until

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority("one", tmp_path)


def status(
    gateway: GatewayRig,
    host: str,
    pair: Pair | None,
    version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
) -> int | str:
    """What a request is answered with, or the alert that ends it."""
    context = gateway.context()
    context.maximum_version = version
    if pair is not None:
        context.load_cert_chain(pair.certificate, pair.key)
    try:
        with gateway.connect(host, context) as connection:
            return raw_get(connection)[0]
    except ssl.SSLError as error:
        return str(error.reason)


def shakes_hands(gateway: GatewayRig, host: str) -> bool:
    """Without a certificate; in TLS 1.2 the handshake itself says whether that is enough."""
    context = gateway.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    try:
        gateway.connect(host, context).close()
    except ssl.SSLError:
        return False
    return True


@pytest.mark.parametrize("version", VERSIONS)
def test_only_certificates_of_the_bundle_are_let_in(
    gateway: GatewayRig, authority: Authority, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    name = f"mutual-{version.name[-1]}"
    host = gateway.add_instance(name, client_ca_pem=authority.pem)
    stranger = Authority("stranger", tmp_path)
    impostor = Authority("one", tmp_path)  # the same name, another key
    assert status(gateway, host, authority.issue("app"), version) == 200
    missing = status(gateway, host, None, version)
    assert missing in {"TLSV13_ALERT_CERTIFICATE_REQUIRED", "SSLV3_ALERT_HANDSHAKE_FAILURE"}
    assert status(gateway, host, stranger.issue("app"), version) == "TLSV1_ALERT_UNKNOWN_CA"
    assert "ALERT" in str(status(gateway, host, impostor.issue("app2"), version))
    assert "ALERT" in str(status(gateway, host, authority.issue("server", SERVER), version))


def test_other_hosts_ask_for_none(gateway: GatewayRig, authority: Authority) -> None:
    gateway.add_instance("mutual-beside", client_ca_pem=authority.pem)
    host = gateway.add_instance("beside-mutual")
    assert status(gateway, host, None) == 200
    assert status(gateway, host, authority.issue("app")) == 200


def test_each_of_several_authorities_is_believed(
    gateway: GatewayRig, authority: Authority, tmp_path: Path
) -> None:
    second = Authority("second", tmp_path)
    host = gateway.add_instance("mutual-bundle", client_ca_pem=authority.pem + second.pem)
    assert status(gateway, host, authority.issue("a")) == 200
    assert status(gateway, host, second.issue("b")) == 200


def test_a_change_applies_to_new_connections_only(
    gateway: GatewayRig, authority: Authority
) -> None:
    host = gateway.add_instance("mutual-change")
    with gateway.connect(host) as established:
        assert raw_get(established)[0] == 200
        gateway.set_route(host, client_ca_pem=authority.pem)
        until(lambda: status(gateway, host, None) != 200, "a certificate is asked for")
        assert raw_get(established)[0] == 200
    assert status(gateway, host, authority.issue("app")) == 200
    gateway.set_route(host, client_ca_pem=None)
    until(lambda: status(gateway, host, None) == 200, "none is asked for")


@pytest.mark.parametrize("asked", ["for none", "by another", "by one of two"])
def test_a_handshake_is_no_proof_once_other_certificates_are_required(
    gateway: GatewayRig, authority: Authority, tmp_path: Path, asked: str
) -> None:
    """The first request may come half a minute after the handshake."""
    former = Authority("former", tmp_path)
    both = former.pem + authority.pem
    bundle = {"for none": None, "by another": former.pem, "by one of two": both}[asked]
    host = gateway.add_instance(f"mutual-late-{asked[-3:]}", client_ca_pem=bundle)
    context = gateway.context()
    pair = former.issue("app")
    context.load_cert_chain(pair.certificate, pair.key)
    with gateway.connect(host, context) as early:
        gateway.set_route(host, client_ca_pem=authority.pem)
        until(lambda: status(gateway, host, pair) == "TLSV1_ALERT_UNKNOWN_CA", "the change applies")
        code, _, body = raw_get(early)
        assert code == 503
        assert b"client certificates" in body
    assert status(gateway, host, authority.issue("app")) == 200


def test_a_handshake_is_good_where_its_authorities_were_kept(
    gateway: GatewayRig, authority: Authority, tmp_path: Path
) -> None:
    second, pair = Authority("second", tmp_path), authority.issue("app")
    host = gateway.add_instance("mutual-more", client_ca_pem=authority.pem)
    context = gateway.context()
    context.load_cert_chain(pair.certificate, pair.key)
    with gateway.connect(host, context) as early, gateway.connect(host, context) as other:
        gateway.set_route(host, client_ca_pem=second.pem + authority.pem)
        until(lambda: status(gateway, host, second.issue("app")) == 200, "the change applies")
        assert raw_get(early)[0] == 200
        gateway.set_route(host, client_ca_pem=None)
        until(lambda: status(gateway, host, None) == 200, "the change applies")
        assert raw_get(other)[0] == 200


def test_who_waits_for_an_instance_to_wake_is_held_to_what_is_required_then(
    make_gateway: MakeGateway, authority: Authority
) -> None:
    gateway = make_gateway()
    asked, go = threading.Event(), threading.Event()

    async def wake(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        asked.set()
        await asyncio.to_thread(go.wait, 60)
        writer.write(answer(b"{}"))
        await writer.drain()

    gateway.serve(gateway.cell_socket, wake)
    host = gateway.add_instance("mutual-asleep", state="idle")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(gateway.get, host)
        assert asked.wait(60)
        gateway.set_route(host, client_ca_pem=authority.pem)
        until(lambda: not shakes_hands(gateway, host), "it applies")
        go.set()
        refused = waiting.result(60)
    assert refused.status_code == 503
    assert "client certificates" in refused.text


def test_a_session_begun_without_a_certificate_resumes_nothing_here(
    gateway: GatewayRig, authority: Authority
) -> None:
    open_host = gateway.add_instance("mutual-open")
    host = gateway.add_instance("mutual-closed", client_ca_pem=authority.pem)
    context = gateway.context()
    with gateway.connect(open_host, context) as first:
        assert raw_get(first)[0] == 200
        session = first.session
    with (
        gateway.dial() as plain,
        context.wrap_socket(plain, server_hostname=host, session=session) as second,
    ):
        assert not second.session_reused
        with pytest.raises(ssl.SSLError, match="certificate required"):
            second.recv(100)


@pytest.mark.parametrize("bundle", ["no certificate at all", "\u00e9", "\0"])
def test_a_bundle_that_does_not_parse_lets_nobody_in(
    make_gateway: MakeGateway, bundle: str
) -> None:
    gateway = make_gateway()
    host = gateway.add_instance("mutual-broken", client_ca_pem=bundle)
    assert status(gateway, host, None) == "TLSV1_ALERT_INTERNAL_ERROR"


@pytest.mark.parametrize("rule", [{"client_ca_pem": 7}, {"allow_cidrs": ["10.0.0.0/99"]}])
def test_a_rule_that_cannot_be_read_lets_nobody_in(
    make_gateway: MakeGateway, rule: dict[str, Any]
) -> None:
    """Nor does the former one, which may have let in everybody."""
    gateway = make_gateway()
    host = gateway.add_instance("unreadable")
    assert status(gateway, host, None) == 200
    gateway.routes[host].update(rule)
    gateway.write_routes()
    until(lambda: not gateway.connectable(host), "nobody is let in")


def test_psql_shows_its_certificate(
    pg_gateway: GatewayRig, postgres: Postgres, authority: Authority
) -> None:
    host = add_postgres(pg_gateway, "mutual", postgres, client_ca_pem=authority.pem)
    pair = authority.issue("app")
    shown = {"sslcert": str(pair.certificate), "sslkey": str(pair.key)}
    with connect(pg_gateway, host, **shown) as connection:
        assert connection.execute("SELECT 1").fetchall() == [(1,)]
    with pytest.raises(psycopg.OperationalError, match="certificate required"):
        connect(pg_gateway, host).close()


def test_who_gives_no_server_name_cannot_go_round_it(
    pg_gateway: GatewayRig, postgres: Postgres, authority: Authority
) -> None:
    host = add_postgres(pg_gateway, "mutual-round", postgres, client_ca_pem=authority.pem)
    with asked_for_tls(pg_gateway, None) as connection:
        named = f"endpoint={label(host)}"
        connection.sendall(startup(user="app", database="postgres", options=named))
        refused = read_error(connection)
    assert refused["C"] == "28000"
    assert "client certificate" in refused["M"]


@pytest.mark.parametrize("state", ["paused", "failed"])
def test_no_certificate_is_asked_for_where_nothing_is_served(
    gateway: GatewayRig, authority: Authority, state: str
) -> None:
    """The client is told why, and nothing that it could show is verified."""
    text = f"the instance is {state}, for this reason"
    host = gateway.add_instance(
        f"mutual-{state}", client_ca_pem=authority.pem, state=state, refusal=text
    )
    refused = gateway.get(host)
    assert (refused.status_code, refused.json()) == (503, {"error": text})
    assert status(gateway, host, authority.issue("app")) == 503
    with gateway.connect(host) as early:
        gateway.set_route(host, state="running", refusal=None)
        until(lambda: not shakes_hands(gateway, host), "it is served, and asks for certificates")
        code, _, body = raw_get(early)
        assert code == 503
        assert b"client certificates" in body
    assert status(gateway, host, authority.issue("app")) == 200
