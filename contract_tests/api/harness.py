"""The whole control plane in this process: real boundary, real database, and a fake cell."""

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Self

import httpx
from argon2 import PasswordHasher
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import update

from contract_tests.api.oracle import Oracle, OracleTransport, document, scim_document
from contract_tests.name_server import NameServer
from contract_tests.oidc_issuer import LoopbackIssuers, OidcIssuer
from contract_tests.sso_provider import LoopbackProviders
from contract_tests.workflows.fake_cell import FakeCell, FakeCells
from contract_tests.workflows.known import WORK
from contract_tests.workflows.letters import Letters
from control.boundary import identity
from control.boundary.breaches import BreachedPasswords
from control.boundary.rates import make_limiter
from control.cells.signing import Signer
from control.sealing import Sealer
from control.services import Services
from control.settings import ControlSettings
from control.work import Operation, queue, runner
from control.workflows.network.dns import DnsResolver
from menagerie.composition import build_app
from menagerie.settings import Settings
from storage import identifiers
from storage.access import api_keys, memberships, organizations, projects, users
from storage.access.api_keys import ApiKey
from storage.access.sessions import UserSession
from storage.catalogue import cells
from storage.database import Database
from storage.work import Work

CELL_ID = "cell_01JD7QK3V8Y2M4N6P8R0S2T4V6"
PASSWORD = "correct-horse-battery"
# Hashing takes 20 ms by design, which no test here is about.
identity._passwords = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
_PASSWORD_HASH = identity.hash_password(PASSWORD)
_CERTIFICATE = "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n"
_LEASE_S = 30.0


@dataclass(frozen=True)
class Person:
    """A user with a session. `email` and PASSWORD sign in."""

    id: str
    email: str
    session: str


@dataclass(frozen=True)
class Tenant:
    """An organization with an owner, a key of the owner's role and a project."""

    org_id: str
    owner: Person
    key: str
    key_id: str
    project_id: str

    @property
    def path(self) -> str:
        return f"/v1/orgs/{self.org_id}"


