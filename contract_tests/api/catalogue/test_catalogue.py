"""The catalogue and the service itself: engines, plans, regions, sizes, health, description."""

import json
import subprocess
import sys
import time
from datetime import timedelta
from typing import Any

import pytest
import yaml
from sqlalchemy import delete, update

from contract_tests.api.conftest import MakeHouse
from contract_tests.api.harness import CELL_ID, House, Tenant
from contract_tests.api.rows import DOCUMENT, is_problem
from contract_tests.by_day import one_in
from contract_tests.workflows.known import enqueue
from control.workflows.catalogue.cells import expect
from menagerie import contract
from storage.catalogue import cells
from storage.work import Work


@pytest.fixture(scope="module")
def tenant(house: House) -> Tenant:
    return house.tenant()


def test_engines_are_what_cells_found(house: House, tenant: Tenant) -> None:
    engines = {one["id"]: one for one in house.get("/v1/engines", tenant.key).json()}
    assert len(engines) == 14
    duckdb = engines["duckdb"]
    assert (duckdb["availability"], duckdb["versions"]) == ("available", ["1.5"])
    assert (duckdb["regions"], duckdb["default_version"]) == (["local"], "1.5")
    assert engines["postgres"]["availability"] == "coming_soon"
    assert engines["postgres"]["reason"]


def test_sizes_are_the_nine_and_the_other_families(house: House, tenant: Tenant) -> None:
    sizes = house.get("/v1/sizes", tenant.key).json()["items"]
    assert [one["id"] for one in sizes if one["family"] == "instance"] == [
        *("f0", "s0", "s1", "s2", "m2", "m4", "l8", "l16", "xl32")
    ]
    apps = house.get("/v1/sizes?family=app", tenant.key).json()["items"]
    assert [one["id"] for one in apps] == ["c0", "c1", "c2", "c3"]


def test_plans_say_what_they_allow(house: House, tenant: Tenant) -> None:
    plans = {one["id"]: one for one in house.get("/v1/plans", tenant.key).json()["items"]}
    assert list(plans) == ["free", "solo", "team", "enterprise"]
    assert plans["free"]["sizes"] == ["f0"]
    assert plans["free"]["idle_pause_s"] == 900
    assert plans["team"]["idle_pause_s"] is None
    assert "secure" in plans["enterprise"]["placements"]


def test_a_region_takes_orders_while_its_cells_are_heard_of(make_house: MakeHouse) -> None:
    house = make_house()
    key = house.tenant().key
    (region,) = house.get("/v1/regions", key).json()["items"]
    assert (region["id"], region["available"]) == ("local", True)
    assert (region["engines"], region["ports"]) == (["duckdb"], {"https": 8443})
    assert house.get("/healthz").json()["status"] == "ok"
    house.pass_time(61)
    assert house.get("/v1/regions", key).json()["items"][0]["available"] is False
    health = house.get("/healthz")
    assert health.status_code == 200
    assert health.json()["status"] == "degraded"
    assert health.json()["checks"]["cells"]["status"] == "degraded"


def test_health_tells_of_work_that_waits(make_house: MakeHouse) -> None:
    house = make_house()
    with house.database.write() as db:
        enqueue(db, "instances.pause", "a lane", {})
    house.pass_time(61)
    with house.database.write() as db:
        cells.fetch(db, CELL_ID).last_seen_at = house.database.now(db)
    checks = house.get("/healthz").json()["checks"]
    assert (checks["cells"]["status"], checks["worker"]["status"]) == ("ok", "degraded")


def test_health_does_not_tell_of_work_behind_what_is_being_done(make_house: MakeHouse) -> None:
    """One tenant's lane may be long: that says nothing of the worker."""
    house = make_house()
    with house.database.write() as db:
        held = enqueue(db, "instances.pause", "a lane", {})
        enqueue(db, "instances.pause", "a lane", {})
        due = house.database.now(db) + timedelta(seconds=90)
        db.execute(update(Work).where(Work.operation == held.operation).values(due=due))
    house.pass_time(61)
    assert told(house, "worker") == {"status": "ok", "detail": None}


def told(house: House, part: str) -> Any:
    return house.get("/healthz").json()["checks"][part]


def test_health_tells_that_no_worker_runs(make_house: MakeHouse) -> None:
    house = make_house()
    with house.database.write() as db:
        db.execute(delete(Work))
    assert told(house, "worker") == {
        "status": "degraded",
        "detail": "no worker is running; start one with `menagerie worker`",
    }


def test_health_waits_for_what_a_starting_cell_tells(make_house: MakeHouse) -> None:
    """What it told before the start may be true no more: it found a Redis since, say."""
    house = make_house()
    assert told(house, "cells")["status"] == "ok"
    with house.database.write() as db:
        expect(db, cells.fetch(db, CELL_ID))
    assert told(house, "cells") == {
        "status": "degraded",
        "detail": "no cell has reported its engines since it started",
    }
    assert house.get("/healthz").status_code == 200
    with house.database.write() as db:
        db.execute(delete(cells.Cell))
    assert "menagerie init" in told(house, "cells")["detail"]


@pytest.mark.parametrize(("skew_s", "way"), [(3600.2, "3600 s ahead of"), (-61.0, "61 s behind")])
def test_health_tells_of_a_clock_that_is_off(
    make_house: MakeHouse, skew_s: float, way: str
) -> None:
    house = make_house()
    with house.database.write() as db:
        cells.fetch(db, CELL_ID).clock_skew_s = skew_s
    assert house.get("/healthz").json()["status"] == "ok"
    assert way in told(house, "cells")["detail"]


def test_the_description_is_the_document_without_what_is_ours(house: House) -> None:
    served = house.get("/openapi.json").json()
    assert served == contract.public()
    assert served["paths"].keys() == DOCUMENT.raw["paths"].keys()
    pause = served["paths"]["/v1/orgs/{org_id}/instances/{instance_id}/actions/pause"]["post"]
    shown = {name for name in pause if name.startswith("x-")}
    assert shown == {"x-authorize", "x-events"}


@pytest.mark.nightly
@pytest.mark.parametrize("form", one_in(2, ["yaml", "json"]))
def test_the_command_prints_it_whole(house: House, form: str) -> None:
    command = [sys.executable, "-m", "menagerie", "openapi", "--output", form]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    whole = json.loads(printed) if form == "json" else yaml.safe_load(printed)
    assert whole == house.get("/openapi.json").json()
    assert ".yaml#" not in printed


def test_only_the_catalogue_needs_a_token_of_anyone(house: House, tenant: Tenant) -> None:
    for path in ("/v1/engines", "/v1/plans", "/v1/regions", "/v1/sizes"):
        is_problem(house.get(path), 401)
        assert house.get(path, tenant.owner.session).status_code == 200
        assert house.get(path, tenant.key).status_code == 200


def test_health_tells_that_the_database_has_no_space(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(house.database, "_full_at", time.monotonic())
    answer = house.get("/healthz")
    check = answer.json()["checks"]["database"]
    assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
    assert check["status"] == "degraded"
    assert "free some space" in check["detail"]
