"""A whole small API around the boundary, in this process: people, keys, and a client."""

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any, cast

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from contract_tests import written
from contract_tests.boundary.document import document
from contract_tests.name_server import NOBODY
from control.boundary import identity, make_boundary
from control.boundary.breaches import BreachedPasswords
from control.boundary.rates import Limiter, make_limiter
from control.cells.signing import Signer
from control.sealing import Sealer
from control.services import Services
from control.settings import ControlSettings
from control.workflows.network.dns import DnsResolver
from specserver import App, Document
from storage import identifiers
from storage.access import memberships, organizations, users
from storage.access.api_keys import ApiKey
from storage.access.sessions import UserSession
from storage.database import Database

HANDLERS = "contract_tests.boundary.handlers"


@dataclass(frozen=True)
class Person:
    """A user with a session; `session` is its token."""

    id: str
    session: str


class SmallApi:
    """The API, its database, and requests to it. `close` it at the end."""

    def __init__(
        self,
        url: str,
        *,
        limiter: Limiter | None = None,
        clock_offset_s: float = 0,
        **settings: Any,
    ) -> None:
        self.database = Database(url, clock_offset_s=clock_offset_s)
        chosen = ControlSettings(
            cursor_key=b"k" * 32, rate_limits=False, audit_refusals=False, strict=True
        )
        self.settings = replace(chosen, **settings)
        self.services = Services(
            database=self.database,
            sealer=Sealer(b"s" * 32),
            signer=Signer(Ed25519PrivateKey.generate(), clock=time.time),
            limiter=limiter or make_limiter("memory", self.settings, self.database),
            settings=self.settings,
            cells=cast("Any", None),
            resolver=DnsResolver([NOBODY]),
            issuers=cast("Any", None),
            providers=cast("Any", None),
            mailer=cast("Any", None),
            breaches=BreachedPasswords(),
        )
        self.boundary = make_boundary(self.services)
        # The test of the rules holds the document to OpenAPI, once and not for each of these.
        self.app = App(_loaded(), handlers=HANDLERS, boundary=self.boundary)
        self._loop = asyncio.Runner()

    def close(self) -> None:
        self.boundary.last_used.flush()
        self.boundary.refusals.flush()
        self._loop.close()
        self.app.threads.stop()
        self.database.dispose()

    # People and keys.

    def person(self, *, mfa_at: datetime | None = None) -> Person:
        with self.database.write() as db:
            email = f"{os.urandom(6).hex()}@example.org"
            user = users.create(db, email=email, name="Somebody")
        return Person(user.id, self.session(user.id, mfa_at=mfa_at))

    def session(
        self, user_id: str, *, mfa_at: datetime | None = None, ttl: timedelta = timedelta(days=1)
    ) -> str:
        token = identity.new_session_token()
        with self.database.write() as db:
            db.add(
                UserSession(
                    id=identifiers.new("ses_"),
                    user_id=user_id,
                    token_hash=token.sha256,
                    prefix=token.prefix,
                    expires_at=self.database.now(db) + ttl,
                    mfa_at=mfa_at,
                )
            )
        return token.secret

    def org(self, *members: tuple[Person, str], **columns: Any) -> str:
        with self.database.write() as db:
            org = organizations.create(db, name="Org", slug=os.urandom(6).hex(), plan="team")
            for name, value in columns.items():
                setattr(org, name, value)
            for person, role in members:
                memberships.create(db, org.id, person.id, role)
            return org.id

    def key(
        self, org_id: str, owner: Person, role: str = "owner", scopes: list[str] | None = None
    ) -> str:
        token = identity.new_api_key()
        with self.database.write() as db:
            db.add(
                ApiKey(
                    id=identifiers.new("key_"),
                    org_id=org_id,
                    name="a key",
                    role=role,
                    scopes=scopes,
                    created_by=owner.id,
                    prefix=token.prefix,
                    token_hash=token.sha256,
                )
            )
        return token.secret

    def change_key(self, secret: str, **columns: Any) -> None:
        with self.database.write() as db:
            key = written.key_with(db, identity.token_sha256(secret))
            for name, value in columns.items():
                setattr(key, name, value)

    def set_role(self, org_id: str, person: Person, role: str | None) -> None:
        """None removes the member."""
        with self.database.write() as db:
            membership = memberships.find(db, org_id, person.id)
            if role is None:
                db.delete(membership)
            elif membership is None:
                memberships.create(db, org_id, person.id, role)
            else:
                membership.role = role

    def now(self) -> datetime:
        with self.database.read() as db:
            return self.database.now(db)

    # Requests.

    def get(self, path: str, token: str | None = None, **options: Any) -> httpx.Response:
        return self.together([("GET", path, token, options)])[0]

    def post(self, path: str, token: str | None = None, **options: Any) -> httpx.Response:
        return self.together([("POST", path, token, options)])[0]

    def together(
        self, requests: Iterable[tuple[str, str, str | None, dict[str, Any]]]
    ) -> list[httpx.Response]:
        """All at once; the answers in the order of the requests."""
        return self._loop.run(self._together(list(requests)))

    async def _together(
        self, requests: list[tuple[str, str, str | None, dict[str, Any]]]
    ) -> list[httpx.Response]:
        return await asyncio.gather(*(self._one(*request) for request in requests))

    async def _one(
        self, method: str, path: str, token: str | None, options: dict[str, Any]
    ) -> httpx.Response:
        headers = dict(options.get("headers", {}))
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        peer = options.get("peer", "203.0.113.7")
        transport = httpx.ASGITransport(self.app, client=(peer, 1), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
            rest = {name: options[name] for name in options if name not in ("headers", "peer")}
            return await client.request(method, path, headers=headers, **rest)


@cache
def _loaded() -> Document:
    return Document.load(document(), checked=True)


MakeSmallApi = Callable[..., SmallApi]
