"""Instances through the API: ordering, waiting, changing and going."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import update

from contract_tests import written
from contract_tests.api.harness import House, Tenant
from contract_tests.api.rows import is_problem
from control.cells.client import CellRefused
from handlers.instances.instances import look_away_s
from storage.access.api_keys import ApiKey
from storage.database import now
from storage.instances import instances


@pytest.fixture
def tenant(house: House) -> Tenant:
    return house.tenant()


@pytest.fixture
def failing_cell(house: House) -> Iterator[None]:
    """A cell that refuses to provision."""

    def refuse(action: str, _instance_id: str) -> None:
        if action == "put":
            raise CellRefused("there is no memory left")

    before, house.cell.before = house.cell.before, refuse
    yield
    house.cell.before = before


def orders(tenant: Tenant) -> str:
    return f"{tenant.path}/projects/{tenant.project_id}/instances"


def order(house: House, tenant: Tenant, **body: Any) -> dict[str, Any]:
    answer = house.post(orders(tenant), tenant.key, json={"engine": "duckdb", "size": "f0", **body})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def look(house: House, tenant: Tenant, instance: dict[str, Any], query: str = "") -> dict[str, Any]:
    answer = house.get(f"{tenant.path}/instances/{instance['id']}{query}", tenant.key)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def act(house: House, tenant: Tenant, instance: dict[str, Any], action: str) -> Any:
    return house.post(f"{tenant.path}/instances/{instance['id']}/actions/{action}", tenant.key)


def kinds_of_events(house: House, tenant: Tenant) -> list[str]:
    with house.database.read() as db:
        return [one.type for one in written.events_of(db, tenant.org_id)]


def test_an_order_becomes_a_running_instance(house: House, tenant: Tenant) -> None:
    ordered = house.post(orders(tenant), tenant.key, json={"engine": "duckdb", "size": "f0"})
    assert ordered.status_code == 201
    instance = ordered.json()
    assert instance["status"] == "requested"
    assert instance["engine_version"] == "1.5"
    assert instance["storage_bytes"] == 10**9
    assert instance["name"].startswith("duckdb-")
    label = instance["id"].removeprefix("inst_").lower()
    assert instance["host"] == f"duckdb-{label}.local.localhost"
    where = ordered.headers["location"]
    assert house.get(where, tenant.key).json() == instance
    house.settle()
    running = house.get(where, tenant.key).json()
    assert running["status"] == "running"
    assert running["ready_at"]
    assert kinds_of_events(house, tenant) == ["instance.requested.v1", "instance.ready.v1"]


def test_a_dry_run_says_what_an_order_would_do_and_does_nothing(
    house: House, tenant: Tenant
) -> None:
    body = {"engine": "duckdb", "size": "s1", "name": "sales", "storage_bytes": 12 * 10**9}
    answer = house.post(f"{orders(tenant)}?dry_run=true", tenant.key, json=body)
    assert answer.status_code == 200
    preview = answer.json()
    assert preview["order"] == {
        **body,
        "engine_version": "1.5",
        "region": "local",
        "placement": "shared",
        "maintenance_window": None,
    }
    # 2 GB beyond the 10 that the size includes, at 12 cents.
    assert preview["cost_usd_cents_month"] == 1_524
    assert preview["quota_left"]["instances"] == 99
    assert preview["approval_required"] is False
    assert house.get(f"{tenant.path}/instances", tenant.key).json()["items"] == []
    assert kinds_of_events(house, tenant) == []
    order(house, tenant, name="sales")
    is_problem(house.post(f"{orders(tenant)}?dry_run=true", tenant.key, json=body), 409)


def test_an_order_is_held_against_catalogue_and_plan_all_at_once(house: House) -> None:
    free = house.tenant(plan="free")
    body = {
        "engine": "postgres",
        "size": "s1",
        "placement": "secure",
        "region": "moon",
        "storage_bytes": 5 * 10**12,
    }
    answer = house.post(orders(free), free.key, json=body)
    is_problem(answer, 422, "invalid_request")
    pointers = {error["pointer"] for error in answer.json()["errors"]}
    assert pointers >= {"/engine", "/size", "/placement", "/region", "/storage_bytes"}


@pytest.mark.every_database  # what locks is the database
def test_the_last_of_a_quota_goes_to_one_of_two(house: House) -> None:
    free = house.tenant(plan="free")
    order(house, free)
    asked = ("POST", orders(free), free.key)
    answers = house.together(
        *[(*asked, {"json": {"engine": "duckdb", "size": "f0"}}) for _ in range(4)]
    )
    assert sorted(one.status_code for one in answers) == [201, 422, 422, 422]
    refused = next(one for one in answers if one.status_code == 422)
    assert {error["keyword"] for error in refused.json()["errors"]} == {"quota"}


def test_storage_that_is_still_to_be_added_is_of_the_quota(house: House) -> None:
    """A change may wait for half an hour, and nobody looks at the quota when it is made."""
    solo = house.tenant(plan="solo")
    ids = [order(house, solo, size="m2", storage_bytes=50 * 10**9)["id"] for _ in range(3)]
    house.settle()
    wanted = {"json": {"storage_bytes": 500 * 10**9}}
    paths = [f"{solo.path}/instances/{each}" for each in ids]
    answers = [house.request("PATCH", each, solo.key, **wanted) for each in paths]
    assert [one.status_code for one in answers] == [202, 422, 422], answers[-1].text
    assert answers[-1].json()["errors"][0]["keyword"] == "quota"
    body = {"json": {"engine": "duckdb", "size": "m2", "storage_bytes": 450 * 10**9}}
    assert house.post(orders(solo), solo.key, **body).status_code == 422


def test_a_name_is_taken_once_in_a_project_until_its_holder_goes(
    house: House, tenant: Tenant
) -> None:
    first = order(house, tenant, name="sales")
    body = {"engine": "duckdb", "size": "f0", "name": "sales"}
    is_problem(house.post(orders(tenant), tenant.key, json=body), 409)
    house.request("DELETE", f"{tenant.path}/instances/{first['id']}", tenant.key)
    order(house, tenant, name="sales")


def test_a_retry_with_the_same_key_orders_once(house: House, tenant: Tenant) -> None:
    options = {
        "json": {"engine": "duckdb", "size": "f0"},
        "headers": {"Idempotency-Key": "order-1"},
    }
    first, second = (house.post(orders(tenant), tenant.key, **dict(options)) for _ in range(2))
    assert first.json() == second.json()
    assert second.headers["idempotency-replayed"] == "true"
    assert len(house.get(f"{tenant.path}/instances", tenant.key).json()["items"]) == 1


def test_waiting_ends_when_the_instance_runs(house: House, tenant: Tenant) -> None:
    instance = order(house, tenant)
    path = f"{tenant.path}/instances/{instance['id']}?wait_for=running&timeout_s=60"
    answer = house.during(house.settle, "GET", path, tenant.key)
    assert answer.json()["status"] == "running"


def test_who_waits_long_looks_less_often() -> None:
    looks, waited_s = 0, 0.0
    while waited_s < 25:
        away_s = look_away_s(waited_s)
        assert away_s <= max(0.2, waited_s / 4)
        waited_s += away_s
        looks += 1
    assert looks <= 40, "as many as five in a second were 125"


def test_waiting_ends_with_the_right_to_look(house: House, tenant: Tenant) -> None:
    instance = order(house, tenant)
    path = f"{tenant.path}/instances/{instance['id']}?wait_for=paused&timeout_s=60"

    def revoke() -> None:
        with house.database.write() as db:
            db.execute(update(ApiKey).values(revoked_at=now(db)))

    is_problem(house.during(revoke, "GET", path, tenant.key), 401)


def test_waiting_ends_with_its_time(house: House, tenant: Tenant) -> None:
    instance = order(house, tenant)
    query = "?wait_for=running&timeout_s=0"
    assert look(house, tenant, instance, query)["status"] == "requested"
    assert look(house, tenant, instance, "?wait_for=paused&timeout_s=1")["status"] == "requested"


@pytest.mark.usefixtures("failing_cell")
def test_waiting_ends_when_it_is_in_vain(house: House, tenant: Tenant) -> None:
    instance = order(house, tenant)
    house.settle()
    failed = look(house, tenant, instance, "?wait_for=running&timeout_s=60")
    assert failed["status"] == "failed"
    assert "there is no memory left" in failed["status_reason"]
    told = ["instance.requested.v1", "instance.failed.v1", "alert.raised.v1"]
    assert kinds_of_events(house, tenant) == told


def test_pausing_and_resuming(house: House, tenant: Tenant) -> None:
    instance = order(house, tenant)
    refused = act(house, tenant, instance, "pause")
    is_problem(refused, 409)
    assert refused.json()["detail"] == "cannot pause an instance that is requested"
    house.settle()
    is_problem(act(house, tenant, instance, "resume"), 409)
    pausing = act(house, tenant, instance, "pause")
    assert pausing.status_code == 202
    assert pausing.json()["status"] == "pausing"
    house.settle()
    paused = look(house, tenant, instance)
    assert (paused["status"], paused["paused_by"]) == ("paused", "user")
    assert act(house, tenant, instance, "resume").json()["status"] == "resuming"
    house.settle()
    assert look(house, tenant, instance)["status"] == "running"
    assert kinds_of_events(house, tenant)[-2:] == ["instance.paused.v1", "instance.resumed.v1"]


def test_a_list_is_filtered_sorted_and_paged(house: House, tenant: Tenant) -> None:
    made = [order(house, tenant, name=f"db-{number}")["id"] for number in range(5)]
    newest_first = made[::-1]
    for path in (f"{tenant.path}/instances", orders(tenant)):
        seen, cursor = [], ""
        while True:
            page = house.get(f"{path}?limit=2{cursor}", tenant.key).json()
            assert len(page["items"]) <= 2
            seen += [one["id"] for one in page["items"]]
            if page["next_cursor"] is None:
                break
            cursor = f"&cursor={page['next_cursor']}"
        assert seen == newest_first

    def listed(query: str) -> list[str]:
        found = house.get(f"{tenant.path}/instances?{query}", tenant.key).json()["items"]
        return [one["id"] for one in found]

    assert listed("name=db-3") == [made[3]]
    assert listed("engine=duckdb") == newest_first
    assert listed("engine=postgres") == []
    assert listed("status=requested") == newest_first
    assert listed("status=running") == []
    assert listed(f"project_id={tenant.project_id}") == newest_first
    assert listed("project_id=proj_01ARZ3NDEKTSV4RRFFQ69G5FAV") == []


def test_a_change_of_name_is_in_force_at_once(house: House, tenant: Tenant) -> None:
    instance = order(house, tenant)
    window = {"day": "sunday", "start": "03:00"}
    path = f"{tenant.path}/instances/{instance['id']}"
    body = {"name": "renamed", "maintenance_window": window}
    changed = house.request("PATCH", path, tenant.key, json=body)
    assert changed.status_code == 200
    assert changed.json()["name"] == "renamed"
    assert changed.json()["maintenance_window"] == window
    house.settle()
    assert look(house, tenant, instance)["name"] == "renamed"
    listed = house.get(f"{path}/changes", tenant.key).json()["items"]
    found = {one["kind"]: (one["old"], one["new"], one["status"]) for one in listed}
    assert found == {
        "name": (instance["name"], "renamed", "applied"),
        "maintenance_window": (None, window, "applied"),
    }
    removed = house.request("PATCH", path, tenant.key, json={"maintenance_window": None})
    assert removed.json()["maintenance_window"] is None


def test_a_change_of_size_is_carried_out_one_at_a_time(house: House, tenant: Tenant) -> None:
    instance = order(house, tenant, size="s0")
    path = f"{tenant.path}/instances/{instance['id']}"
    is_problem(house.request("PATCH", path, tenant.key, json={"size": "s1"}), 409)
    house.settle()
    changed = house.request("PATCH", path, tenant.key, json={"size": "s1"})
    assert changed.status_code == 202
    assert changed.json()["status"] == "resizing"
    assert changed.json()["size"] == "s0"
    is_problem(house.request("PATCH", path, tenant.key, json={"size": "s2"}), 409)
    house.settle()
    now = look(house, tenant, instance)
    assert (now["status"], now["size"]) == ("running", "s1")
    change = house.get(f"{path}/changes", tenant.key).json()["items"][0]
    assert (change["kind"], change["old"], change["new"]) == ("size", "s0", "s1")
    assert change["status"] == "applied"
    assert kinds_of_events(house, tenant)[-1] == "instance.resized.v1"
    assert house.cell.effects(instance["id"]) == ["put", "back_up", "resize"]


def test_a_change_that_may_not_be_says_everything_wrong(house: House, tenant: Tenant) -> None:
    instance = order(house, tenant, size="s0")
    house.settle()
    body = {"size": "xl32", "storage_bytes": 10**9, "placement": "secure", "engine_version": "9"}
    answer = house.request(
        "PATCH", f"{tenant.path}/instances/{instance['id']}", tenant.key, json=body
    )
    is_problem(answer, 422)
    pointers = {error["pointer"] for error in answer.json()["errors"]}
    assert pointers == {"/size", "/storage_bytes", "/placement", "/engine_version"}
    assert look(house, tenant, instance)["size"] == "s0"


def test_deleting_keeps_the_data_for_the_plans_time(house: House, tenant: Tenant) -> None:
    instance = order(house, tenant)
    house.settle()
    path = f"{tenant.path}/instances/{instance['id']}"
    deleted = house.request("DELETE", path, tenant.key)
    assert deleted.status_code == 202
    going = deleted.json()
    assert (going["status"], going["desired_status"]) == ("deleting", "deleted")
    assert going["purge_after"] > going["created_at"]
    is_problem(house.request("DELETE", path, tenant.key), 409)
    house.settle()
    assert look(house, tenant, instance)["status"] == "deleted"
    assert house.get(f"{tenant.path}/instances", tenant.key).json()["items"] == []
    found = house.get(f"{tenant.path}/instances?status=deleted", tenant.key).json()["items"]
    assert [one["id"] for one in found] == [instance["id"]]
    for action in ("pause", "resume"):
        is_problem(act(house, tenant, instance, action), 409)


def test_erasing_destroys_also_what_is_deleted(house: House, tenant: Tenant) -> None:
    instance = order(house, tenant)
    house.settle()
    path = f"{tenant.path}/instances/{instance['id']}"
    house.request("DELETE", path, tenant.key)
    house.settle()
    erasing = house.post(f"{path}/actions/erase", tenant.key)
    assert erasing.status_code == 202
    assert erasing.json()["status"] == "erasing"
    house.settle()
    assert look(house, tenant, instance)["status"] == "erased"
    is_problem(house.post(f"{path}/actions/erase", tenant.key), 409)
    assert house.cell.effects(instance["id"])[-1] == "erase"


def test_nobody_takes_back_an_erasure_that_failed(house: House, tenant: Tenant) -> None:
    instance = house.instance(tenant)
    path = f"{tenant.path}/instances/{instance}"
    assert house.post(f"{path}/actions/erase", tenant.key).status_code == 202
    with house.database.write() as db:
        instances.fetch(db, tenant.org_id, instance).became_failed("the cell does not answer")
    member = house.key(tenant.org_id, house.member(tenant.org_id, "member"), "member")[0]
    is_problem(house.request("DELETE", path, member), 409, "conflict")
    is_problem(house.post(f"{path}/actions/undelete", member), 409, "conflict")
    found = house.get(path, tenant.key).json()
    assert (found["status"], found["desired_status"]) == ("failed", "erased")


def test_only_an_owner_erases_by_whatever_credential(house: House, tenant: Tenant) -> None:
    admin = house.member(tenant.org_id, "admin", mfa=True)
    weaker = house.key(tenant.org_id, tenant.owner, "admin")[0]
    of_an_admin = house.key(tenant.org_id, admin, "owner")[0]
    narrow = house.key(tenant.org_id, tenant.owner, "owner", scopes=["instances:write"])[0]
    cut = house.key(tenant.org_id, tenant.owner, "owner", scopes=["instances:erase"])[0]
    for refused in (admin.session, weaker, of_an_admin, narrow):
        instance = house.instance(tenant, running=False)
        path = f"{tenant.path}/instances/{instance}/actions/erase"
        is_problem(house.post(path, refused), 403)
    for allowed in (tenant.owner.session, tenant.key, cut):
        instance = house.instance(tenant, running=False)
        path = f"{tenant.path}/instances/{instance}/actions/erase"
        assert house.post(path, allowed).status_code == 202
