"""A cell without engines: the semantics of the cell API on a small file, shared by processes."""

import hashlib
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
from sqlalchemy.orm import Session
from ulid import ULID

from contract_tests.workflows import (
    fake_backups,
    fake_migrations,
    fake_observations,
    fake_queues,
)
from contract_tests.workflows.fake_egress import FakeEgress
from contract_tests.workflows.fake_migrations import FakeMigrations
from contract_tests.workflows.fake_queues import FakeQueues
from control.cells.answer_checks import Answer, Observations
from control.cells.client import CellClient, CellRefused, InstanceUnknown
from storage.catalogue.cells import Cell
from storage.instances.instances import Instance

SCHEMA = """
CREATE TABLE IF NOT EXISTS instances (id TEXT PRIMARY KEY, observation TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, answer TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS leases (operation TEXT PRIMARY KEY, lease INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS effects (action TEXT NOT NULL, instance_id TEXT NOT NULL);
"""
Hook = Callable[[str, str], None]
PEM = "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n"
USED = ("instance_id", "storage_bytes", "memory_bytes", "connections", "cpu_s")


class FakeCell(FakeEgress):
    """Answers as a cell does: an operation's key once and for all, older leases not at all.

    `before` and `after` are called around every act with (action, instance_id) and may raise:
    before, nothing has happened yet; after, it has, and the answer is lost on its way.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.clock_off_s = 0.0
        self.has_second_store = True
        self.ended_urls: set[str] = set()
        self.after: Hook = nothing
        with self._open() as file:
            for schema in (SCHEMA, fake_queues.SCHEMA, fake_backups.SCHEMA, fake_migrations.SCHEMA):
                file.executescript(schema)

    # What the control plane asks.

    def describe(self) -> Answer:
        return {
            "cell_id": "cell_fake",
            "region": "local",
            "instance_domain": "localhost",
            "public_host": "cell.local.localhost",
            "ports": {"https": 8443, "postgres": 15432, "mysql": 13306, "resp": 16379},
            "engines": [{"engine": "duckdb", "versions": ["1.5"], "source": "fake"}],
            "refused": [{"engine": "redis", "reason": "not there", "remedy": "install it"}],
            "clock": {"host_time": time.time() + self.clock_off_s, "offset_s": 0.0},
            "capacity": {"vcpu": 64, "memory_bytes": 2**38, "storage_bytes": 10**14},
            "has_second_store": self.has_second_store,
            "ca": {"root_pem": PEM, "chain_pem": PEM},
        }

    def observations(self) -> Observations:
        with self._open() as file:
            rows = file.execute("SELECT observation FROM instances ORDER BY id").fetchall()
        return Observations(orjson.loads(row[0]) for row in rows)

    def observe(self, instance_id: str) -> Answer | None:
        with self._open() as file:
            return fake_observations.read(file, instance_id)

    def capacity(self, instance_id: str) -> Answer:
        observed = self.observe(instance_id)
        if observed is None:
            raise InstanceUnknown(f"instance {instance_id} is not here")
        limits = dict.fromkeys(("storage_limit_bytes", "memory_limit_bytes", "connections_max"), 1)
        return {name: observed[name] for name in USED} | limits

    def put(self, instance_id: str, spec: Mapping[str, Any], *, key: str, lease: int) -> Answer:
        source = spec["source_snapshot"]
        held = source is None or any(one.get("snapshot") == source for one in self.observations())
        backup = spec.get("source_backup")
        stored = backup is None or backup.rpartition("/")[2] in self.stored(
            backup.partition("/")[0]
        )

        def act(observed: Answer | None) -> Answer:
            told = {name: spec[name] for name in ("engine", "engine_version", "host")}
            networked = fake_observations.networked(
                observed or fake_observations.new(instance_id), spec
            )
            told |= networked
            told["spec"] = {
                **spec,
                **{name: networked["spec"][name] for name in fake_observations.NETWORK},
            }
            if observed is not None and observed["status"] == "erased":
                raise CellRefused("cannot put an instance that is erased")
            if observed is None and not held:
                raise CellRefused(f"the cell has no snapshot {source}")
            if observed is None and not stored:
                raise CellRefused(f"there is no backup {backup} in the store")
            if observed is not None:
                undeleted = {"status": "paused", "paused_by": "request"}
                more: Answer = undeleted if observed["status"] == "stopped" else {}
                if observed["data_lost"] and backup is not None:
                    more |= {"data_lost": False, "status": "running"}
                return {**observed, **told, **more, **fake_observations.sized(spec["size"])}
            return fake_observations.new(instance_id) | told | fake_observations.sized(spec["size"])

        return self._act("put", instance_id, act, key=key, lease=lease)

    def pause(self, instance_id: str, *, key: str, lease: int) -> Answer:
        asleep = {"status": "paused", "paused_by": "request"}
        return self._change("pause", instance_id, asleep, key, lease)

    def resume(self, instance_id: str, *, key: str, lease: int) -> Answer:
        awake = {"status": "running", "paused_by": None}
        return self._change("resume", instance_id, awake, key, lease)

    def resize(self, instance_id: str, size: Mapping[str, Any], *, key: str, lease: int) -> Answer:
        return self._change("resize", instance_id, fake_observations.sized(size), key, lease)

    def set_network(
        self, instance_id: str, network: Mapping[str, Any], *, key: str, lease: int
    ) -> Answer:
        def act(observed: Answer | None) -> Answer:
            if observed is None:
                raise InstanceUnknown(f"instance {instance_id} is not here")
            if observed["status"] == "erased":
                raise CellRefused("cannot set the network of an instance that is erased")
            return {**observed, **fake_observations.networked(observed, network)}

        return self._act("set_network", instance_id, act, key=key, lease=lease)

    def snapshot(self, instance_id: str, label: str, *, key: str, lease: int) -> Answer:
        # The same for every try of a step, as the stored answer of a cell is.
        snapshot_id = f"snap_{ULID(hashlib.blake2b(key.encode(), digest_size=16).digest())}"
        copies = {"label": label, "snapshot": f"{instance_id}/{snapshot_id}"}
        self._change("snapshot", instance_id, copies, key, lease)
        return {"snapshot_id": snapshot_id, "size_bytes": 1}

    def back_up(
        self, instance_id: str, backup_id: str, kind: str, *, key: str, lease: int
    ) -> Answer:
        engine = self.observe(instance_id) or {}
        told = fake_backups.told(backup_id, kind) | {
            name: engine[name] for name in ("engine", "engine_version") if name in engine
        }

        def act(file: sqlite3.Connection, _observed: Answer) -> Answer:
            row = (backup_id, instance_id, orjson.dumps(told).decode())
            file.execute("INSERT OR IGNORE INTO backups VALUES (?, ?, ?)", row)
            query = "SELECT told FROM backups WHERE id = ?"
            return dict(orjson.loads(file.execute(query, (backup_id,)).fetchone()[0]))

        return self._store("back_up", instance_id, act, key=key, lease=lease)

    def take_over_backups(
        self, instance_id: str, known: list[str], *, key: str, lease: int
    ) -> Answer:
        self.before("take_over_backups", instance_id)
        with self._open() as file:
            fake_observations.check_lease(file, key.rpartition(":")[0], lease)
            observed = fake_observations.read(file, instance_id)
            answer = fake_backups.taken_over(file, instance_id, observed, known, key)
        self.after("take_over_backups", instance_id)
        return answer

    def drop_backups(
        self, instance_id: str, backup_ids: list[str], *, key: str, lease: int
    ) -> Answer:
        def act(file: sqlite3.Connection, _observed: Answer) -> Answer:
            there = [each for each in backup_ids if each in fake_backups.stored(file, instance_id)]
            file.executemany("DELETE FROM backups WHERE id = ?", [(each,) for each in there])
            # What it never had is gone as well.
            return {"dropped": backup_ids}

        return self._store("drop_backups", instance_id, act, key=key, lease=lease)

    def restore(
        self, instance_id: str, backup_id: str, at: str | None = None, *, key: str, lease: int
    ) -> Answer:
        def act(file: sqlite3.Connection, observed: Answer) -> Answer:
            if backup_id not in fake_backups.stored(file, instance_id):
                raise CellRefused(f"there is no backup {backup_id} in the store")
            if at is not None and observed["engine"] == "duckdb":
                raise CellRefused("the engine of the instance has no WAL to recover from")
            came = {"restored_from": backup_id, "restored_at": at}
            restored = {**observed, "status": "running", **came}
            fake_observations.write(file, restored)
            return restored

        return self._store("restore", instance_id, act, key=key, lease=lease)

    def set_archiving(self, instance_id: str, *, wanted: bool, key: str, lease: int) -> Answer:
        told = {**fake_backups.ARCHIVING, "wanted": wanted}
        told |= {"status": "waiting" if wanted else "off"}
        return self._change("set_archiving", instance_id, {"archiving": told}, key, lease)

    def set_copying(self, instance_id: str, *, wanted: bool, key: str, lease: int) -> Answer:
        told = {**fake_backups.COPIES, "wanted": wanted}
        told |= {"status": "current" if wanted else "off"}
        return self._change("set_copying", instance_id, {"copies": told}, key, lease)

    def backup_copies(self, instance_id: str) -> Answer:
        with self._open() as file:
            observed = fake_observations.read(file, instance_id) or {}
        at = (observed.get("copies") or {}).get("newest_at")
        copied = observed.get("copied_backups", [])
        return {"items": [{"backup_id": each, "copied_at": at} for each in copied]}

    def delete(self, instance_id: str, *, key: str, lease: int) -> Answer:
        return self._change("delete", instance_id, {"status": "stopped"}, key, lease)

    def erase(self, instance_id: str, *, key: str, lease: int) -> Answer:
        answer = self._change("erase", instance_id, {"status": "erased"}, key, lease)
        with self._open() as file:
            file.execute("DELETE FROM backups WHERE instance_id = ?", (instance_id,))
        return answer

    def end_access(self, instance_id: str, holders: list[str], urls: Mapping[str, float]) -> None:
        self.before("end_access", instance_id)
        self.ended_urls |= set(urls)
        held = (self.observe(instance_id) or {}).get("access", [])
        self.becomes(instance_id, access=[each for each in held if each["holder"] not in holders])

    def queues(self, instance_id: str) -> FakeQueues:
        return FakeQueues(instance_id, self._open, self.before, self.after)

    def migrations(self, instance_id: str) -> FakeMigrations:
        return FakeMigrations(instance_id, self._open, self._once)

    # What tests do to it, and ask of it.

    def becomes(self, instance_id: str, **observed: Any) -> None:
        """Something happens in the cell by itself."""
        with self._open() as file:
            known = fake_observations.read(file, instance_id) or fake_observations.new(instance_id)
            fake_observations.write(file, {**known, **observed})

    def forget(self, instance_id: str) -> None:
        with self._open() as file:
            file.execute("DELETE FROM instances WHERE id = ?", (instance_id,))

    def told(self, instance_id: str) -> dict[str, Any]:
        """What was last declared of the instance."""
        with self._open() as file:
            observed = fake_observations.read(file, instance_id)
        assert observed is not None
        return dict(observed["spec"])

    def effects(self, instance_id: str | None = None) -> list[str]:
        """Every act that had an effect, in order, as its action."""
        query = "SELECT action FROM effects WHERE ? IN (instance_id, '') ORDER BY rowid"
        with self._open() as file:
            return [row[0] for row in file.execute(query, (instance_id or "",)).fetchall()]

    def holds(self, instance_id: str, backup_id: str, kind: str, at: datetime) -> Answer:
        """A backup that was made before; as the cell told of it then."""
        moment = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        told = fake_backups.told(backup_id, kind) | {"started_at": moment, "completed_at": moment}
        with self._open() as file:
            row = (backup_id, instance_id, orjson.dumps(told).decode())
            file.execute("INSERT INTO backups VALUES (?, ?, ?)", row)
        return told

    def stored(self, instance_id: str) -> list[str]:
        """The ids of the instance's backups that are in the store."""
        with self._open() as file:
            return fake_backups.stored(file, instance_id)

    def _store(
        self,
        action: str,
        instance_id: str,
        act: Callable[[sqlite3.Connection, Answer], Answer],
        *,
        key: str,
        lease: int,
    ) -> Answer:
        """An act on the store. The instance may be stopped, and not erased."""

        def do(file: sqlite3.Connection) -> Answer:
            observed = fake_observations.read(file, instance_id)
            if observed is None:
                raise InstanceUnknown(f"instance {instance_id} is not here")
            if observed["status"] == "erased":
                raise CellRefused(f"cannot {action} an instance that is erased")
            return act(file, observed)

        return self._once(action, instance_id, do, key=key, lease=lease)

    def _change(
        self, action: str, instance_id: str, values: Mapping[str, Any], key: str, lease: int
    ) -> Answer:
        def act(observed: Answer | None) -> Answer:
            if observed is None:
                raise InstanceUnknown(f"instance {instance_id} is not here")
            if observed["status"] == "erased" and action != "erase":
                raise CellRefused(f"cannot {action} an instance that is erased")
            return {**observed, **values}

        return self._act(action, instance_id, act, key=key, lease=lease)

    def _act(
        self,
        action: str,
        instance_id: str,
        act: Callable[[Answer | None], Answer],
        *,
        key: str,
        lease: int,
    ) -> Answer:
        def do(file: sqlite3.Connection) -> Answer:
            observation = act(fake_observations.read(file, instance_id))
            fake_observations.write(file, observation)
            return observation

        return self._once(action, instance_id, do, key=key, lease=lease)

    def _once(
        self,
        action: str,
        instance_id: str,
        do: Callable[[sqlite3.Connection], Answer],
        *,
        key: str,
        lease: int,
    ) -> Answer:
        """What was answered to that key before is answered again."""
        self.before(action, instance_id)
        with self._open() as file:
            fake_observations.check_lease(file, key.rpartition(":")[0], lease)
            answered = file.execute("SELECT answer FROM answers WHERE key = ?", (key,)).fetchone()
            if answered is not None:
                return dict(orjson.loads(answered[0]))
            answer = do(file)
            file.execute("INSERT INTO answers VALUES (?, ?)", (key, orjson.dumps(answer).decode()))
            file.execute("INSERT INTO effects VALUES (?, ?)", (action, instance_id))
        self.after(action, instance_id)
        return answer

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A transaction that no other call, of any process, is in at the same time."""
        with closing(sqlite3.connect(self._path, isolation_level=None, timeout=30)) as file:
            file.execute("PRAGMA synchronous=OFF")
            file.execute("BEGIN IMMEDIATE")
            try:
                yield file
            except BaseException:
                if file.in_transaction:
                    file.execute("ROLLBACK")
                raise
            if file.in_transaction:
                file.execute("COMMIT")


class FakeCells:
    """Every cell is the same fake one."""

    def __init__(self, cell: FakeCell) -> None:
        self.cell = cell

    def for_instance(self, db: Session, instance: Instance) -> CellClient:  # noqa: ARG002 - there is one
        return self.cell

    def for_cell(self, cell: Cell) -> CellClient:  # noqa: ARG002 - there is one
        return self.cell


def nothing(_action: str, _instance_id: str) -> None:
    """The hook of a cell that works."""
