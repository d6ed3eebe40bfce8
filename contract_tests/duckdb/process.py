"""Owns starting and ending the DuckDB service as a process, and speaking to it."""

import contextlib
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from contract_tests.forked import fork
from contract_tests.service_process import DEADLINE_S, ServiceProcess, socket_path, until

SERVE = Path(__file__).with_name("serve.py")
# Loads all of it anew, as an instance's does.
ANEW = ("-m", "instance_services.duckdb")
PASSWORD = "correct horse"


def digest(password: str) -> str:
    return hashlib.sha256(password.encode()).hexdigest()


@dataclass
class Service(ServiceProcess):
    @property
    def users(self) -> Path:
        return self.home / "users.json"

    @property
    def database(self) -> Path:
        return self.home / "database.duckdb"

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

    def client(
        self, credential: str | None = PASSWORD, timeout_s: float = DEADLINE_S
    ) -> httpx.Client:
        auth = None if credential is None else ("app", credential)
        return httpx.Client(
            transport=self.transport, base_url="http://instance", auth=auth, timeout=timeout_s
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
    with socket_path() as socket:
        service = Service(home, socket, list(options))
        service.users.write_text(json.dumps({"app": [digest(PASSWORD)]}))
        try:
            service.start(*program)
            yield service
        finally:
            service.kill()