class House:
    """The API over one database; several houses on one database are replicas. `close` it.

    A stream of events ends soon, so that the tests of every operation can read it to its end.
    """

    def __init__(
        self,
        url: str,
        directory: Path,
        *,
        oracle: Oracle | None = None,
        stream_ttl_s: float = 0.2,
    ) -> None:
        self.database = Database(url)
        self.cell = FakeCell(directory / "cell.db")
        self.names = NameServer()
        self.issuer = OidcIssuer()
        self.letters = Letters()
        settings = ControlSettings(
            cursor_key=b"k" * 32,
            rate_limits=False,
            audit_refusals=False,
            strict=True,
            stream_ttl_s=stream_ttl_s,
            # That of the document's examples, too.
            oidc_issuers=("https://token.actions.githubusercontent.com", self.issuer.url),
        )
        self.services = Services(
            database=self.database,
            sealer=Sealer(b"s" * 32),
            signer=Signer(Ed25519PrivateKey.from_private_bytes(b"p" * 32), clock=time.time),
            limiter=make_limiter("memory", settings, self.database),
            settings=settings,
            cells=FakeCells(self.cell),
            resolver=DnsResolver([self.names.address]),
            issuers=LoopbackIssuers(),
            providers=LoopbackProviders(),
            mailer=self.letters,
            breaches=BreachedPasswords(),
        )
        self.app = build_app(
            _settings(directory),
            self.services,
            document=document(),
            scim_document=scim_document(),
        )
        self.oracle = oracle or Oracle()
        self._loop = asyncio.Runner()
        self._register_cell()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        self._loop.close()
        self.names.close()
        self.issuer.close()
        self.app.threads.stop()
        self.database.dispose()

    # Requests.

    def request(
        self, method: str, path: str, token: str | None = None, **options: Any
    ) -> httpx.Response:
        return self._loop.run(self._request(method, path, token, options))

    def get(self, path: str, token: str | None = None, **options: Any) -> httpx.Response:
        return self.request("GET", path, token, **options)

    def post(self, path: str, token: str | None = None, **options: Any) -> httpx.Response:
        return self.request("POST", path, token, **options)

    def during(self, act: Callable[[], None], *asked: Any, **options: Any) -> httpx.Response:
        """A request during which `act` happens, on another thread, once it is under way."""
        method, path, token = asked

        async def both() -> httpx.Response:
            request = asyncio.create_task(self._request(method, path, token, options))
            await asyncio.sleep(0.05)
            await asyncio.to_thread(act)
            return await request

        return self._loop.run(both())

    def together(self, *requests: tuple[Any, ...]) -> list[httpx.Response]:
        """Requests at once, each (method, path, token, options); answers in their order."""

        async def all_of_them() -> list[httpx.Response]:
            return await asyncio.gather(*(self._request(*one) for one in requests))

        return self._loop.run(all_of_them())

    async def _request(
        self, method: str, path: str, token: str | None, options: dict[str, Any]
    ) -> httpx.Response:
        headers = dict(options.pop("headers", {}))
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        address = options.pop("address", "203.0.113.7")
        inner = httpx.ASGITransport(self.app, client=(address, 1))
        transport = OracleTransport(inner, self.oracle)
        async with httpx.AsyncClient(transport=transport, base_url="http://house") as client:
            return await client.request(method, path, headers=headers, **options)

    # People, organizations and what they have.

    def person(self, name: str = "Somebody", *, mfa: bool = False) -> Person:
        email = f"{os.urandom(8).hex()}@example.org"
        with self.database.write() as db:
            user = users.create(db, email=email, name=name, password_hash=_PASSWORD_HASH)
        return Person(user.id, email, self.session(user.id, mfa=mfa))

    def session(self, user_id: str, *, mfa: bool = False) -> str:
        token = identity.new_session_token()
        with self.database.write() as db:
            now = self.database.now(db)
            db.add(
                UserSession(
                    id=identifiers.new("ses_"),
                    user_id=user_id,
                    token_hash=token.sha256,
                    prefix=token.prefix,
                    expires_at=now + timedelta(days=1),
                    mfa_at=now if mfa else None,
                    # Tests move the house's clock on, which a default would not follow.
                    created_at=now,
                )
            )
        return token.secret

    def tenant(
        self, name: str = "Org", *, plan: str = "team", owner: Person | None = None
    ) -> Tenant:
        owner = owner or self.person(name)
        with self.database.write() as db:
            org = organizations.create(
                db, name=name, slug=os.urandom(8).hex(), plan=plan, default_region="local"
            )
            memberships.create(db, org.id, owner.id, "owner")
            project = projects.create(db, org.id, name=name, slug="default")
        key, key_id = self.key(org.id, owner, "owner", name=name)
        return Tenant(org.id, owner, key, key_id, project.id)

    def member(self, org_id: str, role: str, *, mfa: bool = False) -> Person:
        person = self.person(role, mfa=mfa)
        with self.database.write() as db:
            memberships.create(db, org_id, person.id, role)
        return person

    def key(
        self,
        org_id: str,
        owner: Person,
        role: str,
        *,
        name: str = "key",
        scopes: list[str] | None = None,
    ) -> tuple[str, str]:
        """The secret and the id."""
        token, key_id = identity.new_api_key(), identifiers.new("key_")
        with self.database.write() as db:
            db.add(
                ApiKey(
                    id=key_id,
                    org_id=org_id,
                    name=name,
                    role=role,
                    scopes=scopes,
                    created_by=owner.id,
                    prefix=token.prefix,
                    token_hash=token.sha256,
                )
            )
        return token.secret, key_id

    def change_key(self, org_id: str, key_id: str, **columns: Any) -> None:
        with self.database.write() as db:
            key = api_keys.fetch(db, org_id, key_id)
            for name, value in columns.items():
                setattr(key, name, value)

    def change_org(self, org_id: str, **columns: Any) -> None:
        with self.database.write() as db:
            org = organizations.fetch(db, org_id)
            for name, value in columns.items():
                setattr(org, name, value)

    def instance(self, tenant: Tenant, *, running: bool = True, **body: Any) -> str:
        """The id of an instance ordered through the API."""
        path = f"{tenant.path}/projects/{tenant.project_id}/instances"
        ordered = self.post(path, tenant.key, json={"engine": "duckdb", "size": "f0", **body})
        assert ordered.status_code == 201, ordered.text
        if running:
            self.settle()
        return str(ordered.json()["id"])

    # What happens behind the API.

    def settle(self, turns_max: int = 200) -> None:
        """Run all work to its end; where it must wait, the database's clock is moved on."""
        self.turns(turns_max)
        assert queue.next_due_s(self.database, WORK.workflows) is None, "work does not end"

    def turns(self, count: int) -> None:
        """So many turns of a worker, or as many as there is work for."""
        for _ in range(count):
            claim = queue.claim(self.database, WORK.deadlines, _LEASE_S)
            if claim is not None:
                found = WORK.workflows[claim.work.kind]
                runner.run(Operation(claim.work, self.services), claim, found)
                continue
            wait_s = queue.next_due_s(self.database, WORK.workflows)
            if wait_s is None:
                return
            self.pass_time(wait_s + 0.01)

    def drop_work(self) -> None:
        """Nobody waits for it any more: what a file of tests has left may be due in days."""
        with self.database.write() as db:
            db.execute(update(Work).where(Work.due.is_not(None)).values(due=None, state="failed"))

    def pass_time(self, seconds: float) -> None:
        self.database.clock_offset += timedelta(seconds=max(seconds, 0))

    def set_clock_right(self) -> None:
        """Records are dated by the database itself, whose clock tests do not move."""
        self.database.clock_offset = timedelta()

    def now(self) -> datetime:
        with self.database.read() as db:
            return self.database.now(db)

    def has_second_store(self, answer: bool) -> None:
        """As its cell says of itself."""
        self.cell.has_second_store = answer
        with self.database.write() as db:
            cells.fetch(db, CELL_ID).has_second_store = answer

    def _register_cell(self) -> None:
        with self.database.write() as db:
            cell = cells.register(
                db,
                CELL_ID,
                region="local",
                url="http+unix:///nowhere",
                public_url="https://cell.local.localhost:8443",
                instance_domain="localhost",
            )
            cell.ports = {"https": 8443}
            cell.engines = [{"engine": "duckdb", "versions": ["1.5"], "source": "fake"}]
            cell.ca_root_pem = _CERTIFICATE.format("cm9vdA==")
            cell.ca_chain_pem = _CERTIFICATE.format("aW50ZXJtZWRpYXRl")
            cell.last_seen_at = self.database.now(db)
            # What a worker leaves that keeps the schedules.
            turn = {"schedule": "cells", "slot": self.database.now(db), "state": "done"}
            operation = identifiers.new("op_")
            db.add(Work(operation=operation, kind="cells.refresh", lane="cells", **turn))


def _settings(directory: Path) -> Settings:
    chosen: dict[str, Any] = {"home": directory, "dev": True}
    return Settings(**chosen)
