"""API and workers are killed with -9 under load: each accepted change happens, once, and ends.

The parts run apart: on PostgreSQL two API processes under gunicorn and a worker.
"""

import contextlib
import os
import sqlite3
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import psutil
import pytest
from sqlalchemy import select

from contract_tests.cell.rig import until
from contract_tests.databases import Databases
from contract_tests.end_to_end.engine_clients import connect
from contract_tests.end_to_end.installation import READY_S, Installation, order
from contract_tests.end_to_end.test_engines import place_of
from contract_tests.end_to_end.test_parts import of_gunicorn, serves_api, serves_gateway
from contract_tests.kept_port import KeptPort
from menagerie import first_start
from menagerie.settings import GATEWAY_PORTS, load
from storage.database import Database
from storage.records import AuditEntry, Event, Instance, Work

QUIET_S: Final = 240.0
LIFE: Final = (
    ("/actions/pause", "paused"),
    ("/actions/resume", "running"),
    ("", "deleted"),
)
TOLD: Final = ["requested", "ready", "paused", "resumed", "deleted"]
DONE: Final = ["instance.create", "instance.delete", "instance.pause", "instance.resume"]


# Lives of instances, how many at once, and after how many changes each kill comes.
LIVES: Final = 24
AT_ONCE: Final = 6
CHANGES_BETWEEN_KILLS: Final = 4


@dataclass
class ControlPlane:
    """The parts of an installation as processes of their own, without a `serve` that tends them."""

    home: Path
    environment: dict[str, str]
    parts: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def log(self) -> Path:
        return self.home.parent / "log"

    @property
    def url(self) -> str:
        return (
            self.environment.get("MENAGERIE_DATABASE_URL") or f"sqlite:///{self.home}/menagerie.db"
        )

    @property
    def installation(self) -> Installation:
        return Installation(self.home, self.environment)

    def run(self, *command: str) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "menagerie", *command],
                env={**os.environ, **self.environment},
                stdout=log,
                stderr=log,
            )

    def start(self, part: str) -> None:
        self.parts[part] = self.run(part)

    def kill(self, part: str) -> None:
        """And start it again at once, while what it started ends by itself."""
        self.parts[part].kill()
        self.parts[part].wait()
        self.start(part)

    def kill_api_worker(self) -> None:
        """One of gunicorn's, which starts another. On SQLite it does the work too."""
        with contextlib.suppress(psutil.NoSuchProcess, StopIteration):
            master = self.parts["api"].pid
            next(one for one in of_gunicorn(self.installation) if one.pid != master).kill()

    def stop(self) -> None:
        for process in self.parts.values():
            process.terminate()
        for process in self.parts.values():
            process.wait(READY_S)
        self.installation.destroy()


@pytest.fixture(params=["sqlite", "postgresql"])
def plane(
    request: pytest.FixtureRequest, tmp_path: Path, databases: Databases
) -> Iterator[ControlPlane]:
    url = databases.migrated("postgresql") if request.param == "postgresql" else ""
    with KeptPort() as port, KeptPort() as https, KeptPort() as resp:
        settings = {
            **{f"MENAGERIE_GATEWAY_{name.upper()}_PORT": "0" for name in GATEWAY_PORTS},
            "MENAGERIE_GATEWAY_HTTPS_PORT": str(https.number),
            "MENAGERIE_GATEWAY_RESP_PORT": str(resp.number),
            "MENAGERIE_HOME": str(tmp_path / "home"),
            "MENAGERIE_PORT": str(port.number),
            "MENAGERIE_RATE_LIMITS": "false",
            **({"MENAGERIE_DATABASE_URL": url, "MENAGERIE_PROCESSES": "2"} if url else {}),
        }
        made = ControlPlane(tmp_path / "home", settings)
        try:
            options = {name.removeprefix("MENAGERIE_").lower(): settings[name] for name in settings}
            first_start.initialize(load(**options))
            for part in ("cell", "gateway", "api", *(["worker"] if url else [])):
                made.start(part)
            yield made
        finally:
            made.stop()
    if url:
        databases.give_back(url)


