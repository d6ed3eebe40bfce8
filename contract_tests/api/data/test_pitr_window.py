"""Recovery to a moment over the API: the window, restores and branches to a moment in it."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from contract_tests.api.harness import CELL_ID, House, Tenant
from contract_tests.api.rows import is_problem
from contract_tests.workflows.data import stored
from contract_tests.workflows.fake_backups import ARCHIVING
from contract_tests.workflows.known import take_turn
from control.cells.client import CellUnavailable
from storage.catalogue import cells
from storage.data import backups
from storage.instances import instances

POSTGRES = {"engine": "postgres", "versions": ["18"], "extensions": {}, "source": "fake"}


@pytest.fixture
def tenant(house: House) -> Tenant:
    return house.tenant("Recovering", plan="team")


@pytest.fixture
def source(house: House, tenant: Tenant) -> str:
    """An instance of PostgreSQL whose WAL has been archived for two hours."""
    made = house.instance(tenant, name="sales")
    with house.database.write() as db:
        cell = cells.fetch(db, CELL_ID)
        cell.engines = [*cell.engines, POSTGRES]
        row = instances.fetch(db, tenant.org_id, made, lock=True)
        row.engine, row.engine_version = "postgres", "18"
    house.cell.becomes(made, engine="postgres", engine_version="18")
    return made


def ago(house: House, **given: float) -> str:
    moment = house.now() - timedelta(**given)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def archive(house: House, instance_id: str, *ranges: tuple[str, str], **told: Any) -> None:
    """What the cell tells from now on."""
    found = [{"begins_at": begins, "ends_at": ends} for begins, ends in ranges]
    status = {"wanted": True, "status": "archiving", "newest_at": found[-1]["ends_at"]}
    house.cell.becomes(instance_id, archiving={**ARCHIVING, **status, "ranges": found, **told})
    with house.database.write() as db:
        take_turn(db, "reconcile")
    house.settle()


def base(house: House, tenant: Tenant, instance_id: str, at: str) -> str:
    """A backup that WAL continues from then on."""
    with house.database.read() as db:
        instance = instances.fetch(db, tenant.org_id, instance_id)
    made = stored.backup(house.database, house.cell, instance)
    with house.database.write() as db:
        found = backups.fetch(db, instance, made, lock=True)
        found.wal_chain_id, found.consistent_at = "wal_1", datetime.fromisoformat(at)
        found.engine_version = instance.engine_version
    return made


def window(house: House, tenant: Tenant, instance_id: str) -> dict[str, Any]:
    found = house.get(f"{tenant.path}/instances/{instance_id}/pitr-window", tenant.key)
    assert found.status_code == 200, found.text
    return dict(found.json())


def restore(house: House, tenant: Tenant, source: str, backup_id: str, **body: Any) -> Any:
    path = f"{tenant.path}/instances/{source}/backups/{backup_id}/actions/restore"
    return house.post(path, tenant.key, json=body)


def test_the_window_is_what_the_cell_tells_within_the_plan(
    house: House, tenant: Tenant, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    none = window(house, tenant, source)
    allowed = ("engine_supported", "plan_days", "continuous_archiving", "status")
    assert [none[name] for name in allowed] == [True, 7, True, "off"]
    assert (none["ranges"], none["latest_restorable_at"]) == ([], None)
    early = (ago(house, days=20), ago(house, days=9))
    old = (ago(house, days=8), ago(house, days=3))
    new = (ago(house, days=2), ago(house, seconds=4))
    archive(house, source, early, old, new)
    found = window(house, tenant, source)
    assert [one["ends_at"] for one in found["ranges"]] == [old[1], new[1]]
    earliest = datetime.fromisoformat(found["earliest_restorable_at"])
    assert timedelta() <= house.now() - timedelta(days=7) - earliest < timedelta(minutes=1)
    assert (found["latest_restorable_at"], found["status"]) == (new[1], "archiving")
    assert found["as_of"] <= ago(house)

    def away(*_of: Any) -> None:
        raise CellUnavailable("it is away")

    monkeypatch.setattr(house.cell, "observe", away)
    house.pass_time(60)
    stale = window(house, tenant, source)
    assert [one["ends_at"] for one in stale["ranges"]] == [old[1], new[1]]
    assert stale["as_of"] < found["as_of"], "as the reconciler saw it"
    house.change_org(tenant.org_id, plan="free")
    assert window(house, tenant, source)["ranges"] == []


def test_an_engine_without_it_says_so(house: House, tenant: Tenant) -> None:
    plain = house.instance(tenant)
    found = window(house, tenant, plain)
    assert (found["engine_supported"], found["continuous_archiving"]) == (False, False)
    backup_id = base(house, tenant, plain, ago(house, hours=1))
    refused = restore(house, tenant, plain, backup_id, at=ago(house, minutes=1))
    is_problem(refused, 409)
    assert "duckdb does not support" in refused.json()["detail"]


@pytest.mark.parametrize("mode", ["in_place", "new_instance"])
def test_a_restore_takes_the_newest_backup_before_the_moment(
    house: House, tenant: Tenant, source: str, mode: str
) -> None:
    first, second, third = (
        base(house, tenant, source, ago(house, hours=count)) for count in (3, 2, 1)
    )
    archive(house, source, (ago(house, hours=3), ago(house, seconds=10)))
    at = ago(house, minutes=90)
    confirmed = {"confirm_name": "sales"} if mode == "in_place" else {"name": "then"}
    # Told in another zone, which is the same moment.
    shifted = (datetime.fromisoformat(at) + timedelta(hours=2)).strftime("%Y-%m-%dT%H:%M:%S.%f")
    made = restore(house, tenant, source, third, at=f"{shifted}+02:00", mode=mode, **confirmed)
    assert made.status_code == 201, made.text
    assert (made.json()["backup_id"], made.json()["at"]) == (second, at)
    house.settle()
    done = house.get(made.headers["location"], tenant.key).json()
    assert (done["status"], done["at"]) == ("completed", at)
    target = done["target_instance_id"]
    if mode == "in_place":
        observed = house.cell.observe(source)
        assert observed is not None
        assert (observed["restored_from"], observed["restored_at"]) == (second, at)
    else:
        told = house.cell.told(target)
        assert (told["source_backup"], told["source_at"]) == (f"{source}/{second}", at)
        assert told["continuous_archiving"] is True
    log = house.get(f"{tenant.path}/audit?action=backup.restore", tenant.key).json()["items"]
    assert datetime.fromisoformat(log[0]["detail"]["at"]) == datetime.fromisoformat(at)
    assert first != second


def test_a_moment_outside_the_window_is_refused(house: House, tenant: Tenant, source: str) -> None:
    old = base(house, tenant, source, ago(house, days=8))
    base(house, tenant, source, ago(house, hours=2))
    archive(
        *(house, source, (ago(house, days=8), ago(house, hours=3))),
        (ago(house, hours=2), ago(house, seconds=10)),
    )
    wrong = [ago(house, days=8), ago(house, hours=2.5), ago(house, hours=-1)]
    for at in wrong:
        refused = restore(house, tenant, source, old, at=at)
        is_problem(refused, 409)
        assert "choose a moment from" in refused.json()["detail"]
        branched = house.post(
            f"{tenant.path}/instances/{source}/branches", tenant.key, json={"at": at}
        )
        is_problem(branched, 409)
    for at in ("2026-11-22 10:00", "2026-11-22T10:00:00", "yesterday", ""):
        is_problem(restore(house, tenant, source, old, at=at), 422)
    # Not told yet, and archived by the time that it is restored.
    assert restore(house, tenant, source, old, at=ago(house, seconds=1)).status_code == 201


def test_a_branch_gets_the_data_of_a_moment(house: House, tenant: Tenant, source: str) -> None:
    backup_id = base(house, tenant, source, ago(house, hours=2))
    archive(house, source, (ago(house, hours=2), ago(house, seconds=10)))
    at = ago(house, hours=1)
    path = f"{tenant.path}/instances/{source}/branches"
    weak, _ = house.key(tenant.org_id, tenant.owner, "owner", scopes=["instances:write"])
    is_problem(house.post(path, weak, json={"at": at}), 403, "permission_missing")
    made = house.post(path, tenant.key, json={"name": "then", "at": at})
    assert made.status_code == 201, made.text
    house.settle()
    branch = house.get(f"{tenant.path}/instances/{made.json()['id']}", tenant.key).json()
    assert (branch["status"], branch["branch_of"]) == ("running", source)
    told = house.cell.told(branch["id"])
    assert (told["source_backup"], told["source_at"]) == (f"{source}/{backup_id}", at)
    with house.database.write() as db:
        instances.fetch(db, tenant.org_id, source, lock=True).engine_version = "19"
    refused = house.post(path, tenant.key, json={"name": "before", "at": at})
    is_problem(refused, 409)
    assert "postgres 18" in refused.json()["detail"]


def test_what_the_window_needs_is_not_deleted(house: House, tenant: Tenant, source: str) -> None:
    begins = ago(house, hours=2)
    needed = base(house, tenant, source, begins)
    newer = base(house, tenant, source, ago(house, hours=1))
    archive(house, source, (begins, ago(house, seconds=10)))
    path = f"{tenant.path}/instances/{source}/backups"
    refused = house.request("DELETE", f"{path}/{needed}", tenant.key)
    is_problem(refused, 409)
    assert "point-in-time recovery" in refused.json()["detail"]
    assert house.request("DELETE", f"{path}/{newer}", tenant.key).status_code == 202


def test_the_cell_is_told_what_was_chosen(house: House, tenant: Tenant, source: str) -> None:
    path = f"{tenant.path}/instances/{source}/backup-settings"
    for chosen, wanted in ((False, False), (None, True), (True, True)):
        body = {"continuous_archiving": chosen}
        changed = house.request("PATCH", path, tenant.key, json=body)
        assert changed.status_code == 200, changed.text
        assert changed.json()["overrides"]["continuous_archiving"] is chosen
        assert changed.json()["effective"]["continuous_archiving"] is wanted
        house.settle()
        observed = house.cell.observe(source)
        assert observed is not None
        assert observed["archiving"]["wanted"] is wanted
