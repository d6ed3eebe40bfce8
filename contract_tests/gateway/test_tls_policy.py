"""Promise 47: TLS 1.2 and 1.3 only, AEAD with forward secrecy only, nothing before or beside."""

import datetime as dt
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cell.certificates import pki
from contract_tests.gateway.rig import WAIT_S, GatewayRig
from gateway.certificates import make_context

OLD = [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1]
NEW = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


def lenient(server_side: bool = False) -> ssl.SSLContext:
    """Speaks everything this OpenSSL can, so that a refusal is the other side's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server_side else ssl.PROTOCOL_TLS_CLIENT)
    if not server_side:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    return context


def only(version: ssl.TLSVersion) -> ssl.SSLContext:
    context = lenient()
    context.maximum_version = version
    context.minimum_version = version
    return context


@pytest.fixture(scope="module")
def anything_goes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A server that takes what the gateway must refuse: it proves that the scan could find it."""
    home = tmp_path_factory.mktemp("lenient")
    made = pki.ensure(home, "test", "localhost", dt.datetime.now(dt.UTC))
    context = lenient(server_side=True)
    context.load_cert_chain(made.wildcard_pem, made.wildcard_key)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                plain, _ = listener.accept()
            except OSError:
                return
            try:
                context.wrap_socket(plain, server_side=True).close()
            except OSError:
                plain.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(10)


def accepts(port: int, host: str, context: ssl.SSLContext) -> bool:
    with socket.create_connection(("127.0.0.1", port), WAIT_S) as plain:
        try:
            context.wrap_socket(plain, server_hostname=host).close()
        except (ssl.SSLError, ConnectionError):
            return False
    return True


@pytest.mark.parametrize("version", OLD)
def test_old_versions_are_refused(
    gateway: GatewayRig, anything_goes: int, version: ssl.TLSVersion
) -> None:
    host = gateway.add_instance("old-versions")
    assert accepts(anything_goes, host, only(version))
    assert not accepts(gateway.port, host, only(version))


@pytest.mark.parametrize("version", NEW)
def test_new_versions_are_accepted(gateway: GatewayRig, version: ssl.TLSVersion) -> None:
    assert accepts(gateway.port, gateway.add_instance("new-versions"), only(version))


def test_1_3_is_preferred(gateway: GatewayRig) -> None:
    with gateway.connect(gateway.add_instance("preferred")) as connection:
        assert connection.version() == "TLSv1.3"


def test_of_all_1_2_suites_only_aead_with_forward_secrecy_are_accepted(
    gateway: GatewayRig, anything_goes: int
) -> None:
    host = gateway.add_instance("suites")
    context = only(ssl.TLSVersion.TLSv1_2)
    suites = [each for each in context.get_ciphers() if each["protocol"] != "TLSv1.3"]
    accepted, lenient_accepted = set(), set()
    for suite in suites:
        context.set_ciphers(f"{suite['name']}:@SECLEVEL=0")
        if accepts(gateway.port, host, context):
            accepted.add(suite["name"])
        if accepts(anything_goes, host, context):
            lenient_accepted.add(suite["name"])
    assert accepted == {
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
    }
    assert {"ECDHE-ECDSA-AES128-SHA", "ECDHE-ECDSA-AES256-SHA384"} <= lenient_accepted


def test_the_policy_itself_holds_nothing_else(tmp_path: Path) -> None:
    """Whatever kind of key a certificate has: a scan sees only what this one can sign."""
    made = pki.ensure(tmp_path, "test", "localhost", dt.datetime.now(dt.UTC))
    context = make_context(made.wildcard_pem, made.wildcard_key, ("http/1.1",))
    ciphers = context.get_ciphers()
    assert all(each["aead"] for each in ciphers)
    assert {each["kea"] for each in ciphers} <= {"kx-ecdhe", "kx-any"}
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_COMPRESSION


def test_a_client_may_not_renegotiate(gateway: GatewayRig) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    host = gateway.add_instance("renegotiate")
    ran = subprocess.run(
        [
            *(openssl, "s_client", "-connect", f"127.0.0.1:{gateway.port}", "-servername", host),
            *("-tls1_2", "-CAfile", str(gateway.home / "pki" / "root.pem")),
        ],
        input=b"R\n",
        capture_output=True,
        check=False,
        timeout=30,
    )
    assert b"RENEGOTIATING" in ran.stdout + ran.stderr
    assert b"no renegotiation" in ran.stdout + ran.stderr


def test_a_session_is_resumed_for_its_own_host(gateway: GatewayRig) -> None:
    host = gateway.add_instance("resumed")
    context = gateway.context()
    with gateway.connect(host, context) as first:
        first.sendall(b"GET /name HTTP/1.1\r\nhost: x\r\n\r\n")
        assert first.recv(1000)
        session = first.session
    with (
        gateway.dial() as plain,
        context.wrap_socket(plain, server_hostname=host, session=session) as second,
    ):
        assert second.session_reused
