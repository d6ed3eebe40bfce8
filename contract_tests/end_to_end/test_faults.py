"""Parts are killed while instances are in use: what keeps working, and what comes back."""

from typing import Any

import httpx
import psutil
import pytest

from contract_tests.cell.rig import until
from contract_tests.end_to_end.installation import (
    Installation,
    order,
    query,
    reveal,
    wait_for,
)


def answers(installation: Installation, credential: dict[str, Any]) -> bool:
    try:
        return query(installation, credential, "SELECT 1").status_code == 200
    except httpx.HTTPError:
        return False


def an_instance(installation: Installation) -> dict[str, Any]:
    made = order(installation)
    return {"id": made["id"]} | reveal(installation, made["id"])


def test_instances_are_reached_while_the_control_plane_is_dead(installation: Installation) -> None:
    """On the one that all share, which is as it was when the API is back."""
    used = an_instance(installation)
    with installation.public() as existing:
        url = f"https://{used['host']}:{used['port']}/query"
        login = (used["username"], used["password"])
        assert existing.post(url, json={"sql": "SELECT 1"}, auth=login).status_code == 200
        api = installation.part("api")
        api.suspend()
        try:
            assert existing.post(url, json={"sql": "SELECT 2"}, auth=login).status_code == 200
            assert answers(installation, used)
        finally:
            api.resume()
        api.kill()
        assert existing.post(url, json={"sql": "SELECT 3"}, auth=login).status_code == 200
        assert answers(installation, used)
    until(lambda: healthy(installation), "the API came back")


def healthy(installation: Installation) -> bool:
    try:
        with installation.api(timeout_s=20) as api:
            return bool(api.get("/healthz").json()["status"] == "ok")
    except (httpx.HTTPError, ValueError):
        return False


@pytest.mark.nightly
def test_a_killed_cell_adopts_its_engines(own: Installation) -> None:
    installation = own
    used = an_instance(installation)
    assert query(installation, used, "CREATE TABLE kept AS SELECT 1 AS n").status_code == 200
    cell = installation.part("cell")
    engines = engine_pids(installation, used["id"])
    assert engines
    cell.kill()
    assert answers(installation, used)
    until(lambda: running_part(installation, "cell") not in {0, cell.pid}, "the cell came back")
    with installation.api() as api:
        path = f"/v1/orgs/{installation.endpoints['org_id']}/instances/{used['id']}"
        until(lambda: paused(api, path), "the new cell pauses what the old one started")
        assert api.post(f"{path}/actions/resume").status_code == 202
    wait_for(installation, used["id"], "running")
    assert query(installation, used, "SELECT n FROM kept").json()["rows"] == [[1]]
    assert not engines & engine_pids(installation, used["id"])


def paused(api: httpx.Client, path: str) -> bool:
    api.post(f"{path}/actions/pause")
    return bool(
        api.get(path, params={"wait_for": "paused", "timeout_s": 5}).json()["status"] == "paused"
    )


def running_part(installation: Installation, name: str) -> int:
    try:
        return installation.part(name).pid
    except (AssertionError, psutil.Error):
        return 0


def engine_pids(installation: Installation, instance_id: str) -> set[int]:
    """The processes of an instance's engine, the one that confines it included."""
    return {
        process.pid
        for process in installation.processes()
        if any(instance_id in part for part in process.cmdline())
    }


@pytest.mark.nightly
def test_a_cell_killed_while_it_provisions_makes_one_instance(own: Installation) -> None:
    installation = own
    found = installation.endpoints
    path = f"/v1/orgs/{found['org_id']}"
    with installation.api() as api:
        made = api.post(
            f"{path}/projects/{found['project_id']}/instances",
            json={"engine": "duckdb", "size": "s0", "name": "killed-in-a-call"},
        ).json()
        installation.part("cell").kill()
        wait_for(installation, made["id"], "running")
        named = api.get(f"{path}/instances", params={"name": "killed-in-a-call"}).json()
    assert [one["id"] for one in named["items"]] == [made["id"]]
    credential = reveal(installation, made["id"])
    assert query(installation, credential, "SELECT 1").json()["rows"] == [[1]]
