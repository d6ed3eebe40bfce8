"""Holds that a request does not outlive the credential that it came with."""

import asyncio
import json
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import httpx

from cell.engines.driver import Login
from cell.engines.duckdb import DuckDB
from contract_tests.duckdb.process import PASSWORD, Service, digest, until
from contract_tests.duckdb.test_order import ENDLESS

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
