"""A real cell in a folder of its own, asked over its socket as the control plane would."""

import base64
import contextlib
import hashlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import httpx
import jwt
import orjson
import redis
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from redis.backoff import NoBackoff
from redis.retry import Retry
from ulid import ULID

from cell.agent import cell_name
from cell.layout import Layout
from cell.runtime import cgroups
from cell.runtime.process import mark_of, strays
from contract_tests.cell import made_before
from contract_tests.engine_logs import watched
from contract_tests.forked import Forked, fork

SERVE = Path(__file__).with_name("serve.py")
CELL_ID = "cell_01JD0000000000000000000000"
DEADLINE_S = 60.0
GIB = 2**30
SMALL = {
    "name": "s0",
    "vcpu": 0.5,
    "memory_bytes": GIB,
    "storage_bytes": 20 * 10**9,
    "connections_max": 60,
}
# Starts in a hundredth of a second of a CPU; others in half of one, and more.
VALKEY = {"engine": "valkey", "engine_version": "9.1"}
LARGER = {**SMALL, "name": "s1", "vcpu": 1.0, "memory_bytes": 2 * GIB}


def until(happens: Callable[[], Any], what: str, within_s: float = DEADLINE_S) -> Any:
    """What `happens` answers, once that is true."""
    began = time.monotonic()
    while not (found := happens()):
        assert time.monotonic() - began < within_s, f"within {within_s:.0f} s: {what}"
        time.sleep(min(0.1, max(0.01, (time.monotonic() - began) / 10)))
    return found


def new_id() -> str:
    return f"inst_{ULID()}"


def spec(instance_id: str, **changes: Any) -> dict[str, Any]:
    return {
        "engine": "duckdb",
        "engine_version": "1.5",
        "size": SMALL,
        "host": f"duckdb-{instance_id.removeprefix('inst_').lower()}.local.localhost",
        "idle_pause_s": None,
        "allow_cidrs": None,
        "rotation_overlap_s": 86400,
        "client_ca_pem": None,
        "domains": [],
        "source_snapshot": None,
        **changes,
    }


