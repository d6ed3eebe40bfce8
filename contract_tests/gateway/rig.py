"""A gateway in a home of its own, and the means to reach it as clients do."""

import contextlib
import datetime as dt
import json
import os
import shutil
import signal
import socket
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx

from cell.certificates import pki
from contract_tests.forked import Forked, fork
from contract_tests.gateway.backends import Backend, Handler, http
from contract_tests.kept_port import KeptPort

REGION, DOMAIN = "test", "localhost"
ZONE = f"{REGION}.{DOMAIN}"
SERVE = Path(__file__).with_name("serve.py")
TOKEN = "gateway-token-of-the-test"

# How long a test waits for what must come. A busy machine stalls for seconds, and only a gateway
# that never does it is meant to reach the end of this.
WAIT_S = 60.0

T = TypeVar("T")


def until(found: Callable[[], T | None], what: str, timeout_s: float = WAIT_S) -> T:
    """The first truthy result; fails with `what` at the deadline."""
    began = time.monotonic()
    while not (result := found()):
        assert time.monotonic() - began < timeout_s, f"not within {timeout_s} s: {what}"
        time.sleep(min(0.1, max(0.01, (time.monotonic() - began) / 10)))
    return result


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


class GatewayRig:
    """One cell home with its certificates, routes, backends and gateway process."""

    def __init__(self, *, restarts: bool = False, **options: Any) -> None:
        """One that `restarts` finds its port free again."""
        self.home = Path(tempfile.mkdtemp(prefix="gw"))
        self.options = {
            "ports": {"https": 0},
            "listen": "127.0.0.1",
            "log_level": "debug",
            # A test that stalls is no slow client. Where one times out, the test says after how
            # long, so that whatever else ends a connection here ends it for another reason.
            "handshake_timeout_s": 3_600.0,
            "first_request_timeout_s": 3_600.0,
        }
        self.options.update(options)
        self._kept = KeptPort() if restarts else None
        if self._kept is not None:
            self.options["ports"] = {"https": self._kept.number}
        self.routes: dict[str, Any] = {}
        self.cell: dict[str, Any] = {}
        self.cell_socket = self.home / "run" / "cell.sock"
        self._backends: list[Backend] = []
        self._version = 0
        (self.home / "run").mkdir()
        (self.home / "run" / "gateway.token").write_text(TOKEN + "\n")
        pki.ensure(self.home, REGION, DOMAIN, dt.datetime.now(dt.UTC))
        self.write_routes()
        self.process = self._start()
        self.ports: dict[str, int] = self._described()["ports"]

    # The gateway's process.

    def _start(self) -> Forked:
        words = [str(self.home), json.dumps(self.options)]
        process = fork(SERVE, words, log=self.home / "gateway.log", new_session=True)
        until((self.home / "run" / "gateway.json").exists, "the gateway started")
        return process

    def restart(self) -> None:
        """Another gateway on the same port, after the first was killed or stopped."""
        assert self._kept is not None, "somebody else may have its port by now"
        self.process.wait(WAIT_S)
        (self.home / "run" / "gateway.json").unlink(missing_ok=True)
        self.options["ports"] = self.ports
        self.process = self._start()

    @property
    def port(self) -> int:
        return self.ports["https"]

    def _described(self) -> Any:
        return json.loads((self.home / "run" / "gateway.json").read_bytes())

    def workers(self) -> list[int]:
        return list(self._described()["workers"])

    def log(self) -> list[dict[str, Any]]:
        lines = (self.home / "gateway.log").read_text().splitlines()
        return [json.loads(line) for line in lines if line[:1] == "{" and line[-1:] == "}"]

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(WAIT_S)
        for backend in self._backends:
            backend.stop()
        if self._kept is not None:
            self._kept.close()
        shutil.rmtree(self.home)

    # What the cell would do.

    def write_routes(self) -> None:
        self._version += 1
        content = {
            "version": self._version,
            "cell": {"host": f"cell.{ZONE}", "socket": str(self.cell_socket), **self.cell},
            "instances": self.routes,
        }
        part = self.home / "routes.part"
        part.write_text(json.dumps(content))
        part.replace(self.home / "routes.json")

    def set_route(self, host: str, **members: Any) -> None:
        self.routes[host] = {**self.routes[host], **members}
        self.write_routes()

    def serve(self, path: Path, handler: Handler) -> Backend:
        backend = Backend(path, handler)
        self._backends.append(backend)
        return backend

    def add_instance(
        self, name: str, handler: Handler | None = None, *, backend: bool = True, **members: Any
    ) -> str:
        """The host, once the gateway knows it."""
        host = f"duckdb-{name}.{ZONE}"
        path = self.home / "run" / f"{name}.sock"
        if backend:
            self.serve(path, handler or http(name))
        self.routes[host] = {
            "instance_id": f"inst_{name}",
            "socket": str(path),
            "protocol": "https",
            "state": "running",
            "allow_cidrs": None,
            "connections_max": 1000,
            "refusal": None,
            **members,
        }
        self.write_routes()
        until(lambda: self.all_know(self._version), f"{host} is routed")
        return host

    def all_know(self, version: int) -> bool:
        """Whether every worker has read these routes, or later ones."""
        knowing = {line["pid"] for line in self.log() if (line.get("version") or 0) >= version}
        return knowing >= set(self.workers())

    # What clients do.

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.home / "pki" / "root.pem"))
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    def dial(self, address: str = "127.0.0.1", source: str | None = None) -> socket.socket:
        source_address = (source, 0) if source else None
        return socket.create_connection((address, self.port), WAIT_S, source_address)

    def connect(
        self,
        host: str,
        context: ssl.SSLContext | None = None,
        address: str = "127.0.0.1",
        source: str | None = None,
    ) -> ssl.SSLSocket:
        plain = self.dial(address, source)
        try:
            return (context or self.context()).wrap_socket(plain, server_hostname=host)
        except BaseException:
            plain.close()
            raise

    def knows(self, host: str) -> bool:
        try:
            self.connect(host).close()
        except ssl.SSLError as error:
            return "UNRECOGNIZED_NAME" not in str(error.reason)
        except OSError:
            return True  # its allow-list keeps us out, so it has one
        return True

    def connectable(self, host: str) -> bool:
        try:
            self.connect(host).close()
        except OSError:
            return False
        return True

    @contextlib.contextmanager
    def client(self, **options: Any) -> Iterator["Client"]:
        with httpx.Client(verify=self.context(), timeout=60, **options) as client:
            yield Client(client, self.port)

    def get(self, host: str, path: str = "/name", **options: Any) -> httpx.Response:
        with self.client() as client:
            return client.send("GET", host, path, **options)


