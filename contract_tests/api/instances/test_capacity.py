"""What the machines have room for: orders, changes, branches and resumes are held to it."""

import threading
from typing import Any

import pytest

from contract_tests.api.conftest import MakeHouse
from contract_tests.api.harness import CELL_ID, House, Tenant
from contract_tests.api.rows import is_problem
from contract_tests.workflows.known import take_turn
from control.policy.sizes import GB, GIB, MIB
from storage.catalogue import cells
from storage.instances import instances

F0_BYTES = 512 * MIB


@pytest.fixture
def house(make_house: MakeHouse) -> House:
    """One that no other test has instances in, nor notices how small its machine is."""
    return make_house()


@pytest.fixture
def tenant(house: House) -> Tenant:
    return house.tenant("Crowded", plan="enterprise")


def machine(house: House, **figures: float) -> None:
    """The cell's machine; one of which there is plenty unless it is said otherwise."""
    plenty = {"vcpu": 64, "memory_bytes": 2**40, "storage_bytes": 10**15}
    with house.database.write() as db:
        cells.fetch(db, CELL_ID).capacity = plenty | figures


def orders(tenant: Tenant) -> str:
    return f"{tenant.path}/projects/{tenant.project_id}/instances"


def refused(answer: Any) -> tuple[str, str]:
    is_problem(answer, 422)
    (error,) = answer.json()["errors"]
    assert error["keyword"] == "capacity"
    return error["pointer"], error["message"]


def test_a_size_that_no_machine_can_hold_is_refused(house: House, tenant: Tenant) -> None:
    machine(house, vcpu=2, memory_bytes=23 * GIB, storage_bytes=252 * GB)
    body = {"engine": "duckdb", "size": "xl32"}
    for query in ("", "?dry_run=true"):
        pointer, message = refused(house.post(orders(tenant) + query, tenant.key, json=body))
        assert pointer == "/size"
        assert "needs more CPU, memory and disk than any machine here has" in message
        assert "the largest size that fits now is m2" in message
    assert house.get(f"{tenant.path}/instances", tenant.key).json()["items"] == []
    sizes = house.get("/v1/sizes", tenant.key).json()["items"]
    assert [one["id"] for one in sizes if one["fits_in"]] == ["f0", "s0", "s1", "s2", "m2"]
    assert sizes[0]["fits_in"] == ["local"]


@pytest.mark.every_database  # what locks is the database
def test_fifty_orders_at_once_make_as_many_as_there_is_room_for(
    house: House, tenant: Tenant
) -> None:
    room = 7
    machine(house, memory_bytes=(room + 1) * F0_BYTES - 1)
    body = {"engine": "duckdb", "size": "f0"}
    answers = house.together(*[("POST", orders(tenant), tenant.key, {"json": body})] * 50)
    assert sorted({answer.status_code for answer in answers}) == [201, 422]
    assert sum(answer.status_code == 201 for answer in answers) == room
    listed = house.get(f"{tenant.path}/instances?limit=100", tenant.key).json()["items"]
    assert len(listed) == room


@pytest.mark.every_database  # what locks is the database
def test_an_order_waits_while_another_counts_what_its_cell_has_promised(
    house: House, tenant: Tenant
) -> None:
    answers: list[Any] = []

    def order() -> None:
        body = {"engine": "duckdb", "size": "f0"}
        answers.append(house.post(orders(tenant), tenant.key, json=body))

    waiting = threading.Thread(target=order)
    with house.database.write() as db:
        cells.lock(db, [cells.fetch(db, CELL_ID)])
        waiting.start()
        # Not a wait for something: it must not end, however long it is given.
        waiting.join(2)
        assert waiting.is_alive()
    waiting.join()
    assert [answer.status_code for answer in answers] == [201]


