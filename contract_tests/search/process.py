"""Owns starting and ending the search service as a process, and speaking to it."""

import contextlib
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from contract_tests.forked import Forked, fork

SERVE = Path(__file__).with_name("serve.py")
MASTER = "a master key of more than sixteen bytes"
DEADLINE_S = 60.0


def until(condition: Callable[[], bool], what: str) -> None:
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
    process: Forked | None = None

    @property
    def keys(self) -> Path:
        return self.home / "keys.json"

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def log(self) -> Path:
        return self.home / "log"

    def start(self) -> None:
        words = ["--socket", str(self.socket), "--data", str(self.data)]
        words += ["--keys", str(self.keys), *self.options]
        self.process = fork(SERVE, words, log=self.log, new_session=True)
        until(self.is_healthy, "the service to answer")

    def end(self, with_signal: int) -> int:
        """Of the service and its indexing process, at once."""
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

    def client(self, key: str | None = MASTER) -> httpx.Client:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        transport = httpx.HTTPTransport(uds=str(self.socket), verify=False)
        return httpx.Client(
            transport=transport, base_url="http://instance", headers=headers, timeout=DEADLINE_S
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
    sockets = Path(tempfile.mkdtemp(prefix="sq"))
    service = Service(home, sockets / "s", list(options))
    service.data.mkdir()
    service.keys.write_text(json.dumps([MASTER]))
    try:
        service.start()
        yield service
    finally:
        if service.process is not None and service.process.poll() is None:
            service.end(signal.SIGKILL)
        shutil.rmtree(sockets, ignore_errors=True)
