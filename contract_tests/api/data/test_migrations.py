"""Migrations over the API: from the request to the end, what is refused, and what they refuse."""

from typing import Any

import jwt
import pytest

from contract_tests.api.harness import House, Tenant
from contract_tests.api.rows import is_problem, migrated, migrating, watch
from contract_tests.workflows.fake_migrations import checked, compared, copied, moment
from storage.data import migrations
from storage.instances import instances


@pytest.fixture
def tenant(house: House) -> Tenant:
    return house.tenant("Migrating", plan="team")


@pytest.fixture
def target(house: House, tenant: Tenant) -> str:
    return house.instance(tenant, name="sales")


def start(house: House, tenant: Tenant, target: str, token: str = "", **body: Any) -> Any:
    path = f"{tenant.path}/instances/{target}/migrations"
    return house.post(path, token or tenant.key, json={"source": {"kind": "upload"}, **body})


def act(
    house: House, tenant: Tenant, target: str, migration_id: str, name: str, **body: Any
) -> Any:
    path = f"{tenant.path}/instances/{target}/migrations/{migration_id}/actions/{name}"
    return house.post(path, tenant.key, **({"json": body} if body else {}))


def get(house: House, tenant: Tenant, target: str, migration_id: str) -> dict[str, Any]:
    path = f"{tenant.path}/instances/{target}/migrations/{migration_id}"
    return dict(house.get(path, tenant.key).json())


def test_what_runs_as_the_owner_needs_the_right_to_the_owners_credential(
    house: House, tenant: Tenant, target: str
) -> None:
    """Else whoever may only migrate has a login of the database that no rotation ends."""
    scopes = ["migrations:write", "migrations:read", "instances:read"]
    weak, _ = house.key(tenant.org_id, tenant.owner, "owner", scopes=scopes)
    is_problem(start(house, tenant, target, weak), 403, "permission_missing")
    started = start(house, tenant, target).json()["id"]
    path = f"{tenant.path}/instances/{target}/migrations/{started}/actions"
    house.settle()
    is_problem(house.post(f"{path}/source-url", weak), 403, "permission_missing")
    strong, _ = house.key(
        tenant.org_id, tenant.owner, "owner", scopes=[*scopes, "credentials:reveal"]
    )
    assert house.post(f"{path}/source-url", strong).status_code == 200
    assert house.post(f"{path}/cancel", weak).status_code == 202


def test_the_source_is_sent_to_the_cell(house: House, tenant: Tenant, target: str) -> None:
    answer = start(house, tenant, target, tenant.owner.session, dry_run=True)
    assert answer.status_code == 201, answer.text
    told = answer.json()
    place = f"{tenant.path}/instances/{target}/migrations/{told['id']}"
    assert answer.headers["location"] == place
    assert (told["status"], told["mode"], told["dry_run"]) == ("awaiting_source", "copy", True)
    assert (told["started_at"], told["requested_by"]) == (None, tenant.owner.id)
    base, _, token = told["source_url"].rpartition("/")
    assert base == "https://cell.local.localhost:8443/v1/migration-source"
    claims = jwt.decode(token, options={"verify_signature": False})
    assert (claims["action"], claims["instance_id"]) == ("migration_source", target)
    assert claims["migration_id"] == told["id"]
    assert 890 < claims["exp"] - claims["iat"] <= 900
    house.settle()
    shown = get(house, tenant, target, told["id"])
    assert shown["started_at"] is not None
    assert "source_url" not in shown
    again = act(house, tenant, target, told["id"], "source-url")
    assert again.status_code == 200
    assert (again.json()["method"], again.json()["url"] != told["source_url"]) == ("PUT", True)
    log = house.get(f"{tenant.path}/audit?action=migration.create", tenant.key).json()["items"]
    detail = {"instance": target, "source": {"kind": "upload"}, "mode": "copy", "dry_run": True}
    assert [(one["target"], one["detail"]) for one in log] == [(told["id"], detail)]