def test_a_pause_makes_room_that_a_resume_needs(house: House, tenant: Tenant) -> None:
    machine(house, memory_bytes=2 * F0_BYTES)
    first, second = house.instance(tenant), house.instance(tenant)
    third = {"engine": "duckdb", "size": "f0"}
    assert refused(house.post(orders(tenant), tenant.key, json=third))[0] == "/size"
    path = f"{tenant.path}/instances"
    assert house.post(f"{path}/{first}/actions/pause", tenant.key).status_code == 202
    # Until it has stopped it is there.
    assert refused(house.post(orders(tenant), tenant.key, json=third))[0] == "/size"
    house.settle()
    house.instance(tenant)
    full = house.post(f"{path}/{first}/actions/resume", tenant.key)
    is_problem(full, 409)
    assert full.json()["detail"].startswith(
        "cannot resume the instance now: there is not enough memory left for size f0; "
        "no size fits now"
    )
    assert house.get(f"{path}/{first}", tenant.key).json()["status"] == "paused"
    assert house.request("DELETE", f"{path}/{second}", tenant.key).status_code == 202
    house.settle()
    assert house.post(f"{path}/{first}/actions/resume", tenant.key).status_code == 202


def test_what_was_paused_because_it_was_idle_keeps_its_room(house: House, tenant: Tenant) -> None:
    machine(house, memory_bytes=F0_BYTES)
    instance = house.instance(tenant)
    house.cell.becomes(instance, status="paused", paused_by="idle")
    with house.database.write() as db:
        take_turn(db, "reconcile")
    house.settle()
    path = f"{tenant.path}/instances/{instance}"
    assert house.get(path, tenant.key).json()["paused_by"] == "idle"
    body = {"engine": "duckdb", "size": "f0"}
    assert refused(house.post(orders(tenant), tenant.key, json=body))[0] == "/size"
    assert house.post(f"{path}/actions/resume", tenant.key).status_code == 202


def fails_to_resume(house: House, tenant: Tenant, instance: str, paused_by: str) -> str:
    """As the reconciler finds it afterwards; answers its path."""
    path = f"{tenant.path}/instances/{instance}"
    if paused_by == "user":
        assert house.post(f"{path}/actions/pause", tenant.key).status_code == 202
        house.settle()
    for seen in ({"status": "paused", "paused_by": paused_by}, {"status": "failed"}):
        house.cell.becomes(instance, **seen)
        with house.database.write() as db:
            take_turn(db, "reconcile")
        house.settle()
    found = house.get(path, tenant.key).json()
    assert (found["status"], found["desired_status"]) == ("failed", "paused")
    return path


def test_what_failed_to_resume_is_changed_to_run_where_it_has_room(
    house: House, tenant: Tenant
) -> None:
    machine(house, memory_bytes=2 * GIB, storage_bytes=100 * GB)
    path = fails_to_resume(house, tenant, house.instance(tenant, size="s0"), "user")
    others = [house.instance(tenant, size="s0") for _ in range(2)]
    more = {"storage_bytes": 6 * GB}
    assert refused(house.request("PATCH", path, tenant.key, json=more))[0] == "/size"
    with house.database.write() as db:
        instances.fetch(
            db, tenant.org_id, path.rpartition("/")[2], lock=True
        ).engine_version = "1.4"
    full = house.request("PATCH", path, tenant.key, json={"engine_version": "1.5"})
    is_problem(full, 409)
    assert full.json()["detail"].startswith("cannot change the instance now: there is not enough")
    assert house.get(path, tenant.key).json()["status"] == "failed"
    assert house.request("DELETE", f"{tenant.path}/instances/{others[0]}", tenant.key).is_success
    house.settle()
    changed = house.request("PATCH", path, tenant.key, json=more)
    assert (changed.status_code, changed.json()["desired_status"]) == (202, "running")
    house.cell.becomes(path.rpartition("/")[2], status="running")
    house.settle()
    found = house.get(path, tenant.key).json()
    assert (found["status"], found["storage_bytes"]) == ("running", 6 * GB)


def test_what_failed_to_resume_is_restored_where_it_has_room(house: House, tenant: Tenant) -> None:
    machine(house, memory_bytes=F0_BYTES)
    instance = house.instance(tenant, name="sales")
    backups = f"{tenant.path}/instances/{instance}/backups"
    backup_id = house.post(backups, tenant.key, json={}).json()["id"]
    house.settle()
    fails_to_resume(house, tenant, instance, "user")
    other = house.instance(tenant)
    path = f"{backups}/{backup_id}/actions/restore"
    body = {"mode": "in_place", "confirm_name": "sales"}
    full = house.post(path, tenant.key, json=body)
    is_problem(full, 409)
    assert full.json()["detail"].startswith("cannot restore the instance now: there is not enough")
    assert house.request("DELETE", f"{tenant.path}/instances/{other}", tenant.key).is_success
    house.settle()
    assert house.post(path, tenant.key, json=body).status_code == 201


