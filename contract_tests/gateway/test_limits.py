"""Connection limits, paused instances, and clients that take their time."""

import asyncio
import contextlib
import socket
import ssl

import pytest

from contract_tests.gateway.backends import http
from contract_tests.gateway.conftest import MakeGateway
from contract_tests.gateway.rig import ZONE, GatewayRig, is_hung_up_on, raw_get, read_answer, until


def test_over_the_limit_is_refused_and_room_is_given_back(gateway: GatewayRig) -> None:
    host = gateway.add_instance("limit", connections_max=3)
    with contextlib.ExitStack() as held:
        for _ in range(3):
            assert raw_get(held.enter_context(gateway.connect(host)))[0] == 200
        refused = gateway.get(host)
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert "3" in refused.json()["error"]
        assert list(refused.json()) == ["error"]
    until(lambda: gateway.get(host).status_code == 200, "room is given back")


def test_probes_take_no_room_and_reach_no_backend(gateway: GatewayRig) -> None:
    host = gateway.add_instance("probes", backend=False, connections_max=1)
    backend = gateway.serve(gateway.home / "run" / "probes.sock", http("probes"))
    with gateway.connect(host), gateway.connect(host), gateway.dial():
        assert gateway.get(host).status_code == 200
    assert backend.connections == 1


def test_the_limit_holds_over_two_workers(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(workers=2)
    host = gateway.add_instance("spread", connections_max=10)
    with contextlib.ExitStack() as held:
        statuses = [raw_get(held.enter_context(gateway.connect(host)))[0] for _ in range(40)]
    assert statuses.count(200) == 10
    assert statuses.count(503) == 30
    until(lambda: gateway.get(host).status_code == 200, "room is given back")


def test_who_fills_the_cells_host_leaves_instances_alone(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(cell_connections_max=2)
    gateway.serve(gateway.cell_socket, http("cell"))
    host, cell = gateway.add_instance("beside"), f"cell.{ZONE}"
    with contextlib.ExitStack() as held:
        for _ in range(2):
            assert raw_get(held.enter_context(gateway.connect(cell)))[0] == 200
        assert gateway.get(cell).status_code == 503
        assert gateway.get(host).status_code == 200
    until(lambda: gateway.get(cell).status_code == 200, "room is given back")


def test_a_link_in_an_engines_folder_leads_nowhere(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(backend_retry_s=0.1)
    gateway.add_instance("victim")
    host = gateway.add_instance("linked", backend=False)
    (gateway.home / "run" / "linked.sock").symlink_to(gateway.home / "run" / "victim.sock")
    assert gateway.get(host).status_code == 503


def test_a_paused_instance_says_so(gateway: GatewayRig) -> None:
    host = gateway.add_instance(
        "paused", state="paused", refusal="the instance is paused: resume it"
    )
    answer = gateway.get(host)
    assert answer.status_code == 503
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {"error": "the instance is paused: resume it"}


def test_a_refusal_is_read_by_a_client_that_is_still_sending(gateway: GatewayRig) -> None:
    host = gateway.add_instance("paused-post", state="paused", refusal="paused")
    with gateway.client() as client:
        answer = client.send("POST", host, "/echo", content=b"x" * 3_000_000)
    assert answer.json() == {"error": "paused"}


def test_a_refusal_of_head_has_no_body(gateway: GatewayRig) -> None:
    host = gateway.add_instance("paused-head", state="paused", refusal="paused")
    with gateway.client() as client:
        answer = client.send("HEAD", host)
    assert answer.status_code == 503
    assert answer.content == b""


def test_an_instance_that_does_not_answer_is_refused(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(backend_retry_s=0.5)
    host = gateway.add_instance("absent", backend=False)
    answer = gateway.get(host)
    assert answer.status_code == 503
    assert "retry-after" in answer.headers


def test_a_crashed_backend_is_waited_for(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(backend_retry_s=60.0)
    host = gateway.add_instance("crashed")
    backend = gateway._backends[-1]
    backend.stop()
    with gateway.connect(host) as connection:
        connection.sendall(b"GET /name HTTP/1.1\r\nhost: x\r\n\r\n")
        gateway.serve(backend.path, http("restarted"))
        assert read_answer(connection)[2] == b"restarted"


@pytest.mark.parametrize("sent", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00"])
def test_a_handshake_that_does_not_go_on_times_out(hasty_gateway: GatewayRig, sent: bytes) -> None:
    with hasty_gateway.dial() as connection:
        connection.sendall(sent)
        assert is_hung_up_on(connection)


def test_a_handshake_of_one_byte_at_a_time_times_out(hasty_gateway: GatewayRig) -> None:
    host = hasty_gateway.add_instance("dripping")
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = hasty_gateway.context().wrap_bio(incoming, outgoing, server_hostname=host)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    hello = outgoing.read()
    with hasty_gateway.dial() as connection:
        connection.settimeout(0.2)
        for position in range(len(hello)):
            try:
                connection.sendall(hello[position : position + 1])
                assert connection.recv(100) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                pass
            break
        else:
            pytest.fail("a handshake of one byte every 0.2 s was let through")


def test_a_request_that_does_not_begin_times_out(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(first_request_timeout_s=1.0)
    host = gateway.add_instance("silent", backend=False)
    backend = gateway.serve(gateway.home / "run" / "silent.sock", http("silent"))
    with gateway.connect(host) as connection:
        with contextlib.suppress(ConnectionError):  # it may end before so much is said
            connection.sendall(b"GET /name HTTP/1.1\r\n")
        assert is_hung_up_on(connection)
    assert backend.connections == 0


async def _silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(3600)


def test_a_connection_on_which_nothing_moves_is_reaped(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(idle_timeout_s=1.0)
    host = gateway.add_instance("quiet", _silent, connections_max=1)
    with gateway.connect(host) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert connection.recv(1) == b""
    with gateway.connect(host) as next_one:  # the only place was given back
        next_one.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert next_one.recv(1) == b""
    until(lambda: gateway._backends[-1].connections == 2, "both have reached the backend")


def test_a_half_closed_connection_is_reaped_sooner(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(half_closed_timeout_s=1.0)
    host = gateway.add_instance("half-quiet", _silent)
    with gateway.connect(host) as whole, gateway.connect(host) as half:
        for connection in (whole, half):
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        half.shutdown(socket.SHUT_WR)  # from here on Python reads it without decrypting
        while half.recv(1_000):
            pass
        whole.setblocking(False)
        with pytest.raises(ssl.SSLWantReadError):
            whole.recv(1)


def test_unfinished_handshakes_make_room_for_new_ones(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(handshakes_max=20, handshake_timeout_s=3_600.0)
    host = gateway.add_instance("crowd")
    with contextlib.ExitStack() as held:
        silent = [held.enter_context(gateway.dial()) for _ in range(100)]
        assert gateway.get(host).status_code == 200
        assert is_hung_up_on(silent[0])
        silent[-1].setblocking(False)
        with pytest.raises(BlockingIOError):
            silent[-1].recv(1)
