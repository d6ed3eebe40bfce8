"""Promise 36: a killed worker or gateway is back within 5 s, and lets nobody in meanwhile."""

import asyncio
import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from contract_tests.gateway.backends import answer, read_head
from contract_tests.gateway.conftest import MakeGateway
from contract_tests.gateway.rig import (
    SERVE,
    WAIT_S,
    ZONE,
    GatewayRig,
    is_hung_up_on,
    raw_get,
    read_answer,
    until,
)

BACK_WITHIN_S = 5.0


def tries(gateway: GatewayRig, host: str, source: str = "127.0.0.1") -> bool:
    try:
        with gateway.connect(host, source=source) as connection:
            return raw_get(connection)[0] == 200
    except (OSError, AssertionError):
        return False


@pytest.mark.exclusive  # it holds a promised time
def test_a_killed_worker_is_replaced_and_its_callers_wait(make_gateway: MakeGateway) -> None:
    gateway = make_gateway()
    host = gateway.add_instance("back")
    (worker,) = gateway.workers()
    os.kill(worker, signal.SIGKILL)
    # Not refused: the port stays open, and the next worker takes the call.
    until(lambda: tries(gateway, host), "the gateway is back", BACK_WITHIN_S)
    until(lambda: gateway.workers() != [worker], "the new worker is named")


def test_the_allow_list_holds_at_every_moment_of_a_restart(make_gateway: MakeGateway) -> None:
    gateway = make_gateway()
    host = gateway.add_instance("guarded", allow_cidrs=["127.0.0.2"])
    let_in: list[float] = []
    stop = threading.Event()

    def knock() -> None:
        while not stop.is_set():
            if tries(gateway, host):
                let_in.append(time.monotonic())

    knockers = [threading.Thread(target=knock) for _ in range(4)]
    for knocker in knockers:
        knocker.start()
    try:
        for _ in range(4):
            workers = gateway.workers()
            os.kill(workers[0], signal.SIGKILL)
            until(lambda former=workers: gateway.workers() != former, "it is replaced")  # type: ignore[misc]
            until(lambda: tries(gateway, host, source="127.0.0.2"), "it serves")
    finally:
        stop.set()
        for knocker in knockers:
            knocker.join(WAIT_S)
    assert let_in == []


def test_a_killed_worker_gives_back_its_room(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(workers=2)
    host = gateway.add_instance("room", connections_max=4)
    held = [gateway.connect(host) for _ in range(4)]
    assert [raw_get(each)[0] for each in held] == [200] * 4
    assert gateway.get(host).status_code == 503
    for worker in gateway.workers():
        os.kill(worker, signal.SIGKILL)
    until(lambda: tries(gateway, host), "there is room")
    for each in held:
        each.close()
    until(lambda: len(list((gateway.home / "activity").glob("*.json"))) <= 2, "old files are gone")


def test_a_killed_gateway_leaves_no_worker_and_its_port_is_free(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(restarts=True)
    host = gateway.add_instance("orphan")
    workers = [psutil.Process(pid) for pid in gateway.workers()]
    gateway.process.kill()
    gateway.restart()
    until(lambda: tries(gateway, host), "the next gateway serves")
    until(lambda: not any(runs(each) for each in workers), "the orphans have ended")


def runs(process: psutil.Process) -> bool:
    """Not where it has ended, though whoever adopted it has not taken notice yet."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.nightly
def test_a_second_gateway_on_the_same_port_is_an_error(
    make_gateway: MakeGateway, tmp_path: Path
) -> None:
    first = make_gateway(workers=2)
    host = first.add_instance("first")
    second = subprocess.run(
        [sys.executable, str(SERVE), str(tmp_path), json.dumps({"ports": first.ports})],
        capture_output=True,
        check=False,
        timeout=100,
    )
    assert second.returncode != 0
    assert f"cannot listen on 127.0.0.1:{first.port}" in second.stderr.decode()
    assert all(tries(first, host) for _ in range(20))


def test_stopping_lets_a_request_finish(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(drain_s=60.0)
    go = threading.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (await read_head(reader))[1] != "/held":
            writer.write(answer(b"at once"))
        await asyncio.to_thread(go.wait, 100)
        writer.write(answer(b"finishing"))
        await writer.drain()

    host = gateway.add_instance("finishing", serve)
    with gateway.connect(host) as busy, gateway.connect(host) as idle:
        assert raw_get(idle)[0] == 200
        busy.sendall(b"GET /held HTTP/1.1\r\nhost: x\r\n\r\n")
        until(lambda: gateway._backends[-1].connections == 2, "the request is under way")
        gateway.process.terminate()
        with contextlib.suppress(ssl.SSLError):
            assert is_hung_up_on(idle)
        go.set()
        assert read_answer(busy)[2] == b"finishing"
    assert gateway.process.wait(WAIT_S) == 0
    assert not (gateway.home / "run" / "gateway.json").exists()
    (left,) = (gateway.home / "activity").iterdir()
    assert json.loads(left.read_bytes())["inst_finishing"]["connections"] == 0
    with pytest.raises(ConnectionError):
        gateway.dial()


def test_stopping_does_not_wait_for_ever(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(drain_s=0.5)
    host = gateway.add_instance("endless")
    with gateway.connect(host) as busy:
        busy.sendall(b"GET /slow/3600 HTTP/1.1\r\nhost: x\r\n\r\n")
        until(lambda: gateway._backends[-1].connections == 1, "the request is under way")
        gateway.process.terminate()
        assert gateway.process.wait(WAIT_S) == 0


def test_log_lines_hold_no_secret_and_no_body(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(backend_retry_s=0.1)
    host = gateway.add_instance("canary")
    answered = gateway.get(
        host,
        "/name?token=canary-in-path",
        headers={"authorization": "Basic Y2FuYXJ5", "x-canary": "canary-in-header"},
    )
    assert answered.status_code == 200
    gateway.get(f"cell.{ZONE}", "/v1/reveal/canary-in-path")
    gateway.process.terminate()
    assert gateway.process.wait(WAIT_S) == 0
    text = (gateway.home / "gateway.log").read_text()
    assert "gateway.started" in text
    for secret in ("canary-in", "Y2FuYXJ5", "gateway-token"):
        assert secret not in text


def test_descriptors_running_out_is_survived(make_gateway: MakeGateway) -> None:
    gateway = make_gateway()
    host = gateway.add_instance("few")
    (worker,) = gateway.workers()
    used = psutil.Process(worker).num_fds()
    prlimit = ["prlimit", "--pid", str(worker), f"--nofile={used + 10}:20000"]
    try:
        subprocess.run(prlimit, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("prlimit cannot be used here")
    with contextlib.ExitStack() as held:
        for _ in range(30):
            held.enter_context(gateway.dial())
        until(
            lambda: any(line["event"] == "gateway.accept_failed" for line in gateway.log()),
            "it ran out",
        )
    until(lambda: tries(gateway, host), "it serves again")
