"""Owns the benchmark of the gateway: what its TLS costs beside a plain TLS server in one process.

Ways to the same bytes: straight to the backend's unix socket, to a plain asyncio TLS server (TLS
and backend in one), through the gateway, and through HAProxy with one thread where it is installed.
Rounds are interleaved; CPU is that of the serving process alone, so other load on the machine
mostly cancels out of the ratios.
"""

import asyncio
import contextlib
import datetime as dt
import json
import multiprocessing
import shutil
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from cell.certificates import pki
from gateway.certificates import make_context
from gateway.main import run as run_gateway
from gateway.settings import GatewaySettings
from tools.bench.ways import RequestPipeline, free_port

HOST = "duckdb-bench.local.localhost"
BULK_BYTES = 64 * 2**20
BLOCK = b"b" * 2**20
CONNECTIONS = 100
REQUESTS = 500
ROUNDS = 4
# With credentials, and so let in by the first answer, as clients are.
GET = b"GET /item HTTP/1.1\r\nauthorization: x\r\n\r\n"
BULK = b"GET /bulk HTTP/1.1\r\nauthorization: x\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
DIRECT, PLAIN, GATEWAY = "unix socket, no TLS", "asyncio TLS server", "gateway"
HAPROXY = "HAProxy"
HAPROXY_BULK_MIN = 0.8


