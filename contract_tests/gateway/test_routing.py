"""A host leads to its instance, and to nothing else, for real clients."""

import json
import shutil
import ssl
import subprocess

import pytest

from contract_tests.gateway.backends import http
from contract_tests.gateway.conftest import MakeGateway
from contract_tests.gateway.rig import ZONE, GatewayRig, is_hung_up_on, raw_get, read_answer, until


def test_two_instances_are_told_apart_by_sni(gateway: GatewayRig) -> None:
    one, two = gateway.add_instance("route-one"), gateway.add_instance("route-two")
    assert gateway.get(one).text == "route-one"
    assert gateway.get(two).text == "route-two"


def test_the_sni_decides_and_not_the_host_header(gateway: GatewayRig) -> None:
    one = gateway.add_instance("sni-one")
    two = gateway.add_instance("sni-two")
    answer = gateway.get(one, headers={"host": two})
    assert answer.text == "sni-one"


def test_a_host_is_found_in_any_case_and_with_a_final_dot(gateway: GatewayRig) -> None:
    host = gateway.add_instance("case")
    context = gateway.context()
    context.check_hostname = False
    with gateway.connect(host.upper() + ".", context) as connection:
        assert raw_get(connection)[2] == b"case"


def test_a_connection_serves_many_requests(gateway: GatewayRig) -> None:
    host = gateway.add_instance("keepalive")
    with gateway.connect(host) as connection:
        assert [raw_get(connection)[2] for _ in range(50)] == [b"keepalive"] * 50


@pytest.mark.parametrize("name", [f"unknown.{ZONE}", "other.example", None])
def test_an_unknown_host_gets_the_alert_for_it(gateway: GatewayRig, name: str | None) -> None:
    context = gateway.context()
    context.check_hostname = False
    plain = gateway.dial()
    with plain, pytest.raises(ssl.SSLError, match="UNRECOGNIZED_NAME"):
        context.wrap_socket(plain, server_hostname=name)


def test_plaintext_is_answered_with_what_is_missing(gateway: GatewayRig) -> None:
    with gateway.dial() as connection:
        connection.sendall(b"GET /name HTTP/1.1\r\nhost: x\r\n\r\n")
        status, headers, body = read_answer(connection)
        assert connection.recv(1) == b""
    assert status == 400
    assert headers["content-type"] == "application/json"
    assert "TLS" in json.loads(body)["error"]


@pytest.mark.parametrize(
    "first", [b"\x00\x00\x00\x08\x04\xd2\x16\x2f", b"\x80\x2e\x01\x00\x02", b"*1"]
)
def test_other_plaintext_is_hung_up_on_without_a_byte(gateway: GatewayRig, first: bytes) -> None:
    with gateway.dial() as connection:
        connection.sendall(first)
        assert is_hung_up_on(connection)


def test_http_1_1_is_agreed_on(gateway: GatewayRig) -> None:
    host = gateway.add_instance("alpn")
    context = gateway.context()
    context.set_alpn_protocols(["h2", "http/1.1"])
    with gateway.connect(host, context) as connection:
        assert connection.selected_alpn_protocol() == "http/1.1"


def test_a_client_of_another_protocol_is_told(gateway: GatewayRig) -> None:
    host = gateway.add_instance("alpn-other")
    context = gateway.context()
    context.set_alpn_protocols(["postgresql"])
    with pytest.raises(ssl.SSLError, match="no application protocol"):
        gateway.connect(host, context)


def test_the_cell_is_reached_by_its_own_host(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(backend_retry_s=0.1)
    down = gateway.get(f"cell.{ZONE}")
    assert down.status_code == 503
    assert down.headers["content-type"] == "application/problem+json"
    assert down.json()["status"] == 503
    gateway.serve(gateway.cell_socket, http("the cell"))
    assert gateway.get(f"cell.{ZONE}").text == "the cell"


def test_a_broken_file_keeps_every_route(gateway: GatewayRig) -> None:
    host = gateway.add_instance("kept")
    (gateway.home / "routes.json").write_text("{")
    until(
        lambda: any(line["event"] == "gateway.routes_kept" for line in gateway.log()),
        "the broken file was seen",
    )
    assert gateway.get(host).text == "kept"
    other = gateway.add_instance("kept-other")
    assert gateway.get(other).text == "kept-other"


def test_curl_verifies_and_queries(gateway: GatewayRig) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")
    host = gateway.add_instance("curl")
    ran = subprocess.run(
        [
            *(curl, "-sS", "--cacert", str(gateway.home / "pki" / "chain.pem"), "--data", "a body"),
            *(
                "--resolve",
                f"{host}:{gateway.port}:127.0.0.1",
                f"https://{host}:{gateway.port}/echo",
            ),
        ],
        capture_output=True,
        check=False,
        timeout=100,
    )
    assert ran.stdout == b"a body", ran.stderr


def test_openssl_verifies_the_chain_and_the_name(gateway: GatewayRig) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    host = gateway.add_instance("openssl")
    ran = subprocess.run(
        [
            *(openssl, "s_client", "-connect", f"127.0.0.1:{gateway.port}", "-servername", host),
            *("-CAfile", str(gateway.home / "pki" / "root.pem"), "-x509_strict"),
            *("-verify_return_error", "-verify_hostname", host, "-brief"),
        ],
        input=b"",
        capture_output=True,
        check=False,
        timeout=100,
    )
    output = ran.stdout + ran.stderr
    assert b"Verification: OK" in output, output
    assert b"TLSv1.3" in output


def test_a_certificate_of_another_name_is_refused_by_the_client(gateway: GatewayRig) -> None:
    host = gateway.add_instance("verified")
    wrong = gateway.context()
    with gateway.dial() as plain, pytest.raises(ssl.SSLCertVerificationError):
        ssl.create_default_context().wrap_socket(plain, server_hostname=host)
    with gateway.connect(host, wrong) as connection:
        names = connection.getpeercert()
        assert names is not None
        assert ("DNS", f"*.{ZONE}") in names["subjectAltName"]
