"""A host leads to its instance, and to nothing else, for real clients."""

import json
import shutil
import ssl
import subprocess

import pytest

from contract_tests.gateway.backends import http
from contract_tests.gateway.conftest import MakeDoor
from contract_tests.gateway.door import ZONE, Door, is_hung_up_on, raw_get, read_answer, until


def test_two_instances_are_told_apart_by_sni(door: Door) -> None:
    one, two = door.add_instance("route-one"), door.add_instance("route-two")
    assert door.get(one).text == "route-one"
    assert door.get(two).text == "route-two"


def test_the_sni_decides_and_not_the_host_header(door: Door) -> None:
    one = door.add_instance("sni-one")
    two = door.add_instance("sni-two")
    answer = door.get(one, headers={"host": two})
    assert answer.text == "sni-one"


def test_a_host_is_found_in_any_case_and_with_a_final_dot(door: Door) -> None:
    host = door.add_instance("case")
    context = door.context()
    context.check_hostname = False
    with door.connect(host.upper() + ".", context) as connection:
        assert raw_get(connection)[2] == b"case"


def test_a_connection_serves_many_requests(door: Door) -> None:
    host = door.add_instance("keepalive")
    with door.connect(host) as connection:
        assert [raw_get(connection)[2] for _ in range(50)] == [b"keepalive"] * 50


@pytest.mark.parametrize("name", [f"unknown.{ZONE}", "other.example", None])
def test_an_unknown_host_gets_the_alert_for_it(door: Door, name: str | None) -> None:
    context = door.context()
    context.check_hostname = False
    plain = door.dial()
    with plain, pytest.raises(ssl.SSLError, match="UNRECOGNIZED_NAME"):
        context.wrap_socket(plain, server_hostname=name)


def test_plaintext_is_answered_with_what_is_missing(door: Door) -> None:
    with door.dial() as connection:
        connection.sendall(b"GET /name HTTP/1.1\r\nhost: x\r\n\r\n")
        status, headers, body = read_answer(connection)
        assert connection.recv(1) == b""
    assert status == 400
    assert headers["content-type"] == "application/json"
    assert "TLS" in json.loads(body)["error"]


@pytest.mark.parametrize(
    "first", [b"\x00\x00\x00\x08\x04\xd2\x16\x2f", b"\x80\x2e\x01\x00\x02", b"*1"]
)
def test_other_plaintext_is_hung_up_on_without_a_byte(door: Door, first: bytes) -> None:
    with door.dial() as connection:
        connection.sendall(first)
        assert is_hung_up_on(connection)


def test_http_1_1_is_agreed_on(door: Door) -> None:
    host = door.add_instance("alpn")
    context = door.context()
    context.set_alpn_protocols(["h2", "http/1.1"])
    with door.connect(host, context) as connection:
        assert connection.selected_alpn_protocol() == "http/1.1"


def test_a_client_of_another_protocol_is_told(door: Door) -> None:
    host = door.add_instance("alpn-other")
    context = door.context()
    context.set_alpn_protocols(["postgresql"])
    with pytest.raises(ssl.SSLError, match="no application protocol"):
        door.connect(host, context)


def test_the_cell_is_reached_by_its_own_host(make_door: MakeDoor) -> None:
    door = make_door(backend_retry_s=0.1)
    down = door.get(f"cell.{ZONE}")
    assert down.status_code == 503
    assert down.headers["content-type"] == "application/problem+json"
    assert down.json()["status"] == 503
    door.serve(door.cell_socket, http("the cell"))
    assert door.get(f"cell.{ZONE}").text == "the cell"


def test_a_broken_file_keeps_every_route(door: Door) -> None:
    host = door.add_instance("kept")
    (door.home / "routes.json").write_text("{")
    until(
        lambda: any(line["event"] == "gateway.routes_kept" for line in door.log()),
        "the broken file was seen",
    )
    assert door.get(host).text == "kept"
    other = door.add_instance("kept-other")
    assert door.get(other).text == "kept-other"


def test_curl_verifies_and_queries(door: Door) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")
    host = door.add_instance("curl")
    ran = subprocess.run(
        [
            *(curl, "-sS", "--cacert", str(door.home / "pki" / "chain.pem"), "--data", "a body"),
            *("--resolve", f"{host}:{door.port}:127.0.0.1", f"https://{host}:{door.port}/echo"),
        ],
        capture_output=True,
        check=False,
        timeout=100,
    )
    assert ran.stdout == b"a body", ran.stderr


def test_openssl_verifies_the_chain_and_the_name(door: Door) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    host = door.add_instance("openssl")
    ran = subprocess.run(
        [
            *(openssl, "s_client", "-connect", f"127.0.0.1:{door.port}", "-servername", host),
            *("-CAfile", str(door.home / "pki" / "root.pem"), "-x509_strict"),
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


def test_a_certificate_of_another_name_is_refused_by_the_client(door: Door) -> None:
    host = door.add_instance("verified")
    wrong = door.context()
    with door.dial() as plain, pytest.raises(ssl.SSLCertVerificationError):
        ssl.create_default_context().wrap_socket(plain, server_hostname=host)
    with door.connect(host, wrong) as connection:
        names = connection.getpeercert()
        assert names is not None
        assert ("DNS", f"*.{ZONE}") in names["subjectAltName"]
