"""Holds that a request does not outlive the credential that it came with."""

import asyncio
import base64
import json
import socket
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from cell.engines.driver import Login
from cell.engines.duckdb import DuckDB
from contract_tests.duckdb.process import PASSWORD, Service, digest
from contract_tests.duckdb.test_order import ENDLESS
from contract_tests.service_process import until

NEWER = "newer horse"


def _accept(service: Service, *passwords: str) -> None:
    """In one step, as the cell writes it."""
    written = service.users.with_suffix(".new")
    written.write_text(json.dumps({"app": [digest(each) for each in passwords]}))
    written.replace(service.users)


def _in_use(service: Service, first: "Future[httpx.Response]") -> bool:
    """Whether somebody else's statement holds the database."""
    assert not first.done()
    try:
        with service.client(timeout_s=0.5) as client:
            client.post("/query", json={"sql": "SELECT 1"})
    except httpx.ReadTimeout:
        return True
    return False


@pytest.mark.nightly
def test_which_login_is_taken_is_known_while_a_request_runs(own_service: Service) -> None:
    """The cell asks before it ends a former one, which went on for 30 s if it had to wait."""
    driver = DuckDB(host=None)  # type: ignore[arg-type]  # of no use for a request
    site: Any = SimpleNamespace(socket=own_service.socket)
    with ThreadPoolExecutor() as threads:
        endless = threads.submit(own_service.post, ENDLESS)
        until(lambda: _in_use(own_service, endless), "the statement to run")
        assert asyncio.run(driver.ready(site, Login("app", PASSWORD)))
        assert not asyncio.run(driver.ready(site, Login("app", "wrong")))
        assert not endless.done()
        _accept(own_service, NEWER)
        assert endless.result(60).status_code == 401


def test_what_runs_and_what_waits_ends_with_its_credential(own_service: Service) -> None:
    with ThreadPoolExecutor() as threads:
        endless = threads.submit(own_service.post, ENDLESS)
        until(lambda: _in_use(own_service, endless), "the statement to run")
        waiting = threads.submit(own_service.post, "CREATE TABLE made (i INTEGER)")
        _accept(own_service, NEWER, PASSWORD)
        # Both are valid while a rotation overlaps.
        assert _in_use(own_service, endless)
        assert not waiting.done()
        _accept(own_service, NEWER)
        for each in (endless, waiting):
            answer = each.result(60)
            assert (answer.status_code, list(answer.json())) == (401, ["error"])
            assert "the credential that this request came with has ended" in answer.text
    with own_service.client(NEWER) as client:
        found = client.post("/query", json={"sql": "SELECT count(*) FROM duckdb_tables()"})
    assert found.json()["rows"] == [[0]]


def test_what_arrives_after_its_credential_has_ended_is_not_begun(own_service: Service) -> None:
    """A client is known by the head of its request, and may take half a minute for the body."""
    body = json.dumps({"sql": "CREATE TABLE late (i INTEGER)"}).encode()
    known = base64.b64encode(f"app:{PASSWORD}".encode()).decode()
    head = (
        f"POST /query HTTP/1.1\r\nhost: x\r\nauthorization: Basic {known}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(60)
        client.connect(str(own_service.socket))
        client.sendall(head.encode() + body[:-1])
        # Answered after the head above was read.
        with own_service.client() as other:
            assert other.post("/query", json={"sql": "SELECT 1"}).status_code == 200
        _accept(own_service, NEWER)
        until(lambda: _is_refused(own_service), "the former credential to end")
        client.sendall(body[-1:])
        assert client.recv(4096).startswith(b"HTTP/1.1 401 ")
    with own_service.client(NEWER) as other:
        found = other.post("/query", json={"sql": "SELECT count(*) FROM duckdb_tables()"})
    assert found.json()["rows"] == [[0]]


def _is_refused(service: Service) -> bool:
    with service.client() as client:
        return client.post("/query", json={"sql": "SELECT 1"}).status_code == 401