def test_what_failed_to_wake_keeps_its_room(house: House, tenant: Tenant) -> None:
    machine(house, memory_bytes=F0_BYTES)
    fails_to_resume(house, tenant, house.instance(tenant), "idle")
    body = {"engine": "duckdb", "size": "f0"}
    assert refused(house.post(orders(tenant), tenant.key, json=body))[0] == "/size"


def test_a_change_of_what_is_deleted_meanwhile_takes_nothing(house: House, tenant: Tenant) -> None:
    """It would wait for good, and keep what it had asked for as long as the data is kept."""
    machine(house, memory_bytes=4 * GIB)
    instance = house.instance(tenant, size="s0")
    path = f"{tenant.path}/instances/{instance}"
    asked = {"size": "s1", "storage_bytes": 10 * GB}
    assert house.request("PATCH", path, tenant.key, json=asked).status_code == 202
    assert house.request("DELETE", path, tenant.key).status_code == 202
    body = {"engine": "duckdb", "size": "s1"}
    assert house.post(orders(tenant), tenant.key, json=body).status_code == 201
    house.settle()
    found = house.get(f"{path}/changes", tenant.key).json()["items"]
    assert {each["status"] for each in found} == {"failed"}


def test_changes_are_counted_from_when_they_are_asked(house: House, tenant: Tenant) -> None:
    machine(house, memory_bytes=4 * GIB, storage_bytes=20 * GB)
    instance = house.instance(tenant, size="s0")
    path = f"{tenant.path}/instances/{instance}"
    pointer, message = refused(house.request("PATCH", path, tenant.key, json={"size": "m2"}))
    assert pointer == "/size"
    assert message.startswith("size m2 needs more memory than any machine here has; ")
    assert "the largest size that fits now is s2" in message
    wanted = {"storage_bytes": 10 * GB}
    changed = house.request("PATCH", path, tenant.key, json={"size": "s1", **wanted})
    assert changed.status_code == 202, changed.text
    # 2 GiB of 4 are to be its own, though it is an s0 still.
    refused(house.post(orders(tenant), tenant.key, json={"engine": "duckdb", "size": "s2"}))
    body = {"engine": "duckdb", "size": "s1", "storage_bytes": 40 * GB}
    assert refused(house.post(orders(tenant), tenant.key, json=body))[0] == "/storage_bytes"
    house.settle()
    house.instance(tenant, size="s1")
    is_full = house.request("PATCH", path, tenant.key, json={"size": "s2"})
    assert refused(is_full)[0] == "/size"
    # What becomes smaller needs no room, and makes some.
    machine(house, memory_bytes=3 * GIB, storage_bytes=20 * GB)
    assert house.request("PATCH", path, tenant.key, json={"size": "s0"}).status_code == 202


def test_a_branch_needs_room_where_its_source_is(house: House, tenant: Tenant) -> None:
    machine(house, memory_bytes=3 * GIB)
    source = house.instance(tenant, size="s1")
    path = f"{tenant.path}/instances/{source}/branches"
    assert refused(house.post(path, tenant.key, json={}))[0] == "/size"
    machine(house, memory_bytes=4 * GIB)
    assert house.post(path, tenant.key, json={}).status_code == 201


def test_what_is_deleted_keeps_its_storage_until_it_is_erased(house: House, tenant: Tenant) -> None:
    machine(house, storage_bytes=1 * GB)
    made = [house.instance(tenant) for _ in range(2)]
    body = {"engine": "duckdb", "size": "f0"}
    path = f"{tenant.path}/instances/{made[0]}"
    assert house.request("DELETE", path, tenant.key).status_code == 202
    house.settle()
    assert "not enough disk" in refused(house.post(orders(tenant), tenant.key, json=body))[1]
    assert house.post(f"{path}/actions/erase", tenant.key).status_code == 202
    house.settle()
    house.instance(tenant)
