"""Owns starting and ending the search service as a process, and speaking to it."""

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from contract_tests.forked import fork
from contract_tests.service_process import DEADLINE_S, ServiceProcess, socket_path, until

SERVE = Path(__file__).with_name("serve.py")
MASTER = "a master key of more than sixteen bytes"


@dataclass
class Service(ServiceProcess):
    @property
    def keys(self) -> Path:
        return self.home / "keys.json"

    @property
    def data(self) -> Path:
        return self.home / "data"

    def start(self) -> None:
        words = ["--socket", str(self.socket), "--data", str(self.data)]
        words += ["--keys", str(self.keys), *self.options]
        self.process = fork(SERVE, words, log=self.log, new_session=True)
        until(self.is_healthy, "the service to answer")

    def client(self, credential: str | None = MASTER) -> httpx.Client:
        headers = {} if credential is None else {"Authorization": f"Bearer {credential}"}
        return httpx.Client(
            transport=self.transport,
            base_url="http://instance",
            headers=headers,
            timeout=DEADLINE_S,
        )

    def ask(self, method: str, path: str, body: Any = None, status: int = 200, **more: Any) -> Any:
        """The body of the answer, which has this status."""
        if body is not None:
            more["json"] = body
        key = more.pop("key", MASTER)
        with self.client(key) as client:
            answer = client.request(method, path, **more)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    def refused(self, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, str]:
        """The status of the answer, and the code of its error."""
        if body is not None:
            more["json"] = body
        with self.client(more.pop("key", MASTER)) as client:
            answer = client.request(method, path, **more)
        error = answer.json()
        assert list(error) == ["message", "code", "type", "link"], error
        assert error["link"].endswith(error["code"])
        return answer.status_code, error["code"]

    def finished(self, summary: dict[str, Any]) -> dict[str, Any]:
        """The task, once it is over."""
        path = f"/tasks/{summary['taskUid']}"
        end = time.monotonic() + DEADLINE_S
        while (task := self.ask("GET", path))["status"] in {"enqueued", "processing"}:
            assert time.monotonic() < end, task
            time.sleep(0.01)
        found: dict[str, Any] = task
        return found

    def done(self, method: str, path: str, body: Any = None, **more: Any) -> dict[str, Any]:
        """A task that succeeded."""
        task = self.finished(self.ask(method, path, body, status=202, **more))
        assert task["status"] == "succeeded", task
        return task


@contextlib.contextmanager
def running(home: Path, *options: str) -> Iterator[Service]:
    with socket_path() as socket:
        service = Service(home, socket, list(options))
        service.data.mkdir()
        service.keys.write_text(json.dumps([MASTER]))
        try:
            service.start()
            yield service
        finally:
            service.kill()
