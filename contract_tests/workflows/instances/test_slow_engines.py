"""Engines that take long to start keep nobody else waiting, in the cell and in the worker."""

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import update

from contract_tests.cell.rig import Rig, running, until
from contract_tests.workflows.stage import Stage
from control.cells.http_cells import HttpCells
from control.cells.signing import Signer
from control.work import Worker
from control.workflows.instances.starting import start
from storage import identifiers
from storage.access import organizations, projects
from storage.catalogue.cells import Cell
from storage.instances.instances import Instance

ORGS = 5
EACH = 4
# Not by use of a CPU, of which a busy machine may have none left.
SLOW = """#!/bin/sh
case "$1" in
--version) exec {real} "$@" ;;
esac
sleep 600
"""
# Half of what the slow ones are given; nearly all of it is for busy machines.
SOON_S = 30.0


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """A cell whose Redis never comes to run."""
    real = Path("/usr/bin/redis-server")
    if not real.exists():
        pytest.skip("no redis-server on this machine")
    folder = tmp_path / "bin"
    folder.mkdir()
    server = folder / "redis-server"
    server.write_text(SLOW.format(real=real))
    server.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    with running(tmp_path / "cell", cell_id="cell_fake") as made:
        yield made


def order(stage: Stage, rig: Rig, org_id: str, engine: str) -> Instance:
    cell = rig.get("/v1/cell").json()
    versions = {each["engine"]: each["versions"] for each in cell["engines"]}
    instance_id = identifiers.new("inst_")
    with stage.database.write() as db:
        slug = identifiers.new("p").lower()
        project_id = projects.create(db, org_id, name="Project", slug=slug).id
        instance = Instance(
            id=instance_id,
            org_id=org_id,
            project_id=project_id,
            name=instance_id,
            engine=engine,
            engine_version=versions[engine][0],
            size="f0",
            region="local",
            storage_bytes=10**9,
            status="requested",
            desired_status="running",
            host=f"{instance_id[5:].lower()}.local.localhost",
            port=8443,
            cell_id="cell_fake",
        )
        db.add(instance)
        db.flush()
        start(db, stage.registry.workflows["instances.provision"], instance)
    return instance


def org(stage: Stage) -> str:
    with stage.database.write() as db:
        slug = identifiers.new("s").lower()
        return organizations.create(db, name="Org", slug=slug, plan="free").id


def be_served(stage: Stage, rig: Rig) -> None:
    """As a newcomer, whose instance has to run soon."""
    instance = order(stage, rig, org(stage), "duckdb")
    until(lambda: in_org(stage, instance) == "running", "the newcomer's instance runs", SOON_S)


def in_org(stage: Stage, instance: Instance) -> str:
    with stage.database.read() as db:
        found = db.get(Instance, instance.id)
        assert found is not None
        return found.status


@pytest.mark.nightly
def test_slow_engines_of_several_organizations_keep_no_newcomer_waiting(
    stage: Stage, rig: Rig
) -> None:
    with stage.database.write() as db:
        db.execute(update(Cell).values(url=f"http+unix://{rig.socket}"))
    cells = HttpCells(Signer(rig.key, clock=time.time))
    services = replace(stage.services, cells=cells)
    worker = Worker(services, stage.registry, threads=4, keep_schedules=False)
    worker.start()
    try:
        be_served(stage, rig)
        crowd = [
            order(stage, rig, org_id, "redis")
            for org_id in [org(stage) for _ in range(ORGS)]
            for _ in range(EACH)
        ]
        until(lambda: len(rig.get("/v1/instances").json()["items"]) > ORGS, "they start")
        be_served(stage, rig)
        # Some may not even have begun: the newcomer did not wait for that either.
        assert {in_org(stage, each) for each in crowd} <= {"requested", "provisioning"}
    finally:
        worker.stop()
        cells.close()
