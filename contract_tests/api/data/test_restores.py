"""Restores over the API: into a new instance, in place, and what is refused of both."""

from typing import Any

import pytest

from contract_tests.api.harness import House, Tenant
from contract_tests.api.rows import NEVER, is_problem
from contract_tests.workflows.data import stored
from storage.access import projects
from storage.access.teams import Team
from storage.data import backups, restores
from storage.instances import instances
from storage.network import networks


@pytest.fixture
def tenant(house: House) -> Tenant:
    return house.tenant("Restoring", plan="team")


@pytest.fixture
def source(house: House, tenant: Tenant) -> str:
    return house.instance(tenant, name="sales")


@pytest.fixture
def backup_id(house: House, tenant: Tenant, source: str) -> str:
    asked = house.post(f"{tenant.path}/instances/{source}/backups", tenant.key, json={})
    house.settle()
    return str(asked.json()["id"])


def restore(
    house: House, tenant: Tenant, source: str, backup_id: str, token: str = "", **body: Any
) -> Any:
    path = f"{tenant.path}/instances/{source}/backups/{backup_id}/actions/restore"
    return house.post(path, token or tenant.key, json=body)


def instance(house: House, tenant: Tenant, instance_id: str) -> dict[str, Any]:
    return dict(house.get(f"{tenant.path}/instances/{instance_id}", tenant.key).json())


def test_a_new_instance_gets_the_data(
    house: House, tenant: Tenant, source: str, backup_id: str
) -> None:
    with house.database.write() as db:
        network = networks.of_instance(db, instances.fetch(db, tenant.org_id, source))
        network.replace({"allow_cidrs": ["203.0.113.0/24"]}, None)
        db.add(network)
    made = restore(house, tenant, source, backup_id, tenant.owner.session, name="copy", size="s1")
    assert made.status_code == 201, made.text
    told = made.json()
    listed = f"{tenant.path}/instances/{source}/restores"
    assert made.headers["location"] == f"{listed}/{told['id']}"
    assert (told["mode"], told["status"]) == ("new_instance", "pending")
    assert (told["backup_id"], told["requested_by"]) == (backup_id, tenant.owner.id)
    target = told["target_instance_id"]
    before = instance(house, tenant, source)
    ordered = instance(house, tenant, target)
    assert (ordered["name"], ordered["size"], ordered["status"]) == ("copy", "s1", "requested")
    same = ("engine", "engine_version", "region", "placement", "storage_bytes", "project_id")
    assert {name: ordered[name] for name in same} == {name: before[name] for name in same}
    assert ordered["branch_of"] is None
    house.settle()
    assert instance(house, tenant, target)["status"] == "running"
    done = house.get(made.headers["location"], tenant.key).json()
    assert (done["status"], done["pre_change_backup_id"]) == ("completed", None)
    assert house.cell.told(target)["source_backup"] == f"{source}/{backup_id}"
    assert house.cell.told(target)["allow_cidrs"] == ["203.0.113.0/24"]
    assert instance(house, tenant, source) == before
    for each in (source, target):
        path = f"{tenant.path}/instances/{each}/restores"
        assert house.get(path, tenant.key).json()["items"] == [done]
        assert house.get(f"{path}/{done['id']}", tenant.key).json() == done
    other = house.instance(tenant)
    is_problem(house.get(f"{tenant.path}/instances/{other}/restores/{done['id']}", tenant.key), 404)
    log = house.get(f"{tenant.path}/audit?action=backup.restore", tenant.key).json()["items"]
    detail = {"backup": backup_id, "instance": target, "mode": "new_instance"}
    assert [(one["target"], one["detail"]) for one in log] == [(done["id"], detail)]


def test_in_place_the_instance_gets_its_data_back(
    house: House, tenant: Tenant, source: str, backup_id: str
) -> None:
    made = restore(house, tenant, source, backup_id, mode="in_place", confirm_name="sales")
    assert made.status_code == 201, made.text
    told = made.json()
    assert (told["mode"], told["target_instance_id"]) == ("in_place", source)
    assert instance(house, tenant, source)["status"] == "restoring"
    house.settle()
    assert instance(house, tenant, source)["status"] == "running"
    done = house.get(made.headers["location"], tenant.key).json()
    assert done["status"] == "completed"
    path = f"{tenant.path}/instances/{source}/backups/{done['pre_change_backup_id']}"
    before = house.get(path, tenant.key).json()
    assert (before["kind"], before["status"]) == ("pre_change", "completed")
    undone = restore(*(house, tenant, source, before["id"]), mode="in_place", confirm_name="sales")
    assert undone.status_code == 201
    house.settle()
    observed = house.cell.observe(source)
    assert observed is not None
    assert observed["restored_from"] == before["id"]