@dataclass
class Rig:
    """`key` is the control plane's. A cell is started and killed as a process of its own.

    `under` are the words of a program that starts it. `usual` is what is specified for instances
    where a test says nothing else: their engine, where it is not the point. One that is not
    `bare` begins with what others have made; see made_before.py.
    """

    home: Path
    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    settings: dict[str, Any] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | Forked | None = None
    clock_off_s: float = 0.0
    under: tuple[str, ...] = ()
    usual: dict[str, Any] = field(default_factory=dict)
    bare: bool = True
    answers_within_s: float = DEADLINE_S

    # The process.

    def start(self, **settings: Any) -> None:
        """Runs a cell as its own process until it answers."""
        self.launch(**settings)
        until(self._answers, "the cell answers")

    def launch(self, **settings: Any) -> None:
        given = {
            "cell_id": self.cell_id,
            "log_format": "json",
            "tick_s": 0.2,
            "restart_first_s": 0.05,
            **self.settings,
            **settings,
        }
        key = base64.b64encode(self.key.public_key().public_bytes_raw()).decode()
        words = [str(self.home), key, json.dumps(given), str(self.clock_off_s)]
        self.home.parent.mkdir(parents=True, exist_ok=True)
        if not self.bare and not self.home.exists():
            made_before.give(self.home)
        if not self.under:
            self.process = fork(SERVE, words, log=self.log_path)
            return
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.under, sys.executable, str(SERVE), *words],
                stderr=log,
                stdout=log,
                cwd=Path(__file__).parents[2],
            )

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def terminate(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(DEADLINE_S)

    def destroy(self) -> None:
        """Ends the cell and every engine it ever started."""
        if self.process is not None and self.process.poll() is None:
            self.kill()
        mark = f"{mark_of(str(self.home.resolve()))}/"
        while left := strays(mark):
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        made_before.take_back(self.home)
        layout = Layout.make(self.home)
        if layout.sockets.parent != layout.home:
            shutil.rmtree(layout.sockets)
        if layout.open != layout.home:
            shutil.rmtree(layout.open)
        cgroups.find(cell_name(layout)).close()

    def logs(self) -> list[Path]:
        """Its own, and those of its engines."""
        return [self.log_path, *self.home.glob("instances/*/log/engine.log")]

    def memory_kills(self) -> dict[str, int]:
        groups = cgroups.find(cell_name(Layout.make(self.home)))
        instances = (self.home / "instances").iterdir()
        return {each.name: groups.memory_kills(each.name) for each in instances}

    @property
    def cell_id(self) -> str:
        return str(self.settings.get("cell_id", CELL_ID))

    @property
    def log_path(self) -> Path:
        return self.home.parent / f"{self.home.name}.log"

    @property
    def socket(self) -> str:
        return str((self.home / "run" / "cell.sock").resolve())

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log_path.read_text()[-4000:]
        try:
            return self.get("/v1/cell").status_code == 200
        except (httpx.HTTPError, OSError):
            return False

    # What the control plane asks.

    def sign(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        at: float | None = None,
        cell_id: str | None = None,
    ) -> dict[str, str]:
        cell_id = cell_id or self.cell_id
        timestamp = str(int(time.time() if at is None else at))
        nonce = secrets.token_hex(16)
        digest = hashlib.sha256(body)
        signed = f"{cell_id}\n{method}\n{path}\n{digest.hexdigest()}\n{timestamp}\n{nonce}"
        return {
            "Content-Digest": f"sha-256=:{base64.b64encode(digest.digest()).decode()}:",
            "Menagerie-Cell": cell_id,
            "Menagerie-Timestamp": timestamp,
            "Menagerie-Nonce": nonce,
            "Menagerie-Signature": _base64url(self.key.sign(signed.encode())),
        }

    def client(self) -> httpx.Client:
        # No TLS on a socket: to load the authorities for it would take longer than most requests.
        transport = httpx.HTTPTransport(uds=self.socket, verify=False)
        return httpx.Client(
            transport=transport, base_url="http://cell", timeout=self.answers_within_s
        )

    def get(self, path: str) -> httpx.Response:
        with self.client() as http:
            return http.get(path, headers=self.sign("GET", path))

    def act(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        key: str | None = None,
        lease: int = 1,
    ) -> httpx.Response:
        content = b"" if body is None else orjson.dumps(body)
        headers = {
            **self.sign(method, path, content),
            "Operation-Key": key or f"{new_id()}:step",
            "Operation-Lease": str(lease),
        }
        if content:
            headers["Content-Type"] = "application/json"
        with self.client() as http:
            return http.request(method, path, content=content or None, headers=headers)

    def put(self, instance_id: str, **changes: Any) -> dict[str, Any]:
        wanted = spec(instance_id, **{**self.usual, **changes})
        answer = self.act("PUT", f"/v1/instances/{instance_id}", wanted)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def make(self, **changes: Any) -> str:
        instance_id = new_id()
        assert self.put(instance_id, **changes)["status"] == "running"
        return instance_id

    def action(self, instance_id: str, verb: str, body: Any = None) -> dict[str, Any]:
        answer = self.act("POST", f"/v1/instances/{instance_id}/actions/{verb}", body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def erase_all(self) -> None:
        """As far as it goes: tests leave engines in any state."""
        for found in self.get("/v1/instances").json()["items"]:
            if found["status"] != "erased":
                self.act("POST", f"/v1/instances/{found['instance_id']}/actions/erase")

    def observe(self, instance_id: str) -> dict[str, Any]:
        return dict(self.get(f"/v1/instances/{instance_id}").json())

    def status_is(self, instance_id: str, status: str) -> dict[str, Any]:
        def there() -> dict[str, Any] | None:
            seen = self.observe(instance_id)
            return seen if seen["status"] == status else None

        found: dict[str, Any] = until(there, f"{instance_id} is {status}")
        return found

    # What people and the gateway ask.

    def token(self, instance_id: str, action: str, ttl_s: float = 600, **claims: Any) -> str:
        document = {
            "v": 1,
            "aud": self.cell_id,
            "instance_id": instance_id,
            "action": action,
            "jti": secrets.token_hex(16),
            "exp": int(time.time() + ttl_s),
            "request_id": "req_test0000",
            **claims,
        }
        return jwt.encode(document, self.key, algorithm="EdDSA")

    def reveal(self, instance_id: str) -> dict[str, Any]:
        with self.client() as http:
            answer = http.get(f"/v1/reveal/{self.token(instance_id, 'reveal')}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def rotate(self, instance_id: str, **claims: Any) -> dict[str, Any]:
        with self.client() as http:
            answer = http.post(f"/v1/rotate/{self.token(instance_id, 'rotate', **claims)}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def wake(self, instance_id: str) -> httpx.Response:
        token = (self.home / "run" / "gateway.token").read_text()
        with self.client() as http:
            return http.post(
                f"/v1/wake/{instance_id}", headers={"Authorization": f"Bearer {token}"}
            )

    def routes(self) -> dict[str, Any]:
        return dict(orjson.loads((self.home / "routes.json").read_bytes()))

    def route(self, instance_id: str) -> dict[str, Any] | None:
        by_id = {each["instance_id"]: each for each in self.routes()["instances"].values()}
        return by_id.get(instance_id)

    def query(self, instance_id: str, password: str, sql: str) -> httpx.Response:
        """Asks the engine on the socket its route names, as the gateway does."""
        route = self.route(instance_id)
        assert route is not None
        with engine(route["socket"]) as http:
            return http.post("/query", json={"sql": sql}, auth=("app", password))

    @contextlib.contextmanager
    def keys(self, instance_id: str, password: str) -> Iterator[redis.Redis]:
        """What an instance of Valkey holds, on the socket its route names."""
        route = self.route(instance_id)
        assert route is not None
        with redis.Redis(
            unix_socket_path=route["socket"],
            username="app",
            password=password,
            retry=Retry(NoBackoff(), 0),
        ) as client:
            yield client

    def add(self, instance_id: str, password: str, number: int) -> None:
        """To the list that `numbers` reads."""
        with self.keys(instance_id, password) as client:
            client.rpush("numbers", number)

    def numbers(self, instance_id: str, password: str) -> list[int]:
        with self.keys(instance_id, password) as client:
            return [int(each) for each in cast("list[bytes]", client.lrange("numbers", 0, -1))]

    def engine_pid(self, instance_id: str) -> int:
        found = orjson.loads((self.home / "instances" / instance_id / "process.json").read_bytes())
        return int(found["pid"])


@contextlib.contextmanager
def running(
    home: Path, *, under: tuple[str, ...] = (), bare: bool = False, **settings: Any
) -> Iterator[Rig]:
    """A cell that has started; in the end nothing is left of it and its engines but files."""
    made = Rig(home, settings=settings, under=under, bare=bare)
    try:
        with watched(made.logs, made.memory_kills):
            made.start()
            yield made
    finally:
        made.destroy()


@contextlib.contextmanager
def engine(socket: str, headers: dict[str, str] | None = None) -> Iterator[httpx.Client]:
    transport = httpx.HTTPTransport(uds=socket, verify=False)
    with httpx.Client(
        transport=transport, base_url="http://engine", headers=headers, timeout=DEADLINE_S
    ) as http:
        yield http


def _base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
