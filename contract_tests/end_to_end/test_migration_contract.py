"""What the control plane relies on in a cell that migrates: the real one and the fake keep it."""

import time
from collections.abc import Iterator
from typing import Any, Final, cast

import pytest

from contract_tests.cell import rig
from contract_tests.cell.rig import new_id
from contract_tests.end_to_end.either_cell import KINDS, of_kind
from contract_tests.end_to_end.patient import patient
from contract_tests.workflows.fake_cell import FakeCell
from control.cells.answer_checks import fault
from control.cells.client import CellClient, CellRefused, InstanceUnknown
from control.cells.migrations import CellMigrations
from control.work import LeaseLost

UPLOAD: Final = {"source": {"kind": "upload", "format": None}, "mode": "copy", "dry_run": True}


@pytest.fixture(scope="module", params=KINDS)
def cell(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CellClient]:
    with of_kind(request.param, tmp_path_factory.mktemp("contract")) as made:
        yield made


@pytest.fixture
def instance(cell: CellClient) -> str:
    """Of an engine that something can be migrated into; the fake has one."""
    engines = {each["engine"]: each["versions"] for each in cell.describe()["engines"]}
    name = next(each for each in ("postgres", "duckdb") if engines.get(each))
    instance_id = new_id()
    wanted = rig.spec(instance_id, engine=name, engine_version=engines[name][-1])
    cell.put(instance_id, wanted, key=f"put-{instance_id}:put", lease=1)
    return instance_id


@pytest.fixture
def migrations(cell: CellClient, instance: str) -> CellMigrations:
    found = cell.migrations(instance)
    return found if isinstance(cell, FakeCell) else cast("CellMigrations", patient(found))


def new_migration() -> str:
    return new_id().replace("inst_", "mig_")


def begin(migrations: CellMigrations, name: str = "first", **wanted: Any) -> str:
    migration_id = new_migration()
    key = f"{name}-{migration_id}:begin"
    told = migrations.begin(migration_id, {**UPLOAD, **wanted}, key=key, lease=1)
    assert (told["migration_id"], told["status"]) == (migration_id, "awaiting_source")
    assert fault("migrations.get", told) is None
    return migration_id


def cancel(migrations: CellMigrations, migration_id: str, name: str = "first") -> dict[str, Any]:
    return migrations.cancel(migration_id, key=f"{name}-{migration_id}:cancel", lease=1)


def test_one_that_was_begun_is_known_and_begun_once(migrations: CellMigrations) -> None:
    assert migrations.observe(new_migration()) is None
    migration_id = begin(migrations)
    told = migrations.observe(migration_id)
    again = migrations.begin(migration_id, UPLOAD, key=f"second-{migration_id}:begin", lease=1)
    assert told == again
    other = {**UPLOAD, "dry_run": False}
    with pytest.raises(CellRefused):
        migrations.begin(migration_id, other, key=f"third-{migration_id}:begin", lease=1)
    with pytest.raises(CellRefused):
        begin(migrations, "other")
    with pytest.raises(LeaseLost):
        migrations.begin(migration_id, UPLOAD, key=f"second-{migration_id}:more", lease=0)


def test_one_that_waits_is_not_cut_over(migrations: CellMigrations) -> None:
    migration_id = begin(migrations)
    with pytest.raises(CellRefused):
        migrations.cut_over(migration_id, 0, key=f"first-{migration_id}:cutover", lease=1)


def test_one_that_is_cancelled_ends_and_makes_room(
    cell: CellClient, instance: str, migrations: CellMigrations
) -> None:
    migration_id = begin(migrations)
    assert cancel(migrations, migration_id)["status"] in {"cancelling", "cancelled"}
    if isinstance(cell, FakeCell):
        cell.migrations(instance).becomes(migration_id, status="cancelled")
    ended = when_cancelled(migrations, migration_id)
    assert ended["status"] == "cancelled"
    # Again it changes nothing.
    assert cancel(migrations, migration_id, "second") == ended
    assert begin(migrations, "other") != migration_id


def when_cancelled(migrations: CellMigrations, migration_id: str) -> dict[str, Any]:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        told = migrations.observe(migration_id)
        assert told is not None
        if told["status"] == "cancelled":
            return told
        time.sleep(0.1)
    raise AssertionError("it does not end")


def test_what_was_never_begun_is_unknown(migrations: CellMigrations) -> None:
    with pytest.raises(InstanceUnknown):
        cancel(migrations, new_migration())


def test_it_needs_an_instance_that_runs(
    cell: CellClient, instance: str, migrations: CellMigrations
) -> None:
    cell.pause(instance, key=f"pause-{instance}:pause", lease=1)
    with pytest.raises(CellRefused):
        begin(migrations)


@pytest.mark.nightly
@pytest.mark.parametrize("how", ["delete", "erase"])
def test_it_ends_with_its_instance(
    cell: CellClient, instance: str, migrations: CellMigrations, how: str
) -> None:
    migration_id = begin(migrations)
    getattr(cell, how)(instance, key=f"{how}-{instance}:{how}", lease=1)
    told = migrations.observe(migration_id)
    assert told is None or told["status"] in {"cancelling", "cancelled"}