def test_how_far_it_is_comes_from_the_cell(
    house: House, tenant: Tenant, source: str, backup_id: str
) -> None:
    made = restore(house, tenant, source, backup_id, mode="in_place", confirm_name="sales")
    one = made.headers["location"]
    assert house.get(one, tenant.key).json()["progress"] is None
    house.turns(1)
    with house.database.write() as db:
        record = instances.fetch(db, tenant.org_id, source)
        found = restores.into(db, record, "in_place")
        if found is None:
            found = restores.fetch(db, record, made.json()["id"], lock=True)
        found.status, found.pre_change_backup_id = "running", f"bkp_{NEVER}"
    amounts = {"done_bytes": 1, "total_bytes": 4}
    house.cell.becomes(source, backup={"backup_id": f"bkp_{NEVER}", "phase": "copying", **amounts})
    assert house.get(one, tenant.key).json()["progress"] == {"phase": "backing_up", **amounts}
    told = {"backup_id": backup_id, "phase": "downloading", **amounts}
    house.cell.becomes(source, backup=None, restore=told)
    assert house.get(one, tenant.key).json()["progress"] == {"phase": "downloading", **amounts}
    (listed,) = house.get(one.rpartition("/")[0], tenant.key).json()["items"]
    assert listed["progress"] is None
    house.cell.becomes(source, restore={**told, "backup_id": f"bkp_{NEVER}"})
    assert house.get(one, tenant.key).json()["progress"] is None


@pytest.mark.parametrize("name", [None, "Sales", "sale", "other"])
def test_in_place_the_name_is_typed(
    house: House, tenant: Tenant, source: str, backup_id: str, name: str | None
) -> None:
    body = {"mode": "in_place"} | ({} if name is None else {"confirm_name": name})
    refused = restore(house, tenant, source, backup_id, **body)
    is_problem(refused, 422)
    if name != "Sales":
        assert refused.json()["errors"][0]["pointer"] == "/confirm_name"
    assert instance(house, tenant, source)["status"] == "running"


@pytest.mark.parametrize(
    "status", ["paused", "pausing", "resuming", "resizing", "restoring", "deleting", "deleted"]
)
def test_in_place_nothing_else_is_under_way(
    house: House, tenant: Tenant, source: str, backup_id: str, status: str
) -> None:
    with house.database.write() as db:
        instances.fetch(db, tenant.org_id, source, lock=True).status = status
    refused = restore(house, tenant, source, backup_id, mode="in_place", confirm_name="sales")
    is_problem(refused, 409, "conflict")
    assert refused.json()["detail"].startswith(f"cannot restore an instance that is {status}")


def test_two_at_once_in_place_are_one(
    house: House, tenant: Tenant, source: str, backup_id: str
) -> None:
    path = f"{tenant.path}/instances/{source}/backups/{backup_id}/actions/restore"
    body = {"mode": "in_place", "confirm_name": "sales"}
    asked = house.together(*[("POST", path, tenant.key, {"json": body})] * 4)
    assert sorted(one.status_code for one in asked) == [201, 409, 409, 409]
    house.settle()
    assert house.cell.effects(source).count("restore") == 1


@pytest.mark.parametrize(("desired", "by"), [("running", None), ("paused", "user")])
def test_one_that_failed_is_restored_in_place(
    house: House, tenant: Tenant, source: str, backup_id: str, desired: str, by: str | None
) -> None:
    """Also one that failed when it was resumed."""
    with house.database.write() as db:
        record = instances.fetch(db, tenant.org_id, source, lock=True)
        record.became_failed("it does not start")
        record.desired_status, record.paused_by = desired, by
    made = restore(house, tenant, source, backup_id, mode="in_place", confirm_name="sales")
    assert made.status_code == 201
    house.settle()
    assert instance(house, tenant, source)["status"] == "running"


def test_a_backup_of_an_older_version_is_not_restored_in_place(
    house: House, tenant: Tenant, source: str, backup_id: str
) -> None:
    with house.database.write() as db:
        instances.fetch(db, tenant.org_id, source, lock=True).engine_version = "1.6"
    refused = restore(house, tenant, source, backup_id, mode="in_place", confirm_name="sales")
    is_problem(refused, 409)
    assert "restore it into a new instance" in refused.json()["detail"]
    assert instance(house, tenant, source)["status"] == "running"
    made = restore(house, tenant, source, backup_id)
    assert instance(house, tenant, made.json()["target_instance_id"])["engine_version"] == "1.5"


@pytest.mark.parametrize("status", ["pending", "running", "failed", "deleting", "deleted"])
@pytest.mark.parametrize("mode", ["new_instance", "in_place"])
def test_only_a_completed_backup_is_restored(
    house: House, tenant: Tenant, source: str, backup_id: str, status: str, mode: str
) -> None:
    with house.database.write() as db:
        record = instances.fetch(db, tenant.org_id, source)
        backups.fetch(db, record, backup_id, lock=True).status = status
    confirmed = {"confirm_name": "sales"} if mode == "in_place" else {}
    refused = restore(house, tenant, source, backup_id, mode=mode, **confirmed)
    is_problem(refused, 409, "conflict")
    assert refused.json()["detail"] == f"cannot restore a backup that is {status}"


