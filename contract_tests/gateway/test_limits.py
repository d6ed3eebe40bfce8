"""Connection limits, paused instances, and clients that take their time."""

import asyncio
import contextlib
import socket
import ssl

import pytest

from contract_tests.gateway.backends import http
from contract_tests.gateway.conftest import MakeDoor
from contract_tests.gateway.door import ZONE, Door, is_hung_up_on, raw_get, read_answer, until


def test_over_the_limit_is_refused_and_room_is_given_back(door: Door) -> None:
    host = door.add_instance("limit", connections_max=3)
    with contextlib.ExitStack() as held:
        for _ in range(3):
            assert raw_get(held.enter_context(door.connect(host)))[0] == 200
        refused = door.get(host)
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert "3" in refused.json()["error"]
        assert list(refused.json()) == ["error"]
    until(lambda: door.get(host).status_code == 200, "room is given back")


def test_probes_take_no_room_and_reach_no_backend(door: Door) -> None:
    host = door.add_instance("probes", backend=False, connections_max=1)
    backend = door.serve(door.home / "run" / "probes.sock", http("probes"))
    with door.connect(host), door.connect(host), door.dial():
        assert door.get(host).status_code == 200
    assert backend.connections == 1


def test_the_limit_holds_over_two_workers(make_door: MakeDoor) -> None:
    door = make_door(workers=2)
    host = door.add_instance("spread", connections_max=10)
    with contextlib.ExitStack() as held:
        statuses = [raw_get(held.enter_context(door.connect(host)))[0] for _ in range(40)]
    assert statuses.count(200) == 10
    assert statuses.count(503) == 30
    until(lambda: door.get(host).status_code == 200, "room is given back")


def test_who_fills_the_cells_host_leaves_instances_alone(make_door: MakeDoor) -> None:
    door = make_door(cell_connections_max=2)
    door.serve(door.cell_socket, http("cell"))
    host, cell = door.add_instance("beside"), f"cell.{ZONE}"
    with contextlib.ExitStack() as held:
        for _ in range(2):
            assert raw_get(held.enter_context(door.connect(cell)))[0] == 200
        assert door.get(cell).status_code == 503
        assert door.get(host).status_code == 200
    until(lambda: door.get(cell).status_code == 200, "room is given back")


def test_a_link_in_an_engines_folder_leads_nowhere(make_door: MakeDoor) -> None:
    door = make_door(backend_retry_s=0.1)
    door.add_instance("victim")
    host = door.add_instance("linked", backend=False)
    (door.home / "run" / "linked.sock").symlink_to(door.home / "run" / "victim.sock")
    assert door.get(host).status_code == 503


def test_a_paused_instance_says_so(door: Door) -> None:
    host = door.add_instance("paused", state="paused", refusal="the instance is paused: resume it")
    answer = door.get(host)
    assert answer.status_code == 503
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {"error": "the instance is paused: resume it"}


def test_a_refusal_is_read_by_a_client_that_is_still_sending(door: Door) -> None:
    host = door.add_instance("paused-post", state="paused", refusal="paused")
    with door.client() as client:
        answer = client.send("POST", host, "/echo", content=b"x" * 3_000_000)
    assert answer.json() == {"error": "paused"}


def test_a_refusal_of_head_has_no_body(door: Door) -> None:
    host = door.add_instance("paused-head", state="paused", refusal="paused")
    with door.client() as client:
        answer = client.send("HEAD", host)
    assert answer.status_code == 503
    assert answer.content == b""


def test_an_instance_that_does_not_answer_is_refused(make_door: MakeDoor) -> None:
    door = make_door(backend_retry_s=0.5)
    host = door.add_instance("absent", backend=False)
    answer = door.get(host)
    assert answer.status_code == 503
    assert "retry-after" in answer.headers


def test_a_crashed_backend_is_waited_for(make_door: MakeDoor) -> None:
    door = make_door(backend_retry_s=60.0)
    host = door.add_instance("crashed")
    backend = door._backends[-1]
    backend.stop()
    with door.connect(host) as connection:
        connection.sendall(b"GET /name HTTP/1.1\r\nhost: x\r\n\r\n")
        door.serve(backend.path, http("restarted"))
        assert read_answer(connection)[2] == b"restarted"


@pytest.mark.parametrize("sent", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00"])
def test_a_handshake_that_does_not_go_on_times_out(hasty_door: Door, sent: bytes) -> None:
    with hasty_door.dial() as connection:
        connection.sendall(sent)
        assert is_hung_up_on(connection)


def test_a_handshake_of_one_byte_at_a_time_times_out(hasty_door: Door) -> None:
    host = hasty_door.add_instance("dripping")
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = hasty_door.context().wrap_bio(incoming, outgoing, server_hostname=host)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    hello = outgoing.read()
    with hasty_door.dial() as connection:
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


def test_a_request_that_does_not_begin_times_out(make_door: MakeDoor) -> None:
    door = make_door(first_request_timeout_s=1.0)
    host = door.add_instance("silent", backend=False)
    backend = door.serve(door.home / "run" / "silent.sock", http("silent"))
    with door.connect(host) as connection:
        with contextlib.suppress(ConnectionError):  # it may end before so much is said
            connection.sendall(b"GET /name HTTP/1.1\r\n")
        assert is_hung_up_on(connection)
    assert backend.connections == 0


async def _silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(3600)


def test_a_connection_on_which_nothing_moves_is_reaped(make_door: MakeDoor) -> None:
    door = make_door(idle_timeout_s=1.0)
    host = door.add_instance("quiet", _silent, connections_max=1)
    with door.connect(host) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert connection.recv(1) == b""
    with door.connect(host) as next_one:  # the only place was given back
        next_one.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert next_one.recv(1) == b""
    until(lambda: door._backends[-1].connections == 2, "both have reached the backend")


def test_a_half_closed_connection_is_reaped_sooner(make_door: MakeDoor) -> None:
    door = make_door(half_closed_timeout_s=1.0)
    host = door.add_instance("half-quiet", _silent)
    with door.connect(host) as whole, door.connect(host) as half:
        for connection in (whole, half):
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        half.shutdown(socket.SHUT_WR)  # from here on Python reads it without decrypting
        while half.recv(1_000):
            pass
        whole.setblocking(False)
        with pytest.raises(ssl.SSLWantReadError):
            whole.recv(1)


def test_unfinished_handshakes_make_room_for_new_ones(make_door: MakeDoor) -> None:
    door = make_door(handshakes_max=20, handshake_timeout_s=3_600.0)
    host = door.add_instance("crowd")
    with contextlib.ExitStack() as held:
        silent = [held.enter_context(door.dial()) for _ in range(100)]
        assert door.get(host).status_code == 200
        assert is_hung_up_on(silent[0])
        silent[-1].setblocking(False)
        with pytest.raises(BlockingIOError):
            silent[-1].recv(1)
