"""A whole installation in a folder of its own: `menagerie serve`, driven from outside."""

import contextlib
import functools
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from cell.runtime.process import MARK, mark_of
from clients.transport import LocalhostTransport, trust

READY_S = 120.0
# What was killed may wait for whoever started it to ask how it ended.
ENDED_S = 10.0
SETTINGS = {
    "MENAGERIE_RATE_LIMITS": "false",
    # No URL may expire between its making and its use, however long the machine stalls.
    "MENAGERIE_REVEAL_TTL_S": "600",
}


@functools.cache
def trusting(ca_pem: str) -> ssl.SSLContext:
    """Made once: to load the system's authorities takes longer than most requests."""
    return trust(ca_pem=ca_pem)


@dataclass
class Installation:
    """`home` is its folder. `start` returns what it printed until it was ready.

    `within` are the words of a command that runs the one that follows them.
    """

    home: Path
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[str] | None = None
    within: tuple[str, ...] = ()
    working_folder: Path | None = None

    def start(self, *options: str) -> str:
        self.home.mkdir(parents=True, exist_ok=True)
        command = [*self.within, sys.executable, "-P", "-m", "menagerie", "serve"]
        command += ["--home", str(self.home)]
        log = (self.home.parent / f"{self.home.name}.log").open("a")
        self.process = subprocess.Popen(
            [*command, "--port", "0", "--gateway-port", "0", "--dev", *options],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, **SETTINGS, **self.environment},
            cwd=self.working_folder,
        )
        log.close()
        return self._read_until_ready()

    def _read_until_ready(self) -> str:
        assert self.process is not None
        assert self.process.stdout is not None
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if "Or run the same" in line:
                return "".join(lines)
        raise AssertionError(f"serve ended before it was ready:\n{''.join(lines)}\n{self.log}")

    @property
    def log(self) -> str:
        return (self.home.parent / f"{self.home.name}.log").read_text()

    @property
    def endpoints(self) -> dict[str, Any]:
        return dict(json.loads((self.home / "endpoints.json").read_text()))

    def api(self, *, session: bool = False, timeout_s: float = READY_S) -> httpx.Client:
        found = self.endpoints
        token = found["session_token" if session else "api_key"]
        return httpx.Client(
            base_url=found["base_url"],
            headers={"Authorization": f"Bearer {token}"},
            timeout=timeout_s,
            # Plain HTTP, for which no authorities need to be loaded.
            verify=False,
        )

    def public(self, timeout_s: float = READY_S) -> httpx.Client:
        """A client of instances and of the cell: verified TLS through the gateway."""
        context = trusting(Path(self.endpoints["ca_file"]).read_text())
        return httpx.Client(transport=LocalhostTransport(context), timeout=timeout_s)

    def part(self, name: str) -> psutil.Process:
        """The process of one part: api, cell or gateway."""
        assert self.process is not None
        for child in psutil.Process(self.process.pid).children():
            with contextlib.suppress(psutil.Error):
                # One that is about to end has no command line any more.
                if child.cmdline()[-1:] == [name]:
                    return child
        raise AssertionError(f"{name} does not run")

    def processes(self) -> list[psutil.Process]:
        """Every process that works in this home, engines among them."""
        found = []
        mark = mark_of(str((self.home / "cell").resolve()))
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                given = process.environ()
                is_here = given.get("MENAGERIE_HOME") == str(self.home)
                is_here |= given.get(MARK, "").startswith(f"{mark}/")
                if is_here or any(str(self.home) in part for part in process.cmdline()):
                    found.append(process)
        return found

    def stop(self, number: signal.Signals = signal.SIGTERM, timeout_s: float = READY_S) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(timeout_s)
        if self.process.stdout:
            self.process.stdout.close()
        return code

    def destroy(self) -> None:
        """End whatever is left, engines that outlived their cell included."""
        if self.process and self.process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.stop()
        deadline = time.monotonic() + ENDED_S
        # A cell may have started an engine while it was looked for.
        while (found := self.processes()) and time.monotonic() < deadline:
            killed = []
            for process in found:
                with contextlib.suppress(psutil.Error):
                    # A confined engine shows nothing of the home; what confines it does.
                    for each in [*process.children(recursive=True), process]:
                        each.kill()
                        killed.append(each)
            # They may still write what is about to be removed.
            psutil.wait_procs(killed, ENDED_S)


@contextlib.contextmanager
def installed(folder: Path) -> Iterator[Installation]:
    """One that runs in a home below the folder, and of which nothing is left."""
    made = Installation(folder / "home")
    try:
        made.start()
        yield made
    finally:
        made.destroy()


def lasted_s(happens: Callable[[], bool], what: str) -> float:
    """How long it did not happen: until it was last asked for in vain.

    How long the last answer took does not count, as that may be the machine's doing.
    """
    began_at = in_vain_at = time.monotonic()
    while True:
        asked_at = time.monotonic()
        if happens():
            return in_vain_at - began_at
        assert asked_at - began_at < READY_S, what
        in_vain_at = asked_at
        time.sleep(0.02)


def order(installation: Installation, **body: Any) -> dict[str, Any]:
    """Order an instance and wait until it runs."""
    return wait_for(installation, place(installation, **body), "running")


def place(installation: Installation, **body: Any) -> str:
    """Order an instance, whose id is answered."""
    found = installation.endpoints
    with installation.api() as api:
        path = f"/v1/orgs/{found['org_id']}"
        made = api.post(
            f"{path}/projects/{found['project_id']}/instances",
            json={"engine": "duckdb", "size": "s0", **body},
        )
        assert made.status_code == 201, made.text
        return str(made.json()["id"])


def wait_for(
    installation: Installation, instance_id: str, status: str, *others: str
) -> dict[str, Any]:
    """Long-poll until the instance has this status, or one of the others."""
    path = f"/v1/orgs/{installation.endpoints['org_id']}/instances/{instance_id}"
    deadline = time.monotonic() + READY_S
    with installation.api() as api:
        while True:
            found = api.get(path, params={"wait_for": status, "timeout_s": 30}).json()
            if found["status"] in {status, *others}:
                return dict(found)
            assert time.monotonic() < deadline, found
            assert found["status"] != "failed", found


def erase_all(installation: Installation) -> None:
    """Ask for the end of every instance there is, and wait for none."""
    path = f"/v1/orgs/{installation.endpoints['org_id']}/instances"
    with installation.api() as api:
        for one in api.get(path, params={"limit": 100}).json()["items"]:
            api.post(f"{path}/{one['id']}/actions/erase")


def reveal(installation: Installation, instance_id: str) -> dict[str, Any]:
    """Fetch the credential from the cell, by the one-time URL."""
    path = f"/v1/orgs/{installation.endpoints['org_id']}/instances/{instance_id}"
    with installation.api() as api, installation.public() as public:
        made = api.post(f"{path}/credentials/reveal")
        assert made.is_success, made.text
        shown = public.get(made.json()["url"])
        assert shown.status_code == 200, shown.text
        return dict(shown.json())


def query(installation: Installation, credential: dict[str, Any], sql: str) -> httpx.Response:
    with installation.public() as public:
        return public.post(
            f"https://{credential['host']}:{credential['port']}/query",
            json={"sql": sql},
            auth=(credential["username"], credential["password"]),
        )
