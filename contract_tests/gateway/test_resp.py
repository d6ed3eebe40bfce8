"""A real Redis behind the gateway, reached by redis-py and valkey-py over verified TLS."""

import concurrent.futures
import contextlib
import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import valkey

from contract_tests.gateway.conftest import MakeGateway
from contract_tests.gateway.rig import ZONE, GatewayRig, until
from contract_tests.gateway.servers import Resp
from contract_tests.gateway.test_wake import Cell

MEGABYTE = 1_000_000
CLIENTS = {"redis": redis.Redis, "valkey": valkey.Valkey}


@pytest.fixture(autouse=True)
def _resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clients know nothing but the host: here it resolves, which `.localhost` need not."""
    resolve = socket.getaddrinfo

    def answer(host: str, *rest: Any, **options: Any) -> Any:
        known = "127.0.0.1" if str(host).endswith(ZONE) else host
        return resolve(known, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", answer)


def resp_instance(gateway: GatewayRig, server: Resp, name: str, **members: Any) -> str:
    members = {"socket": str(server.socket), "protocol": "resp", **members}
    return gateway.add_instance(name, backend=False, **members)


def connect(gateway: GatewayRig, host: str, kind: str = "redis", **options: Any) -> Any:
    standard = {
        "host": host,
        "port": gateway.ports["resp"],
        "password": "secret",
        "retry": None,
        "ssl": True,
        "ssl_ca_certs": str(gateway.home / "pki" / "root.pem"),
        "ssl_check_hostname": True,
    }
    return CLIENTS[kind](**(standard | options))


@pytest.fixture(scope="module")
def host(protocols_gateway: GatewayRig, redis_server: Resp) -> str:
    return resp_instance(protocols_gateway, redis_server, "keys")


@pytest.fixture(params=list(CLIENTS))
def client(
    request: pytest.FixtureRequest, protocols_gateway: GatewayRig, host: str
) -> Iterator[Any]:
    with connect(protocols_gateway, host, request.param) as made:
        yield made


def test_values_go_both_ways_unchanged(client: Any) -> None:
    value = os.urandom(20 * MEGABYTE)
    assert client.set("big", value)
    assert client.get("big") == value


def test_a_pipeline_is_answered_in_order(client: Any) -> None:
    pipeline = client.pipeline(transaction=False)
    for number in range(5_000):
        pipeline.echo(str(number))
    assert pipeline.execute() == [str(number).encode() for number in range(5_000)]


def test_messages_arrive_that_nobody_asked_for(client: Any) -> None:
    with client.pubsub(ignore_subscribe_messages=True) as listener:
        listener.subscribe("news")
        until(lambda: client.publish("news", "hello"), "it is subscribed")
        message = until(lambda: listener.get_message(timeout=1), "the message arrives")
    assert message["data"] == b"hello"


def test_a_wrong_password_gets_the_servers_own_error(
    protocols_gateway: GatewayRig, host: str
) -> None:
    with (
        connect(protocols_gateway, host, password="wrong") as client,
        pytest.raises(redis.exceptions.AuthenticationError, match="invalid username-password"),
    ):
        client.ping()


def test_plaintext_is_told_to_use_tls(protocols_gateway: GatewayRig, host: str) -> None:
    for kind, module in (("redis", redis), ("valkey", valkey)):
        plain = CLIENTS[kind](host=host, port=protocols_gateway.ports["resp"], password="secret")
        with (
            plain as client,
            pytest.raises(module.exceptions.ResponseError, match="TLS only: use rediss://"),
        ):
            client.ping()


def test_over_the_limit_is_said_and_room_is_given_back(
    protocols_gateway: GatewayRig, redis_server: Resp
) -> None:
    limited = resp_instance(protocols_gateway, redis_server, "few-keys", connections_max=1)
    with connect(protocols_gateway, limited) as first:
        assert first.ping()
        with (
            connect(protocols_gateway, limited) as second,
            pytest.raises(redis.exceptions.ConnectionError, match="max number of clients reached"),
        ):
            second.ping()
    until(lambda: answers(protocols_gateway, limited), "room is given back")


@pytest.mark.parametrize("before", [(), (("RESET",),)])
@pytest.mark.parametrize("wrong", [("SETNAME", "a b"), ("NONSENSE",)])
def test_nobody_is_let_in_by_a_hello_that_is_refused(
    protocols_gateway: GatewayRig,
    host: str,
    wrong: tuple[str, ...],
    before: tuple[tuple[str, ...], ...],
) -> None:
    """Redis 7.0 lets him in all the same, and the gateway would not count him."""
    with connect(protocols_gateway, host, password=None) as client:
        connection = client.connection_pool.get_connection()
        said = (*before, ("HELLO", "3", "AUTH", "default", "secret", *wrong))
        # Together, as their answers come.
        connection.send_packed_command(connection.pack_commands(said))
        with pytest.raises(redis.exceptions.ResponseError, match=r"Client names|Syntax error"):
            [connection.read_response() for _ in said]
        connection.send_command("PING")
        with pytest.raises(redis.exceptions.ConnectionError):
            connection.read_response()


def answers(gateway: GatewayRig, host: str) -> bool:
    try:
        with connect(gateway, host) as client:
            return bool(client.ping())
    except redis.exceptions.ConnectionError:
        return False


def test_only_listed_addresses_get_in(protocols_gateway: GatewayRig, redis_server: Resp) -> None:
    closed = resp_instance(
        protocols_gateway, redis_server, "closed-keys", allow_cidrs=["192.0.2.1"]
    )
    assert not answers(protocols_gateway, closed)
    protocols_gateway.set_route(closed, allow_cidrs=["127.0.0.1"])
    until(lambda: answers(protocols_gateway, closed), "the list applies")


def test_a_paused_instance_says_so(protocols_gateway: GatewayRig, redis_server: Resp) -> None:
    text = "the instance is paused; resume it to connect"
    paused = resp_instance(protocols_gateway, redis_server, "p-keys", state="paused", refusal=text)
    with (
        connect(protocols_gateway, paused) as client,
        pytest.raises(redis.exceptions.ResponseError, match=text),
    ):
        client.ping()


def test_a_server_that_does_not_answer_is_one_to_try_again(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(ports={"resp": 0}, backend_retry_s=0.3)
    host = gateway.add_instance("absent-keys", backend=False, protocol="resp")
    with (
        connect(gateway, host) as client,
        pytest.raises(redis.exceptions.BusyLoadingError, match="is not responding"),
    ):
        client.ping()


def test_a_connection_wakes_an_instance_and_is_held(
    make_gateway: MakeGateway, redis_server: Resp
) -> None:
    gateway = make_gateway(ports={"resp": 0})
    cell = Cell(gateway)
    host = resp_instance(gateway, redis_server, "sleepy-keys", state="idle")
    with concurrent.futures.ThreadPoolExecutor() as pool, connect(gateway, host) as client:
        held = pool.submit(client.ping)
        until(lambda: cell.asked, "the cell is asked")
        assert not held.done()
        cell.go.set()
        assert held.result(30)
    assert len(cell.asked) == 1


def test_redis_counts_whom_the_server_let_in(make_gateway: MakeGateway, redis_server: Resp) -> None:
    gateway = make_gateway(ports={"resp": 0})
    host = resp_instance(gateway, redis_server, "resp-crowd", connections_max=1)
    with contextlib.ExitStack() as held:
        for _ in range(8):
            address = ("127.0.0.1", gateway.ports["resp"])
            plain = held.enter_context(socket.create_connection(address, 60, ("127.0.0.2", 0)))
            crowd = held.enter_context(gateway.context().wrap_socket(plain, server_hostname=host))
            crowd.sendall(b"PING\r\n")
            assert crowd.recv(100).startswith(b"-NOAUTH")
        with connect(gateway, host) as let_in:
            assert let_in.ping()
            with connect(gateway, host) as another, pytest.raises(redis.ConnectionError):
                another.ping()
