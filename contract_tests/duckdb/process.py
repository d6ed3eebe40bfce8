"""Owns starting and ending the DuckDB service as a process, and speaking to it."""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from contract_tests.forked import Forked, fork

SERVE = Path(__file__).with_name("serve.py")
# Loads all of it anew, as an instance's does.
ANEW = ("-m", "instance_services.duckdb")
PASSWORD = "correct horse"
DEADLINE_S = 60.0


def digest(password: str) -> str:
    return hashlib.sha256(password.encode()).hexdigest()


def until(condition: Callable[[], bool], what: str) -> None:
    """Waits for the condition; there is no other way to wait in these tests."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, f"waited {DEADLINE_S} s for {what}"
        time.sleep(0.01)


@dataclass
class Service:
    """One service on a unix socket; `socket` has a short path, as the kernel wants."""

    home: Path
    socket: Path
    options: list[str] = field(default_factory=list)
    process: "subprocess.Popen[bytes] | Forked | None" = None

    @property
    def users(self) -> Path:
        return self.home / "users.json"

    @property
    def database(self) -> Path:
        return self.home / "database.duckdb"

    @property
    def log(self) -> Path:
        return self.home / "log"

    def start(self, *program: str) -> None:
        """Of a program of its own where one is given: the words of the interpreter for it."""
        words = ["--socket", str(self.socket), "--data", str(self.database)]
        words += ["--users", str(self.users)]
        words += ["--memory-bytes", "400000000", "--threads", "1", *self.options]
        if program:
            command = [sys.executable, *program, *words]
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(command, stderr=log, start_new_session=True)
        else:
            self.process = fork(SERVE, words, log=self.log, new_session=True)
        until(self.is_healthy, "the service to answer")

    def end(self, with_signal: int) -> int:
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, with_signal)
        return self.process.wait(DEADLINE_S)

    def is_healthy(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        try:
            with self.client(None) as client:
                return client.get("/health").status_code == 200
        except httpx.TransportError:
            return False

    def client(
        self, password: str | None = PASSWORD, timeout_s: float = DEADLINE_S
    ) -> httpx.Client:
        auth = None if password is None else ("app", password)
        # No TLS on a socket: to load the authorities for it would take longer than most requests.
        transport = httpx.HTTPTransport(uds=str(self.socket), verify=False)
        return httpx.Client(
            transport=transport, base_url="http://instance", auth=auth, timeout=timeout_s
        )

    def post(self, sql: str, params: list[Any] | None = None) -> httpx.Response:
        body = {"sql": sql} if params is None else {"sql": sql, "params": params}
        with self.client() as client:
            return client.post("/query", json=body)

    def query(self, sql: str, params: list[Any] | None = None) -> dict[str, Any]:
        response = self.post(sql, params)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def rows(self, sql: str, params: list[Any] | None = None) -> list[Any]:
        rows: list[Any] = self.query(sql, params)["rows"]
        return rows

    def error(self, sql: str, status: int = 400) -> str:
        response = self.post(sql)
        assert response.status_code == status, response.text
        assert list(response.json()) == ["error"]
        return str(response.json()["error"])


@contextlib.contextmanager
def running(home: Path, *options: str, program: tuple[str, ...] = ()) -> Iterator[Service]:
    sockets = Path(tempfile.mkdtemp(prefix="dq"))
    service = Service(home, sockets / "s", list(options))
    service.users.write_text(json.dumps({"app": [digest(PASSWORD)]}))
    try:
        service.start(*program)
        yield service
    finally:
        if service.process is not None and service.process.poll() is None:
            service.end(signal.SIGKILL)
        shutil.rmtree(sockets, ignore_errors=True)
