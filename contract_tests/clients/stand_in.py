"""A small service for the clients' tests: real sockets and real TLS, and faults on demand.

It serves the real openapi.yaml, keeps a few resources in memory, and answers SQL with a real
DuckDB, so that what a client sends and reads is what it would send and read anywhere. Scripted
answers come first; they make the faults that a healthy control plane does not have.
"""

import base64
import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import duckdb

from contract_tests.clients.servers import Authority, Scripted, Seen, Server, new_id, problem
from menagerie import contract

ROOT: Final = Path(__file__).parent.parent.parent


@functools.cache
def openapi() -> dict[str, Any]:
    """The real document, as a server shows it, read once for all tests; not to be changed."""
    return contract.public()


@functools.cache
def _openapi_text() -> str:
    return json.dumps(openapi())


class Cell(Server):
    """The cell's public half and its instances' endpoints, on one TLS port."""

    def __init__(self, authority: Authority) -> None:
        super().__init__(authority.context)
        self.passwords: dict[str, str] = {}
        self.burned: set[str] = set()
        self.engine_log = "engine started\nready\n"
        self._databases: dict[str, duckdb.DuckDBPyConnection] = {}

    def url(self, action: str, instance: Mapping[str, Any]) -> str:
        return (
            f"https://cell.local.localhost:{self.port}/v1/{action}/{instance['id']}.{new_id('jti')}"
        )

    def routes(self, seen: Seen) -> Scripted:
        host = seen.headers["Host"].partition(":")[0]
        if host == "cell.local.localhost":
            return self._once(seen)
        return self._query(host, seen)

    def _once(self, seen: Seen) -> Scripted:
        _, _, action, token = seen.path.split("/")
        if token in self.burned:
            return problem(410, "Gone", "the URL was used")
        self.burned.add(token)
        instance_id = token.partition(".")[0]
        if action == "logs":
            return 200, {"Content-Type": "text/plain"}, self.engine_log
        host = host_of(instance_id)
        if action == "rotate" or host not in self.passwords:
            self.passwords[host] = f"secret-{new_id('pw')}"
        password = self.passwords[host]
        uri = f"https://app:{password}@{host}:{self.port}"
        credential = {
            "username": "app",
            "password": password,
            "host": host,
            "port": self.port,
            "uri": uri,
        }
        return (
            200,
            {},
            credential
            | ({"overlap_until": "2030-01-01T00:00:00.000Z"} if action == "rotate" else {}),
        )

    def _query(self, host: str, seen: Seen) -> Scripted:
        given = base64.b64decode((seen.token or "Basic ").partition(" ")[2]).decode()
        if given != f"app:{self.passwords.get(host)}":
            return 401, {}, {"error": "wrong credentials"}
        database = self._databases.setdefault(host, duckdb.connect())
        try:
            cursor = database.execute(seen.body["sql"], seen.body.get("params"))
            rows = [list(row) for row in cursor.fetchall()]
            columns = [column[0] for column in cursor.description or ()]
        except duckdb.Error as error:
            return 400, {}, {"error": str(error)}
        if columns in ([], ["Count"]):
            changed = rows[0][0] if rows else 0
            return (
                200,
                {},
                {
                    "columns": [],
                    "rows": [],
                    "row_count": changed,
                    "truncated": False,
                    "elapsed_ms": 0.1,
                },
            )
        answer = {
            "columns": columns,
            "rows": rows,
            "row_count": len(rows),
            "truncated": False,
            "elapsed_ms": 0.4,
        }
        return 200, {}, json.dumps(answer, default=str)


def host_of(instance_id: str) -> str:
    return f"duckdb-{instance_id.partition('_')[2].lower()}.local.localhost"


@dataclass
class World:
    """What the stand-in control plane knows."""

    org_id: str = field(default_factory=lambda: new_id("org"))
    project_id: str = field(default_factory=lambda: new_id("proj"))
    api_key: str = "mk_live_4fJk2LmQzW8sXcVbNhGtRyUe3dFp"
    session_token: str = "ms_4fJk2LmQzW8sXcVbNhGtRyUe3dFpAo5"
    instances: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, name: str, **members: Any) -> dict[str, Any]:
        instance_id = new_id("inst")
        instance = {
            "id": instance_id, "name": name, "project_id": self.project_id, "engine": "duckdb",
            "size": "f0", "region": "local", "status": "running", "status_reason": None,
            "desired_status": "running", "host": host_of(instance_id), "port": 8443,
            "storage_bytes": 1_000_000_000, "created_at": "2026-11-21T09:00:00.000Z",
            "purge_after": None,
        }  # fmt: skip
        self.instances[instance_id] = instance | members
        return self.instances[instance_id]


class ControlPlane(Server):
    """The control plane, as far as the clients' tests go."""

    def __init__(self, cell: Cell, ca_pem: str) -> None:
        self.world = World()
        self.cell = cell
        self.ca_pem = ca_pem
        self.etag = '"one"'
        self.next_status = {
            "requested": "provisioning",
            "provisioning": "running",
            "pausing": "paused",
        }
        super().__init__()

    @functools.cached_property
    def document(self) -> dict[str, Any]:
        """Its own, which a test may change. Most only have it sent, as it is."""
        return dict(json.loads(_openapi_text()))

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def routes(self, seen: Seen) -> Scripted:
        if seen.path == "/openapi.json":
            unchanged = seen.headers.get("If-None-Match") == self.etag
            if unchanged:
                return 304, {"ETag": self.etag}, None
            is_own = "document" in self.__dict__
            return 200, {"ETag": self.etag}, self.document if is_own else _openapi_text()
        for (method, pattern), answer in ROUTES.items():
            found = re.fullmatch(pattern, seen.path)
            if found and method == seen.method:
                return answer(self, seen, **found.groupdict())
        return problem(404, "Not Found", f"nothing at {seen.path}")

    def instance(self, instance_id: str) -> dict[str, Any] | None:
        return self.world.instances.get(instance_id)