@pytest.mark.parametrize(
    ("body", "pointer", "keyword"),
    [
        ({"size": "s9"}, "/size", "enum"),
        ({"storage_bytes": 10**9}, "/storage_bytes", "minimum"),
        ({"confirm_name": "sales"}, "/confirm_name", "mode"),
        ({"mode": "in_place", "confirm_name": "sales", "name": "b"}, "/name", "mode"),
    ],
)
def test_what_cannot_be_is_refused(
    house: House, tenant: Tenant, body: dict[str, Any], pointer: str, keyword: str
) -> None:
    source = house.instance(tenant, name="sales", size="s1")
    with house.database.read() as db:
        record = instances.fetch(db, tenant.org_id, source)
    backup_id = stored.backup(house.database, house.cell, record)
    refused = restore(house, tenant, source, backup_id, **body)
    is_problem(refused, 422)
    found = [(one["pointer"], one["keyword"]) for one in refused.json()["errors"]]
    assert found == [(pointer, keyword)]


def test_a_deleted_instance_is_restored_into_a_new_one_until_it_is_erased(
    house: House, tenant: Tenant, source: str, backup_id: str
) -> None:
    path = f"{tenant.path}/instances/{source}"
    assert house.request("DELETE", path, tenant.key).status_code == 202
    house.settle()
    assert house.get(f"{path}/backups", tenant.key).json()["items"][0]["id"] == backup_id
    made = restore(house, tenant, source, backup_id)
    assert made.status_code == 201, made.text
    house.settle()
    target = made.json()["target_instance_id"]
    assert instance(house, tenant, target)["status"] == "running"
    assert house.post(f"{path}/actions/erase", tenant.key).status_code == 202
    is_problem(restore(house, tenant, source, backup_id), 409)
    house.settle()
    is_problem(restore(house, tenant, source, backup_id), 404)
    assert house.get(f"{path}/backups", tenant.key).json()["items"] == []
    assert house.get(f"{tenant.path}/instances/{target}/restores", tenant.key).json() == {
        "items": [],
        "next_cursor": None,
    }
    assert instance(house, tenant, target)["status"] == "running"


def test_the_plan_counts_what_is_restored(house: House) -> None:
    free = house.tenant("Free", plan="free")
    first = house.instance(free)
    house.instance(free)
    with house.database.read() as db:
        record = instances.fetch(db, free.org_id, first)
    backup_id = stored.backup(house.database, house.cell, record)
    refused = restore(house, free, first, backup_id)
    is_problem(refused, 422)
    assert {one["keyword"] for one in refused.json()["errors"]} == {"quota"}


def test_another_project_is_one_that_the_caller_may_use(
    house: House, tenant: Tenant, source: str, backup_id: str
) -> None:
    other = house.tenant("Other", plan="team")
    with house.database.write() as db:
        mine = projects.create(db, tenant.org_id, name="Mine", slug="mine")
        team = Team(
            id=f"team_{mine.id[5:]}", org_id=tenant.org_id, name="T", slug=mine.id[5:].lower()
        )
        db.add(team)
        db.flush()
        hidden = projects.create(db, tenant.org_id, name="Hidden", slug="hidden")
        hidden.team_id = team.id
    member = house.member(tenant.org_id, "member")
    made = restore(house, tenant, source, backup_id, member.session, project_id=mine.id)
    assert made.status_code == 201, made.text
    assert instance(house, tenant, made.json()["target_instance_id"])["project_id"] == mine.id
    said = set()
    for project_id in (hidden.id, other.project_id, f"proj_{NEVER}"):
        refused = restore(house, tenant, source, backup_id, member.session, project_id=project_id)
        is_problem(refused, 404, "not_found")
        said.add(refused.json()["detail"])
    assert len(said) == 1
    assert restore(house, tenant, source, backup_id, project_id=hidden.id).status_code == 201


@pytest.mark.parametrize("body", [{}, {"mode": "in_place", "confirm_name": "sales"}])
def test_a_key_for_backups_alone_makes_and_changes_no_instance(
    house: House, tenant: Tenant, source: str, backup_id: str, body: dict[str, Any]
) -> None:
    scopes = ["instances:read", "backups:read", "backups:write", "projects:read"]
    key, _ = house.key(tenant.org_id, tenant.owner, "owner", scopes=scopes)
    refused = restore(house, tenant, source, backup_id, key, **body)
    is_problem(refused, 403, "permission_missing")
    assert refused.json()["permission"] == "instances:write"