def test_what_the_cell_says_is_shown(house: House, tenant: Tenant, target: str) -> None:
    migration_id = migrating(house, tenant, target)
    cell = house.cell.migrations(target)
    report = checked(("warning", "the table is unlogged"))
    cell.becomes(
        *(migration_id,),
        status="copying",
        source_received_at=moment(),
        preflight={**report, "more": 1},
        progress=copied(100),
    )
    watch(house)
    shown = get(house, tenant, target, migration_id)
    assert shown["status"] == "copying"
    assert shown["preflight"]["findings"] == report["findings"]
    assert shown["progress"]["bytes_done"] == 100
    assert shown["preflight"]["checked_at"].endswith("Z")
    (listed,) = house.get(f"{tenant.path}/migrations?status=copying", tenant.key).json()["items"]
    assert listed == {**shown, "preflight": None}
    cell.becomes(migration_id, status="completed", verification=compared())
    watch(house)
    shown = get(house, tenant, target, migration_id)
    assert (shown["status"], shown["status_reason"]) == ("completed", None)
    assert shown["verification"]["rows_compared"] == 7
    assert shown["verification"]["notes"] == ["the contents of 5 keys were compared"]
    assert shown["completed_at"] is not None


def test_lists_are_of_those_whom_the_caller_can_see(
    house: House, tenant: Tenant, target: str
) -> None:
    first = migrated(house, tenant, target)
    second = migrating(house, tenant, target)
    other = house.instance(tenant)
    third = migrating(house, tenant, other)

    def ids(path: str, token: str = "") -> list[str]:
        answer = house.get(f"{tenant.path}{path}", token or tenant.key)
        return [one["id"] for one in answer.json()["items"]]

    assert ids("/migrations") == [third, second, first]
    assert ids(f"/instances/{target}/migrations") == [second, first]
    page = house.get(f"{tenant.path}/migrations?limit=2", tenant.key).json()
    assert ids(f"/migrations?cursor={page['next_cursor']}") == [first]
    stranger = house.tenant("Other")
    is_problem(house.get(f"{tenant.path}/migrations", stranger.key), 404)
    assert house.get(f"{stranger.path}/migrations", stranger.key).json()["items"] == []
    found = f"{tenant.path}/instances/{other}/migrations/{first}"
    is_problem(house.get(found, tenant.key), 404)


def test_one_at_a_time(house: House, tenant: Tenant, target: str) -> None:
    first = migrating(house, tenant, target)
    refused = start(house, tenant, target)
    is_problem(refused, 409, "conflict")
    assert first in refused.json()["detail"]
    other = house.instance(tenant)
    one = ("POST", f"{tenant.path}/instances/{other}/migrations", tenant.key)
    asked = [(*one, {"json": {"source": {"kind": "upload"}}}) for _ in range(4)]
    assert sorted(each.status_code for each in house.together(*asked)) == [201, 409, 409, 409]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"source": {"kind": "connection"}}, "/source/kind"),
        ({"source": {"kind": "upload", "format": "rdb"}}, "/source/format"),
        ({"source": {"kind": "upload", "table": "t"}}, "/source/table"),
        ({"source": {"kind": "upload", "format": "files", "table": ""}}, "/source/table"),
        ({"mode": "copy_and_sync"}, "/mode"),
        ({"source": {"kind": "disk"}}, "/source/kind"),
        ({"source": {"kind": "upload", "uri": "postgresql://u:p@h/d"}}, "/source/uri"),
    ],
)
def test_what_an_engine_does_not_take(
    house: House, tenant: Tenant, target: str, body: dict[str, Any], pointer: str
) -> None:
    refused = start(house, tenant, target, **body)
    is_problem(refused, 422)
    assert refused.json()["errors"][0]["pointer"] == pointer


