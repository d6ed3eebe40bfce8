"""What the tests of recovery ask: an instance whose WAL is archived, and moments of it."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pymysql
import pytest

from cell.engines.driver import Login
from cell.layout import Layout, Site
from contract_tests.cell.backups.backup_calls import asked, back_up, left_beside
from contract_tests.cell.rig import Rig, running, until
from contract_tests.engines.speakers import SPEAKERS

# Engines whose logs note whole seconds.
OF_SECONDS = {"valkey", "redis", "mariadb"}
# To verify each backup would take as long as all the rest.
FAST = {"wal_look_s": 0.2, "wal_idle_look_s": 1.0, "backup_verify_bytes_max": 1}


def now() -> str:
    """Not before now: a moment is told in milliseconds, and cut off."""
    return at(time.time() + 0.001)


def at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


@contextmanager
def cell(folder: Path, **settings: Any) -> Iterator[Rig]:
    with running(folder / "cell", **{**FAST, **settings}) as made:
        yield made


@dataclass
class Archived:
    """An instance, by default of PostgreSQL, with numbers in it."""

    rig: Rig
    version: str
    instance_id: str
    engine: str = "postgres"

    @classmethod
    def make(
        cls, rig: Rig, version: str = "", engine: str = "postgres", **changes: Any
    ) -> "Archived":
        engines = rig.get("/v1/cell").json()["engines"]
        found = {each["engine"]: each["versions"] for each in engines}.get(engine, [])
        if not found or (version and version not in found):
            pytest.skip(f"{engine} {version} is not installed here")
        version = version or found[0]
        given = {"engine": engine, "engine_version": version, "rotation_overlap_s": 0}
        instance_id = rig.make(**given, continuous_archiving=True, **changes)
        made = cls(rig, version, instance_id, engine)
        made.speaker.make(made.site, made.login)
        return made

    @property
    def speaker(self) -> Any:
        return SPEAKERS[self.engine]

    @property
    def login(self) -> Login:
        found = self.rig.reveal(self.instance_id)
        return Login(found["username"], found["password"])

    @property
    def site(self) -> Site:
        return Layout.make(self.rig.home).site(self.instance_id, 0)

    @contextmanager
    def session(self) -> Iterator[psycopg.Connection[Any]]:
        login = self.login
        with psycopg.connect(
            host=str(self.site.run),
            user=login.username,
            password=login.password,
            dbname="app",
            autocommit=True,
        ) as connection:
            yield connection

    def moment(self, seconds: float) -> float:
        """As exact as the engine's log notes it."""
        return round(seconds, 3) if self.engine not in OF_SECONDS else math.floor(seconds)

    def write(self, *numbers: int, login: Login | None = None) -> str:
        """A moment by which they are committed."""
        self.speaker.write(self.site, login or self.login, numbers)
        if self.engine not in OF_SECONDS:
            return now()
        moment = math.floor(time.time()) + 1
        time.sleep(moment - time.time())
        return at(moment)

    def read(self) -> list[int]:
        found: list[int] = self.speaker.read(self.site, self.login)
        return found

    @property
    def archiving(self) -> dict[str, Any]:
        return dict(self.rig.observe(self.instance_id)["archiving"] or {"newest_at": None})

    def archived_until(self, moment: str) -> dict[str, Any]:
        """Once all that was committed by then is in the store."""

        def there() -> dict[str, Any] | None:
            told = self.archiving
            newest = told["newest_at"]
            reached = newest is not None and _seconds(newest) >= _seconds(moment)
            return told if reached else None

        found: dict[str, Any] = until(there, f"archived until {moment}")
        return found

    def base(self) -> str:
        """A backup that WAL continues."""
        self.archived_until(now())
        made = back_up(self.rig, self.instance_id)
        assert made["wal_chain_id"] is not None
        assert not self.archiving["needs_base"]
        return str(made["backup_id"])

    def restore(self, backup_id: str, moment: str) -> httpx.Response:
        body = {"backup_id": backup_id, "at": moment}
        return asked(self.rig, self.instance_id, "restore", body)

    def restored(self, backup_id: str, moment: str) -> list[int]:
        answer = self.restore(backup_id, moment)
        assert answer.status_code == 200, answer.text
        return self.read()

    def refused(self, backup_id: str, moment: str, told: str) -> None:
        """And nothing has changed."""
        before = self._engine
        answer = self.restore(backup_id, moment)
        assert answer.status_code == 409, answer.text
        assert told in answer.json()["detail"], answer.text
        assert self._engine == before, "its engine ran on"
        assert left_beside(self.rig, self.instance_id) <= {"wal"}

    @property
    def _engine(self) -> tuple[str, str | None]:
        seen = self.rig.observe(self.instance_id)
        return seen["status"], seen["started_at"]

    @property
    def stored(self) -> list[Path]:
        """The archived WAL in the store, without histories; of all chains, oldest first."""
        store = self.rig.settings.get("backup_store_url", (self.rig.home / "backups").as_uri())
        folder = Path(store.removeprefix("file://")) / self.instance_id / "wal"
        found = (path for path in folder.rglob("*") if path.is_file())
        return sorted(path for path in found if path.suffix != ".history")


def mysql_session(one: Archived) -> Any:
    login = one.login
    return pymysql.connect(
        unix_socket=str(one.site.socket),
        user=login.username,
        password=login.password,
        database="app",
        autocommit=True,
        charset="utf8mb4",
    )


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
