"""A connection wakes a paused instance: held, joined, and told when it does not come."""

import asyncio
import concurrent.futures
import json
import threading
from pathlib import Path

import httpx
import pytest

from contract_tests.gateway.backends import Backend, answer, http, read_head
from contract_tests.gateway.conftest import MakeGateway
from contract_tests.gateway.rig import TOKEN, GatewayRig, is_hung_up_on, until
from gateway.refusal import Refusal
from gateway.wake import Waker


class Cell:
    """Stands in for the cell's wake endpoint: answers when told to, and counts."""

    def __init__(self, gateway: GatewayRig, status: str = "200 OK") -> None:
        self.asked: list[tuple[str, str, str]] = []
        self.go = threading.Event()
        self.status = status
        self.backend: Backend = gateway.serve(gateway.cell_socket, self._serve)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, path, headers = await read_head(reader)
        self.asked.append((method, path, headers["authorization"]))
        await asyncio.to_thread(self.go.wait, 100)
        writer.write(answer(b"{}", self.status))
        await writer.drain()


def sockets(gateway: GatewayRig, name: str) -> Path:
    return gateway.home / "run" / f"{name}.sock"


def test_twenty_connections_are_held_and_wake_once(make_gateway: MakeGateway) -> None:
    gateway = make_gateway()
    cell = Cell(gateway)
    host = gateway.add_instance("sleeper", backend=False, state="idle")
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        answers = [pool.submit(gateway.get, host) for _ in range(20)]
        until(
            lambda: sum(line.get("connections", 0) for line in _activity(gateway)) == 20,
            "all twenty are waiting",
        )
        assert not any(each.done() for each in answers)
        gateway.serve(sockets(gateway, "sleeper"), http("sleeper"))
        # The routes still say idle: the cell's word is enough.
        cell.go.set()
        assert [each.result(60).text for each in answers] == ["sleeper"] * 20
    assert cell.asked == [("POST", "/v1/wake/inst_sleeper", f"bearer {TOKEN}")]


def _activity(gateway: GatewayRig) -> list[dict[str, int]]:
    found = []
    for path in (gateway.home / "activity").glob("*.json"):
        found += list(json.loads(path.read_bytes()).values())
    return found


def test_a_probe_wakes_nothing(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(first_request_timeout_s=0.5)
    cell = Cell(gateway)
    host = gateway.add_instance("undisturbed", backend=False, state="idle")
    with gateway.connect(host) as connection:
        assert is_hung_up_on(connection)
    assert cell.asked == []
    assert _activity(gateway) == []


def test_a_wake_that_takes_too_long_is_said(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(wake_hold_s=0.5)
    cell = Cell(gateway)
    host = gateway.add_instance("slow", backend=False, state="idle")
    refused = gateway.get(host)
    assert refused.status_code == 503
    assert int(refused.headers["retry-after"]) >= 1
    assert "is resuming" in refused.json()["error"]
    until(lambda: cell.asked, "the cell is asked, however late")
    gateway.serve(sockets(gateway, "slow"), http("slow"))
    cell.go.set()
    until(lambda: gateway.get(host).text == "slow", "it is awake")


def test_a_wake_goes_on_when_one_gave_up_and_the_next_joins_it(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "gateway.token").write_text(TOKEN)
    asked: list[str] = []
    go = threading.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await read_head(reader))[1])
        await asyncio.to_thread(go.wait, 60)
        writer.write(answer(b"{}"))
        await writer.drain()

    async def give_up_and_join(cell_socket: str) -> None:
        waker = Waker(tmp_path)
        with pytest.raises(Refusal, match="is resuming"):
            await waker.wake("inst_1", cell_socket, 0.1)
        later = asyncio.create_task(waker.wake("inst_1", cell_socket, 60))
        await asyncio.sleep(0)  # it has begun to wait
        go.set()
        await later

    cell = Backend(tmp_path / "cell.sock", serve)
    try:
        asyncio.run(give_up_and_join(str(cell.path)))
    finally:
        cell.stop()
    assert asked == ["/v1/wake/inst_1"]


def test_a_wake_that_fails_is_said_and_tried_again_by_the_next(make_gateway: MakeGateway) -> None:
    gateway = make_gateway()
    cell = Cell(gateway, status="503 Service Unavailable")
    cell.go.set()
    host = gateway.add_instance("failing", backend=False, state="idle")
    refused: httpx.Response = gateway.get(host)
    assert refused.status_code == 503
    assert list(refused.json()) == ["error"]
    cell.status = "200 OK"
    gateway.serve(sockets(gateway, "failing"), http("failing"))
    assert gateway.get(host).text == "failing"


def test_a_cell_that_restarts_is_waited_for(make_gateway: MakeGateway) -> None:
    gateway = make_gateway()
    host = gateway.add_instance("patient", backend=False, state="idle")
    gateway.serve(sockets(gateway, "patient"), http("patient"))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        held = pool.submit(gateway.get, host)
        until(lambda: any(each["connections"] for each in _activity(gateway)), "it is waiting")
        cell = Cell(gateway)
        cell.go.set()
        assert held.result(60).text == "patient"
    assert len(cell.asked) == 1


@pytest.mark.parametrize("state", ["running", "idle"])
def test_an_engine_that_does_not_listen_yet_is_waited_for(
    make_gateway: MakeGateway, state: str
) -> None:
    """One that is started again, and one that the cell has woken."""
    gateway = make_gateway(backend_retry_s=3_600.0, wake_hold_s=3_600.0)
    cell = Cell(gateway)
    cell.go.set()
    host = gateway.add_instance("starting", backend=False, state=state)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        held = pool.submit(gateway.get, host)
        if state == "idle":
            until(lambda: cell.asked, "it is woken")
        # Not a wait for something: it must not end, however long it is given.
        assert concurrent.futures.wait([held], 0.5).not_done, held.result().text
        gateway.serve(sockets(gateway, "starting"), http("starting"))
        assert held.result(60).text == "starting"


def test_running_instances_are_served_while_the_cell_is_dead(gateway: GatewayRig) -> None:
    host = gateway.add_instance("independent")
    assert not gateway.cell_socket.exists()
    assert gateway.get(host).text == "independent"


def test_an_instance_that_was_paused_meanwhile_says_so(make_gateway: MakeGateway) -> None:
    gateway = make_gateway()
    cell = Cell(gateway, status="409 Conflict")
    cell.go.set()
    refused = gateway.get(gateway.add_instance("meanwhile", backend=False, state="idle"))
    assert refused.status_code == 503
    assert "paused" in refused.json()["error"]


def test_a_token_that_changed_meanwhile_is_read_again(make_gateway: MakeGateway) -> None:
    gateway = make_gateway()
    token = gateway.home / "run" / "gateway.token"
    asked: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, _, headers = await read_head(reader)
        asked.append(headers["authorization"])
        token.write_text("another")
        status = "200 OK" if asked[-1] == "bearer another" else "401 Unauthorized"
        writer.write(answer(b"{}", status, "connection: close\r\n"))
        await writer.drain()

    gateway.serve(gateway.cell_socket, serve)
    host = gateway.add_instance("renewed", state="idle")
    assert gateway.get(host).text == "renewed"
    assert asked == [f"bearer {TOKEN}", "bearer another"]
