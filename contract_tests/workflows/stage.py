"""A control plane without its API: a database, a fake cell, and a hand that turns the worker."""

import time
from pathlib import Path
from typing import Any, cast

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import select

from contract_tests.name_server import NOBODY
from contract_tests.oidc_issuer import LoopbackIssuers
from contract_tests.workflows.fake_cell import FakeCell, FakeCells
from contract_tests.workflows.known import WORK
from contract_tests.workflows.letters import Letters
from control.boundary.breaches import BreachedPasswords
from control.cells.signing import Signer
from control.sealing import Sealer
from control.services import Services
from control.settings import ControlSettings
from control.work import Operation, queue, runner
from control.workflows.instances.starting import start
from control.workflows.network.dns import DnsResolver
from storage import identifiers
from storage.access import organizations, projects
from storage.catalogue import cells
from storage.database import Database
from storage.events.events import Event
from storage.instances import instances
from storage.instances.instances import Instance
from storage.work import Work

LEASE_S = 30.0


class Killed(BaseException):
    """Stands for kill -9: nothing catches it, so nothing is cleaned up or written after it."""


class Stage:
    """One organization with one project and one cell; instances are made as tests need them."""

    def __init__(self, url: str, cell_path: Path) -> None:
        self.database = Database(url)
        self.registry = WORK
        self.cell = FakeCell(cell_path)
        self.services = make_services(self.database, self.cell)
        with self.database.write() as db:
            cells.register(
                db,
                "cell_fake",
                region="local",
                url="http+unix:///nowhere",
                public_url="https://cell.local.localhost:8443",
                instance_domain="localhost",
            )
            slug = identifiers.new("s").lower()
            self.org_id = organizations.create(db, name="Org", slug=slug, plan="free").id
            self.project_id = projects.create(db, self.org_id, name="Project", slug="p").id

    def close(self) -> None:
        self.database.dispose()

    def instance(self, status: str = "requested", **values: Any) -> Instance:
        """An instance in that status, which its cell knows unless it is still requested."""
        chosen: dict[str, Any] = {
            "desired_status": _desired(status),
            "credentials_generation": 0 if status == "requested" else 1,
            **values,
        }
        instance_id = identifiers.new("inst_")
        host = f"duckdb-{instance_id[5:].lower()}.local.localhost"
        with self.database.write() as db:
            engine = {"engine": "duckdb", "engine_version": "1.5", "size": "f0"}
            instance = Instance(
                id=instance_id,
                org_id=self.org_id,
                project_id=self.project_id,
                name=instance_id,
                region="local",
                storage_bytes=10**9,
                status=status,
                host=host,
                port=8443,
                cell_id="cell_fake",
                **{**engine, **chosen},
            )
            db.add(instance)
        if status != "requested":
            asleep = status in {"paused", "resuming"}
            paused_by = "request" if asleep else None
            running = "paused" if asleep else "running"
            self.cell.becomes(instance_id, status=running, paused_by=paused_by)
        return instance

    def start(self, kind: str, instance: Instance) -> None:
        with self.database.write() as db:
            start(db, self.registry.workflows[kind], instance)

    def fetch(self, instance: Instance) -> Instance:
        with self.database.read() as db:
            return instances.fetch(db, self.org_id, instance.id)

    def events(self, instance: Instance) -> list[Event]:
        """But for those that tell of alerts, which have tests of their own."""
        rows = select(Event).where(Event.instance_id == instance.id).order_by(Event.id)
        rows = rows.where(Event.type.not_like("alert.%"))
        with self.database.read() as db:
            return list(db.scalars(rows))

    def kinds_of_events(self, instance: Instance) -> list[str]:
        return [event.type for event in self.events(instance)]

    def open_work(self) -> list[Work]:
        with self.database.read() as db:
            return list(db.scalars(select(Work).where(Work.due.is_not(None))))

    def turn(self, make: type[Operation] = Operation) -> bool:
        """Run the next due operation once; False when none is due."""
        claim = queue.claim(self.database, self.registry.deadlines, LEASE_S)
        if claim is None:
            return False
        runner.run(make(claim.work, self.services), claim, self.registry.workflows[claim.work.kind])
        return True

    def settle(self, make: type[Operation] = Operation, turns_max: int = 200) -> None:
        """Run everything to its end; where it must wait, the database's clock is moved on."""
        for _ in range(turns_max):
            if not self.turn(make):
                wait_s = queue.next_due_s(self.database, self.registry.workflows)
                if wait_s is None:
                    return
                self.pass_time(wait_s + 0.01)
        raise AssertionError(f"work does not end: {[w.error for w in self.open_work()]}")

    def pass_time(self, seconds: float) -> None:
        self.database.clock_offset += type(self.database.clock_offset)(seconds=max(seconds, 0))


def make_services(database: Database, cell: FakeCell) -> Services:
    return Services(
        database=database,
        sealer=Sealer(b"s" * 32),
        signer=Signer(Ed25519PrivateKey.generate(), clock=time.time),
        limiter=cast("Any", None),
        settings=ControlSettings(cursor_key=b"k" * 32),
        cells=FakeCells(cell),
        resolver=DnsResolver([NOBODY]),
        issuers=LoopbackIssuers(),
        mailer=Letters(),
        breaches=BreachedPasswords(),
    )


def _desired(status: str) -> str:
    return {
        "pausing": "paused",
        "paused": "paused",
        "deleting": "deleted",
        "deleted": "deleted",
        "erasing": "erased",
        "erased": "erased",
    }.get(status, "running")