@pytest.mark.parametrize(
    ("engine", "body", "pointer"),
    [
        ("mysql", {"source": {"kind": "connection"}}, "/source/kind"),
        ("mariadb", {"source": {"kind": "upload"}, "mode": "copy_and_sync"}, "/mode"),
        ("valkey", {"source": {"kind": "upload"}, "mode": "copy_and_sync"}, "/mode"),
        ("valkey", {"source": {"kind": "upload", "format": "files"}}, "/source/format"),
    ],
)
def test_what_no_cell_does_is_refused_before_a_source_is_asked_for(
    house: House, tenant: Tenant, target: str, engine: str, body: dict[str, Any], pointer: str
) -> None:
    _change(house, tenant, target, engine=engine)
    refused = start(house, tenant, target, **body)
    is_problem(refused, 422)
    assert refused.json()["errors"][0]["pointer"] == pointer


def test_it_needs_an_instance_that_runs_and_takes_any(
    house: House, tenant: Tenant, target: str
) -> None:
    for values in ({"status": "paused"}, {"status": "restoring"}, {"status": "failed"}):
        _change(house, tenant, target, **values)
        is_problem(start(house, tenant, target), 409)
    _change(house, tenant, target, status="running", engine="questdb")
    refused = start(house, tenant, target)
    is_problem(refused, 409)
    assert refused.json()["detail"] == "nothing can be migrated into a questdb instance"


def _change(house: House, tenant: Tenant, target: str, **values: Any) -> None:
    with house.database.write() as db:
        row = instances.fetch(db, tenant.org_id, target, lock=True)
        for name, value in values.items():
            setattr(row, name, value)


def test_other_changes_wait_for_its_end(house: House, tenant: Tenant, target: str) -> None:
    path = f"{tenant.path}/instances/{target}"
    asked = house.post(f"{path}/backups", tenant.key, json={})
    house.settle()
    migration_id = migrating(house, tenant, target)
    body = {"mode": "in_place", "confirm_name": "sales"}
    restore = f"{path}/backups/{asked.json()['id']}/actions/restore"
    refused = [
        house.post(f"{path}/actions/pause", tenant.key),
        house.request("PATCH", path, tenant.key, json={"size": "s0"}),
        house.post(restore, tenant.key, json=body),
    ]
    for each in refused:
        is_problem(each, 409, "conflict")
        assert migration_id in each.json()["detail"]
    assert house.get(path, tenant.key).json()["status"] == "running"
    allowed = [
        house.request("PATCH", path, tenant.key, json={"name": "sold"}),
        house.post(f"{path}/backups", tenant.key, json={}),
        house.post(f"{path}/branches", tenant.key, json={}),
        house.post(restore, tenant.key, json={}),
    ]
    assert [each.status_code for each in allowed] == [200, 201, 201, 201]
    house.settle()
    act(house, tenant, target, migration_id, "cancel")
    house.settle()
    house.cell.migrations(target).becomes(migration_id, status="cancelled")
    watch(house)
    assert house.post(f"{path}/actions/pause", tenant.key).status_code == 202


def test_it_is_cancelled_while_it_is_unfinished(house: House, tenant: Tenant, target: str) -> None:
    migration_id = migrating(house, tenant, target)
    for _ in range(2):
        answer = act(house, tenant, target, migration_id, "cancel")
        assert (answer.status_code, answer.json()["status"]) == (202, "cancelling")
    house.settle()
    house.cell.migrations(target).becomes(migration_id, status="cancelled")
    watch(house)
    assert get(house, tenant, target, migration_id)["status"] == "cancelled"
    is_problem(act(house, tenant, target, migration_id, "cancel"), 409)
    is_problem(act(house, tenant, target, migration_id, "source-url"), 409)