async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
        while True:
            if await reader.readuntil(b"\r\n\r\n") == BULK:
                for _ in range(BULK_BYTES // len(BLOCK)):
                    writer.write(BLOCK)
                    await writer.drain()
            else:
                writer.write(ANSWER)
    writer.close()


def serve_plain(home: Path, ready: Any) -> None:
    """The same service without a gateway: TLS on a port, and none on a unix socket."""

    async def serve() -> None:
        context = make_context(
            home / "pki" / "wildcard.pem", home / "pki" / "wildcard.key", ("http/1.1",)
        )
        server = await asyncio.start_server(respond, "127.0.0.1", 0, ssl=context)
        await asyncio.start_unix_server(respond, home / "backend.sock")
        ready.put(server.sockets[0].getsockname()[1])
        await asyncio.Event().wait()

    asyncio.run(serve())


@dataclass
class WayToBytes(RequestPipeline):
    connect: Callable[[], socket.socket]

    def typical(self, what: str) -> float:
        """CPU times come in ticks of 10 ms, so only their mean over all rounds says something."""
        return statistics.fmean(self.rounds[what]) if "cpu" in what else self.median(what)


def bulk(way: WayToBytes) -> None:
    buffer = bytearray(2**18)
    with way.connect() as connection:
        cpu_s, began_at = way.cpu_s(), time.perf_counter()
        connection.sendall(BULK)
        received = 0
        while received < BULK_BYTES:
            received += connection.recv_into(buffer)
        way.note("bulk_mb_per_s", BULK_BYTES / 1e6 / (time.perf_counter() - began_at))
        way.note("bulk_cpu_ms_per_gb", (way.cpu_s() - cpu_s) * 1e12 / BULK_BYTES)


def connections(way: WayToBytes) -> None:
    cpu_s, began_at = way.cpu_s(), time.perf_counter()
    for _ in range(CONNECTIONS):
        with way.connect() as connection:
            connection.sendall(GET)
            connection.recv(1_000)
    way.note("connections_per_s", CONNECTIONS / (time.perf_counter() - began_at))
    way.note("cpu_us_per_connection", (way.cpu_s() - cpu_s) * 1e6 / CONNECTIONS)


def requests(way: WayToBytes) -> None:
    with way.connect() as connection:
        cpu_s, began_at = way.cpu_s(), time.perf_counter()
        for _ in range(REQUESTS):
            connection.sendall(GET)
            connection.recv(1_000)
        way.note("requests_per_s", REQUESTS / (time.perf_counter() - began_at))
        way.note("cpu_us_per_request", (way.cpu_s() - cpu_s) * 1e6 / REQUESTS)


def connect_unix(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    return connection


def connect_tls(context: ssl.SSLContext, port: int) -> socket.socket:
    plain = socket.create_connection(("127.0.0.1", port))
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return context.wrap_socket(plain, server_hostname=HOST)


def write_routes(home: Path) -> None:
    route = {
        "instance_id": "inst_bench",
        "socket": str(home / "backend.sock"),
        "protocol": "https",
        "state": "running",
        "allow_cidrs": ["127.0.0.0/8"],
        "connections_max": 1_000,
    }
    (home / "routes.json").write_text(json.dumps({"version": 1, "instances": {HOST: route}}))


@contextlib.contextmanager
def haproxy(home: Path) -> Iterator[tuple[int, psutil.Process] | None]:
    """One thread that ends TLS, with the same certificate; None where it is not installed."""
    program = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
    if program is None:
        yield None
        return
    pair, port = home / "haproxy.pem", free_port()
    pki_home = home / "pki"
    pair.write_bytes((pki_home / "wildcard.pem").read_bytes())
    with pair.open("ab") as file:
        file.write((pki_home / "wildcard.key").read_bytes())
    (home / "haproxy.cfg").write_text(
        "global\n nbthread 1\n"
        "defaults\n mode tcp\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n"
        f"frontend in\n bind 127.0.0.1:{port} ssl crt {pair} ssl-min-ver TLSv1.2\n"
        f" default_backend out\nbackend out\n server one unix@{home / 'backend.sock'}\n"
    )
    process = subprocess.Popen([program, "-db", "-f", str(home / "haproxy.cfg")])
    try:
        deadline = time.monotonic() + 20
        while not _listens(port) and time.monotonic() < deadline:
            time.sleep(0.05)
        yield port, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(20)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionError:
        return False
    return True


@contextlib.contextmanager
def ways() -> Iterator[list[WayToBytes]]:
    spawning = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="bench") as directory:
        home = Path(directory)
        made = pki.ensure(home, "local", "localhost", dt.datetime.now(dt.UTC))
        write_routes(home)
        ready = spawning.Queue()
        plain = spawning.Process(target=serve_plain, args=(home, ready))
        settings = GatewaySettings(home, ports={"https": 0}, log_format="json", log_level="error")
        gateway = spawning.Process(target=run_gateway, args=(settings,))
        plain.start()
        gateway.start()
        try:
            plain_port = ready.get(timeout=30)
            described = home / "run" / "gateway.json"
            while not described.exists():
                time.sleep(0.02)
            gateway_is = json.loads(described.read_bytes())
            context = ssl.create_default_context(cafile=str(made.root_pem))
            peer = psutil.Process(plain.pid)
            workers = [psutil.Process(pid) for pid in gateway_is["workers"]]
            port = gateway_is["ports"]["https"]
            found = [
                WayToBytes(
                    DIRECT, lambda: connect_unix(str(home / "backend.sock")), processes=[peer]
                ),
                WayToBytes(PLAIN, lambda: connect_tls(context, plain_port), processes=[peer]),
                WayToBytes(GATEWAY, lambda: connect_tls(context, port), processes=workers),
            ]
            with haproxy(home) as other:
                if other is not None:
                    found.append(_by_haproxy(context, *other))
                yield found
        finally:
            for process in (gateway, plain):
                process.terminate()
                process.join(20)


def _by_haproxy(context: ssl.SSLContext, port: int, process: psutil.Process) -> WayToBytes:
    return WayToBytes(HAPROXY, lambda: connect_tls(context, port), processes=[process])


def run(rounds: int = ROUNDS) -> dict[str, Any]:
    """What each way did, and the gateway's ratio to the others."""
    with ways() as compared:
        for measure in (bulk, connections, requests):
            for way in compared:
                measure(way)  # once to warm up
                way.rounds.clear()
        order = list(compared)
        for _ in range(rounds):
            for way in order:
                bulk(way)
                connections(way)
                requests(way)
            order.append(order.pop(0))
    measured = {way.name: {what: way.typical(what) for what in way.rounds} for way in compared}
    ratios = {
        f"{what}: {GATEWAY} / {other}": measured[GATEWAY][what] / measured[other][what]
        for what in measured[GATEWAY]
        for other in measured
        if other != GATEWAY
    }
    bulk_ratio = None
    if HAPROXY in measured:
        by_name = {way.name: way.rounds["bulk_mb_per_s"] for way in compared}
        pairs = zip(by_name[GATEWAY], by_name[HAPROXY], strict=True)
        bulk_ratio = statistics.median(ours / theirs for ours, theirs in pairs)
    kept = bulk_ratio is None or bulk_ratio >= HAPROXY_BULK_MIN
    return {"measured": measured, "ratios": ratios, "bulk_ratio": bulk_ratio, "kept": kept}


def show(result: dict[str, Any]) -> None:
    measured = result["measured"]
    table = Table(title="Gateway (CPU of the serving process, without the backend)")
    table.add_column("")
    for name in measured:
        table.add_column(name, justify="right")
    others = [name for name in measured if name != GATEWAY]
    for other in others:
        table.add_column(f"x {other}", justify="right")
    for what in measured[GATEWAY]:
        against = [result["ratios"][f"{what}: {GATEWAY} / {other}"] for other in others]
        values = [f"{measured[name][what]:,.0f}" for name in measured]
        table.add_row(what.replace("_", " "), *values, *(f"{ratio:.2f}" for ratio in against))
    console = Console()
    console.print(table)
    if result["bulk_ratio"] is None:
        console.print("HAProxy is not installed, so it was not measured.")
    else:
        console.print(
            f"bulk, x HAProxy with one thread: {result['bulk_ratio']:.2f}, "
            f"at least {HAPROXY_BULK_MIN:.1f}"
        )


if __name__ == "__main__":
    outcome = run()
    show(outcome)
    sys.exit(0 if outcome["kept"] else 1)
