"""What the tests of migrations ask of a cell, as the control plane and as a person."""

from pathlib import Path
from typing import Any

import httpx
import psycopg
from ulid import ULID

from contract_tests.cell.rig import Rig, until

LOOPBACK = ["127.0.0.0/8", "::1/128"]
UPLOAD = {"kind": "upload", "format": None}
CONNECTION = {"kind": "connection", "format": None}
ENDED = {"completed", "failed", "cancelled"}


def begin(
    rig: Rig,
    instance_id: str,
    source: dict[str, Any],
    mode: str = "copy",
    *,
    dry_run: bool = False,
    migration_id: str | None = None,
) -> httpx.Response:
    path = f"/v1/instances/{instance_id}/migrations/{migration_id or f'mig_{ULID()}'}"
    return rig.act("PUT", path, {"source": source, "mode": mode, "dry_run": dry_run})


def begun(
    rig: Rig, instance_id: str, source: dict[str, Any], mode: str = "copy", **more: Any
) -> str:
    answer = begin(rig, instance_id, source, mode, **more)
    assert answer.status_code == 200, answer.text
    assert answer.json()["status"] == "awaiting_source"
    return str(answer.json()["migration_id"])


def path_of(instance_id: str, migration_id: str) -> str:
    return f"/v1/instances/{instance_id}/migrations/{migration_id}"


def token(rig: Rig, instance_id: str, migration_id: str, **claims: Any) -> str:
    return rig.token(instance_id, "migration_source", migration_id=migration_id, **claims)


def send(
    rig: Rig, token: str, content: bytes | dict[str, Any], content_range: str | None = None
) -> httpx.Response:
    headers = {} if content_range is None else {"Content-Range": content_range}
    with rig.client() as http:
        url = f"/v1/migration-source/{token}"
        if isinstance(content, dict):
            return http.put(url, json=content, headers=headers)
        headers["Content-Type"] = "application/octet-stream"
        return http.put(url, content=content, headers=headers)


def connect(rig: Rig, instance_id: str, migration_id: str, server: Any, **more: Any) -> None:
    body = {"uri": server.uri, "ca_pem": server.ca_pem, **more}
    answer = send(rig, token(rig, instance_id, migration_id), body)
    assert answer.status_code == 200, answer.text


def observed(rig: Rig, instance_id: str, migration_id: str) -> dict[str, Any]:
    answer = rig.get(path_of(instance_id, migration_id))
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def status_is(rig: Rig, instance_id: str, migration_id: str, *wanted: str) -> dict[str, Any]:
    def there() -> dict[str, Any] | None:
        seen = observed(rig, instance_id, migration_id)
        assert seen["status"] not in ENDED - set(wanted), seen
        return seen if seen["status"] in wanted else None

    return dict(until(there, f"{migration_id} is {wanted}"))


def client(
    rig: Rig, instance_id: str, database: str = "app"
) -> "psycopg.Connection[tuple[Any, ...]]":
    """As a client of the instance."""
    route = rig.route(instance_id)
    assert route is not None
    credential = rig.reveal(instance_id)
    return psycopg.connect(
        host=str(Path(route["socket"]).parent),
        user=credential["username"],
        password=credential["password"],
        dbname=database,
        autocommit=True,
    )


def ask(rig: Rig, instance_id: str, sql: str, database: str = "app") -> list[tuple[Any, ...]]:
    with client(rig, instance_id, database) as connection:
        found = connection.execute(sql.encode())
        return found.fetchall() if found.description else []


def empty_again(rig: Rig, instance_id: str) -> None:
    """As a new instance is; an administrator's session may be in the way for a moment."""

    def dropped() -> bool:
        try:
            ask(rig, instance_id, "DROP DATABASE IF EXISTS app WITH (FORCE)", "postgres")
        except psycopg.errors.InsufficientPrivilege:
            return False
        return True

    until(dropped, "the database is dropped")
    ask(rig, instance_id, "CREATE DATABASE app", "postgres")


def unchanged(rig: Rig, instance_id: str) -> None:
    databases = ask(rig, instance_id, "SELECT datname FROM pg_database ORDER BY 1")
    assert [name for (name,) in databases] == ["app", "postgres", "template0", "template1"]
    assert not (rig.home / "instances" / instance_id / "migration").exists()


def refused(rig: Rig, instance_id: str, server: Any, **more: Any) -> dict[str, Any]:
    migration_id = begun(rig, instance_id, CONNECTION)
    connect(rig, instance_id, migration_id, server, **more)
    seen = status_is(rig, instance_id, migration_id, "failed")
    unchanged(rig, instance_id)
    return seen