def test_a_cutover_is_for_what_is_syncing(house: House, tenant: Tenant, target: str) -> None:
    migration_id = migrating(house, tenant, target)
    refused = act(house, tenant, target, migration_id, "cutover")
    is_problem(refused, 409)
    assert "without sync it needs no cutover" in refused.json()["detail"]
    with house.database.write() as db:
        row = instances.fetch(db, tenant.org_id, target)
        migrations.fetch(db, row, migration_id, lock=True).mode = "copy_and_sync"
    refused = act(house, tenant, target, migration_id, "cutover")
    is_problem(refused, 409)
    assert "wait until it is syncing" in refused.json()["detail"]
    house.cell.migrations(target).becomes(migration_id, status="syncing", progress=copied(1000))
    watch(house)
    refused = act(house, tenant, target, migration_id, "cutover", keep_way_back_s=60)
    is_problem(refused, 422)
    _change(house, tenant, target, engine="postgres")
    is_problem(act(house, tenant, target, migration_id, "cutover", keep_way_back_s=10**6), 422)
    answer = act(house, tenant, target, migration_id, "cutover", keep_way_back_s=60)
    assert (answer.status_code, answer.json()["status"]) == (202, "cutting_over")
    assert answer.json()["keep_way_back_s"] == 60
    house.settle()
    is_problem(act(house, tenant, target, migration_id, "cutover"), 409)
    until = moment(60)
    told = {"status": "completed", "verification": compared(), "way_back_until": until}
    house.cell.migrations(target).becomes(migration_id, **told)
    watch(house)
    assert get(house, tenant, target, migration_id)["way_back_until"] is not None
    # What is kept of this one ends by a cancel.
    ended = act(house, tenant, target, migration_id, "cancel")
    assert (ended.status_code, ended.json()["status"]) == (202, "completed")
    house.settle()
    shown = get(house, tenant, target, migration_id)
    assert (shown["status"], shown["way_back_until"]) == ("completed", None)
    is_problem(act(house, tenant, target, migration_id, "cancel"), 409)


def test_a_way_back_is_kept_from_what_would_lose_it(
    house: House, tenant: Tenant, target: str
) -> None:
    path = f"{tenant.path}/instances/{target}"
    backup = house.post(f"{path}/backups", tenant.key, json={})
    house.settle()
    migration_id = migrating(house, tenant, target)
    told = {"status": "completed", "verification": compared(), "way_back_until": moment(60)}
    house.cell.migrations(target).becomes(migration_id, **told)
    watch(house)
    _change(house, tenant, target, engine_version="1.4")
    body = {"mode": "in_place", "confirm_name": "sales"}
    restored = f"{path}/backups/{backup.json()['id']}/actions/restore"
    for refused in (
        start(house, tenant, target),
        house.request("PATCH", path, tenant.key, json={"engine_version": "1.5"}),
        house.post(restored, tenant.key, json=body),
    ):
        is_problem(refused, 409, "conflict")
        assert f"while the migration {migration_id} keeps a way back" in refused.json()["detail"]
    # It goes on where the engine is started anew with the same data.
    assert house.request("PATCH", path, tenant.key, json={"size": "s0"}).status_code == 202
    house.settle()
    assert house.post(f"{path}/actions/pause", tenant.key).status_code == 202
    house.settle()
    assert house.request("DELETE", path, tenant.key).status_code == 202
    house.settle()
    (shown,) = house.get(f"{tenant.path}/migrations", tenant.key).json()["items"]
    assert (shown["status"], shown["way_back_until"]) == ("completed", None)
    assert shown["status_reason"] == "its instance was deleted"


@pytest.mark.parametrize("how", ["delete", "erase"])
def test_it_ends_with_its_instance(house: House, tenant: Tenant, target: str, how: str) -> None:
    migration_id = migrating(house, tenant, target)
    path = f"{tenant.path}/instances/{target}"
    if how == "delete":
        assert house.request("DELETE", path, tenant.key).status_code == 202
    else:
        session = house.session(tenant.owner.id, mfa=True)
        assert house.post(f"{path}/actions/erase", session).status_code == 202
    house.settle()
    watch(house)
    found = house.get(f"{tenant.path}/migrations", tenant.key).json()["items"]
    if how == "erase":
        assert found == []
    else:
        (shown,) = found
        assert (shown["id"], shown["status"]) == (migration_id, "cancelled")
        assert shown["status_reason"] == "its instance was deleted"