NOT_FOUND: Final = problem(404, "Not Found", "there is no such instance", code="not_found")
ORG: Final = r"/v1/orgs/(?P<org>org_\w+)"
INSTANCE: Final = ORG + r"/instances/(?P<inst>\w+)"


def _list(plane: ControlPlane, seen: Seen, **_: str) -> Scripted:
    size, start = int(seen.query.get("limit", 50)), int(seen.query.get("cursor", 0))
    name = seen.query.get("name")
    deleted = seen.query.get("status") == "deleted"
    found = [
        one
        for one in plane.world.instances.values()
        if name in (None, one["name"]) and deleted == (one["status"] == "deleted")
    ]
    after = start + size
    return (
        200,
        {},
        {"items": found[start:after], "next_cursor": str(after) if after < len(found) else None},
    )


def _create(plane: ControlPlane, seen: Seen, **_: str) -> Scripted:
    name = seen.body.get("name", "made-up")
    made = plane.world.add(**{**seen.body, "name": name, "status": "requested"})
    return 201, {}, dict(made)


def _get(plane: ControlPlane, seen: Seen, inst: str, **_: str) -> Scripted:
    found = plane.instance(inst)
    if found is None:
        return NOT_FOUND
    if "wait_for" in seen.query:
        found["status"] = plane.next_status.get(found["status"], found["status"])
    return 200, {}, dict(found)


def _change(status: str, desired: str) -> Callable[..., Scripted]:
    def answer(plane: ControlPlane, seen: Seen, inst: str, **_: str) -> Scripted:
        found = plane.instance(inst)
        if found is None:
            return NOT_FOUND
        if found["status"] != "running":
            return problem(409, "Conflict", f"cannot pause an instance that is {found['status']}")
        found |= {"status": status, "desired_status": desired, **(seen.body or {})}
        return 202, {}, dict(found)

    return answer


def _once(action: str) -> Callable[..., Scripted]:
    def answer(plane: ControlPlane, seen: Seen, inst: str, **_: str) -> Scripted:
        found = plane.instance(inst)
        if found is None:
            return NOT_FOUND
        return (
            200,
            {},
            {
                "url": plane.cell.url(action, found),
                "method": "GET",
                "expires_at": "2030-01-01T00:00:00.000Z",
            },
        )

    return answer


def _pem(plane: ControlPlane, seen: Seen, **_: str) -> Scripted:
    return 200, {"Content-Type": "application/x-pem-file"}, plane.ca_pem


def _sign_in(plane: ControlPlane, seen: Seen) -> Scripted:
    if seen.body.get("password") != "correct-horse":
        return problem(401, "Unauthorized", "the address, the password or the code is wrong")
    token = "ms_fresh" + ("_mfa" if seen.body.get("totp_code") else "")
    return 201, {}, {"id": new_id("ses"), "token": token, "expires_at": "2030-01-01T00:00:00.000Z"}


def _projects(plane: ControlPlane, seen: Seen, **_: str) -> Scripted:
    items = [
        {
            "created_at": "2026-11-21T09:00:00.000Z",
            "id": plane.world.project_id,
            "name": "main-project",
            "slug": "main",
        }
    ]
    return 200, {}, {"items": items, "next_cursor": None}


def _orgs(plane: ControlPlane, seen: Seen, **_: str) -> Scripted:
    return 200, {}, [{"id": plane.world.org_id, "name": "Acme", "slug": "acme", "role": "owner"}]


def _engines(plane: ControlPlane, seen: Seen) -> Scripted:
    missing = "no cell of this installation has a runtime for PostgreSQL"
    return (
        200,
        {},
        [
            {"id": "duckdb", "availability": "available", "reason": None},
            {"id": "postgres", "availability": "coming_soon", "reason": missing},
        ],
    )


ROUTES: Final[dict[tuple[str, str], Callable[..., Scripted]]] = {
    ("GET", r"/v1/engines"): _engines,
    ("GET", r"/v1/orgs"): _orgs,
    ("GET", ORG + r"/projects"): _projects,
    ("GET", ORG + r"/instances"): _list,
    ("POST", ORG + r"/projects/(?P<project>proj_\w+)/instances"): _create,
    ("GET", INSTANCE): _get,
    ("PATCH", INSTANCE): _change("running", "running"),
    ("DELETE", INSTANCE): _change("deleting", "deleted"),
    ("POST", INSTANCE + r"/actions/pause"): _change("pausing", "paused"),
    ("POST", INSTANCE + r"/credentials/reveal"): _once("reveal"),
    ("POST", INSTANCE + r"/credentials/rotate"): _once("rotate"),
    ("GET", INSTANCE + r"/logs"): _once("logs"),
    ("POST", INSTANCE + r"/console-sessions"): _once("console"),
    ("GET", INSTANCE + r"/ca.pem"): _pem,
    ("POST", r"/v1/sessions"): _sign_in,
    ("POST", r"/v1/sessions/current/actions/step-up"): lambda *_: (
        200,
        {},
        {"mfa_expires_at": "2030-01-01T00:00:00.000Z"},
    ),
    ("DELETE", r"/v1/sessions/current"): lambda *_: (204, {}, None),
}


@contextmanager
def running(folder: Path) -> Iterator[ControlPlane]:
    """Run a control plane and its cell, with certificates in the folder."""
    authority = Authority(folder, "cell.local.localhost", "*.local.localhost")
    cell = Cell(authority)
    plane = ControlPlane(cell, authority.ca_file.read_text())
    try:
        yield plane
    finally:
        plane.close()
        cell.close()