@dataclass
class Owner:
    """Whoever changes instances, and says each request again until it is answered."""

    installation: Installation
    lived: list[tuple[str, str]] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def changes(self) -> int:
        return len(self.accepted)

    def live(self, name: str) -> None:
        """An instance from its order to its end."""
        with self.installation.api(timeout_s=20) as api:
            ends = self.installation.endpoints
            org = f"/v1/orgs/{ends['org_id']}"
            body = {"engine": "valkey", "size": "f0", "name": name}
            made = self._change(api, "POST", f"{org}/projects/{ends['project_id']}/instances", body)
            path = f"{org}/instances/{made['id']}"
            self._wait(api, path, "running")
            for rest, status in LIFE:
                self._change(api, "POST" if rest else "DELETE", path + rest)
                self._wait(api, path, status)
            self.lived.append((name, str(made["id"])))

    def _change(
        self, api: httpx.Client, method: str, path: str, body: dict[str, str] | None = None
    ) -> dict[str, Any]:
        headers = {"Idempotency-Key": str(uuid.uuid4())} if method == "POST" else {}
        answer = self._until_answered(lambda: api.request(method, path, headers=headers, json=body))
        self.accepted.append(path)
        return dict(answer.json()) if answer.content else {}

    def _wait(self, api: httpx.Client, path: str, status: str) -> None:
        end = time.monotonic() + QUIET_S
        asked = f"{path}?wait_for={status}&timeout_s=5"
        while True:
            found = self._until_answered(lambda: api.get(asked)).json()
            if found["status"] == status:
                return
            assert found["status"] != "failed", found
            assert time.monotonic() < end, f"stuck: {found}"

    def _until_answered(self, ask: Callable[[], httpx.Response]) -> httpx.Response:
        end = time.monotonic() + QUIET_S
        lost = len(self.lost)
        while True:
            try:
                answer = ask()
            except httpx.HTTPError as error:
                self.lost.append(repr(error))
            else:
                passing = answer.status_code >= 500 or "idempotency_in_flight" in answer.text
                if not passing:
                    # A DELETE has no key: what it did before its answer was lost is in its way.
                    did = answer.request.method == "DELETE" and answer.status_code == 409
                    assert answer.is_success or (did and len(self.lost) > lost), answer.text
                    return answer
                self.lost.append(answer.text)
            assert time.monotonic() < end, "no answer"
            time.sleep(0.1)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_what_is_accepted_happens_once_and_ends(plane: ControlPlane) -> None:
    until(lambda: serves_api(plane.installation), "the API answers", READY_S)
    owner = Owner(plane.installation)
    kills = kill_while(plane, owner)
    ids = dict(owner.lived)
    assert ids.keys() == {f"life-{number}" for number in range(LIVES)}
    assert kills >= LIVES * len(TOLD) // CHANGES_BETWEEN_KILLS // 2
    assert owner.lost, "nobody noticed the kills"
    database = Database(plane.url)
    with database.read() as db:
        made = {one.name: one.id for one in db.scalars(select(Instance))}
        assert made == ids
        for one in ids.values():
            told = db.scalars(
                select(Event.type).where(Event.instance_id == one).order_by(Event.seq)
            )
            # A backup that a delete breaks off is told as well.
            lived = [kind for kind in told if kind.startswith("instance.")]
            assert lived == [f"instance.{kind}.v1" for kind in TOLD]
            acts = select(AuditEntry.action).where(AuditEntry.target == one)
            assert sorted(db.scalars(acts)) == DONE
        states = Counter(db.scalars(select(Work.state).where(Work.schedule.is_(None))))
    database.dispose()
    assert set(states) == {"done"}
    # Each is there until its retention is over, and nothing else is.
    with contextlib.closing(sqlite3.connect(plane.home / "cell" / "cell.db")) as cell:
        assert {row[0] for row in cell.execute("SELECT instance_id FROM instances")} == {
            *ids.values()
        }
    until(lambda: serves_api(plane.installation), "the API answers again", READY_S)
    until(lambda: serves_gateway(plane.installation), "the gateway serves", READY_S)
    made = order(plane.installation, engine="valkey", size="f0")
    with connect("valkey", place_of(plane.installation, made["id"])) as session:
        session.write([6, 7])
        assert session.read() == [6, 7]
    if "worker" in plane.parts:
        # Only this home's: the other tests of this machine may run gunicorn too.
        until(lambda: len(of_gunicorn(plane.installation)) == 3, "gunicorn's own, and two workers")


def kill_while(plane: ControlPlane, owner: Owner) -> int:
    """All lives, and after so many changes a kill of each kind in turn; how many there were."""
    kinds: list[Callable[[], None]] = [plane.kill_api_worker, lambda: plane.kill("api")]
    if "worker" in plane.parts:
        kinds.insert(0, lambda: plane.kill("worker"))
    kills = 0
    with ThreadPoolExecutor(AT_ONCE) as threads:
        lives = [threads.submit(owner.live, f"life-{number}") for number in range(LIVES)]
        while not all(life.done() for life in lives):
            is_due = owner.changes() >= (kills + 1) * CHANGES_BETWEEN_KILLS
            if is_due:
                kinds[kills % len(kinds)]()
                kills += 1
            time.sleep(0.02)
        for life in lives:
            life.result()
    return kills