class Client:
    """httpx, told where hosts that no resolver knows are; verification is by the real name."""

    def __init__(self, client: httpx.Client, port: int) -> None:
        self._client = client
        self._port = port

    def send(self, method: str, host: str, path: str = "/name", **options: Any) -> httpx.Response:
        return self._client.request(
            method,
            f"https://127.0.0.1:{self._port}{path}",
            headers={"host": host, **options.pop("headers", {})},
            extensions={"sni_hostname": host},
            **options,
        )


def raw_get(connection: ssl.SSLSocket, path: str = "/name") -> tuple[int, dict[str, str], bytes]:
    """One request with credentials, on a connection that stays open."""
    connection.sendall(f"GET {path} HTTP/1.1\r\nauthorization: x\r\nhost: x\r\n\r\n".encode())
    return read_answer(connection)


def read_answer(connection: ssl.SSLSocket | socket.socket) -> tuple[int, dict[str, str], bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        data += receive(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:])
    while len(body) < int(headers["content-length"]):
        body += receive(connection)
    return int(lines[0].split(" ")[1]), headers, body


def is_hung_up_on(connection: ssl.SSLSocket | socket.socket) -> bool:
    """Whether its end comes without a word; a reset, by what was still unread, is an end too."""
    try:
        return connection.recv(100) == b""
    except ConnectionError:
        return True


def receive(connection: ssl.SSLSocket | socket.socket) -> bytes:
    data = connection.recv(65_536)
    assert data, "the connection ended in the middle of an answer"
    return data
