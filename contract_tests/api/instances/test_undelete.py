"""Taking a delete back: as it was, within the retention, and only where it still has its place."""

from typing import Any

import pytest
from sqlalchemy import select

from contract_tests.api.conftest import MakeHouse
from contract_tests.api.harness import CELL_ID, House, Tenant
from contract_tests.api.rows import is_problem
from contract_tests.workflows.known import take_turn
from control.policy.sizes import MIB
from control.workflows.instances.resuming import NONE
from storage.catalogue import cells
from storage.database import now
from storage.events.audit import AuditEntry
from storage.events.events import Event
from storage.instances import changes, instances

DAY_S = 86400


@pytest.fixture
def tenant(house: House) -> Tenant:
    return house.tenant("Regretful")


def path_of(tenant: Tenant, instance_id: str) -> str:
    return f"{tenant.path}/instances/{instance_id}"


def delete(house: House, tenant: Tenant, instance_id: str) -> dict[str, Any]:
    answer = house.request("DELETE", path_of(tenant, instance_id), tenant.key)
    assert answer.status_code == 202, answer.text
    house.settle()
    return look(house, tenant, instance_id)


def undelete(house: House, tenant: Tenant, instance_id: str, **options: Any) -> Any:
    return house.post(f"{path_of(tenant, instance_id)}/actions/undelete", tenant.key, **options)


def look(house: House, tenant: Tenant, instance_id: str) -> dict[str, Any]:
    return dict(house.get(path_of(tenant, instance_id), tenant.key).json())


def refusal(answer: Any) -> str:
    is_problem(answer, 409, "conflict")
    return str(answer.json()["detail"])


def purge(house: House) -> None:
    with house.database.write() as db:
        take_turn(db, "instances.purge")
    house.settle()


def test_it_runs_again_as_it_was(house: House, tenant: Tenant) -> None:
    instance_id = house.instance(tenant)
    before = look(house, tenant, instance_id)
    assert delete(house, tenant, instance_id)["purge_after"]
    answer = undelete(house, tenant, instance_id)
    assert answer.status_code == 202, answer.text
    coming = answer.json()
    assert (coming["status"], coming["desired_status"]) == ("resuming", "running")
    assert coming["purge_after"] is None
    house.settle()
    after = look(house, tenant, instance_id)
    assert after == before | {"updated_at": after["updated_at"]}
    assert house.cell.effects(instance_id) == ["put", "delete", "put", "resume"]
    with house.database.read() as db:
        assert instances.fetch(db, tenant.org_id, instance_id).purge_after is None
    # Nothing of the retention is left that could end later.
    house.pass_time(400 * DAY_S)
    purge(house)
    assert look(house, tenant, instance_id)["status"] == "running"


def test_what_a_user_had_paused_is_paused_again(house: House, tenant: Tenant) -> None:
    instance_id = house.instance(tenant)
    house.post(f"{path_of(tenant, instance_id)}/actions/pause", tenant.key)
    house.settle()
    delete(house, tenant, instance_id)
    coming = undelete(house, tenant, instance_id).json()
    assert (coming["status"], coming["desired_status"]) == ("resuming", "paused")
    house.settle()
    after = look(house, tenant, instance_id)
    assert (after["status"], after["paused_by"]) == ("paused", "user")
    assert house.cell.observe(instance_id)["status"] == "paused"  # type: ignore[index]


def test_a_retry_with_its_key_gets_the_first_answer(house: House, tenant: Tenant) -> None:
    instance_id = house.instance(tenant)
    delete(house, tenant, instance_id)
    key = {"headers": {"Idempotency-Key": f"undelete-{instance_id}"}}
    first = undelete(house, tenant, instance_id, **key)
    house.settle()
    again = undelete(house, tenant, instance_id, **key)
    assert again.status_code == 202
    assert again.headers["idempotency-replayed"] == "true"
    assert again.json() == first.json()
    assert "is running" in refusal(undelete(house, tenant, instance_id))


def test_after_the_retention_it_is_refused_and_erased(house: House, tenant: Tenant) -> None:
    instance_id = house.instance(tenant)
    delete(house, tenant, instance_id)
    house.pass_time(400 * DAY_S)
    # Nobody has purged it yet, but it is allocated to nobody any more.
    assert "was kept until" in refusal(undelete(house, tenant, instance_id))
    purge(house)
    assert refusal(undelete(house, tenant, instance_id)).endswith("an instance that is erased")


def test_what_never_ran_does_not_come_back_empty(house: House, tenant: Tenant) -> None:
    instance_id = house.instance(tenant, running=False)
    assert delete(house, tenant, instance_id)["status"] == "deleted"
    assert "never ran" in refusal(undelete(house, tenant, instance_id))


def test_data_that_the_cell_lost_does_not_come_back_empty(house: House, tenant: Tenant) -> None:
    instance_id = house.instance(tenant)
    delete(house, tenant, instance_id)
    house.cell.forget(instance_id)
    assert undelete(house, tenant, instance_id).status_code == 202
    house.settle()
    found = look(house, tenant, instance_id)
    assert found["status"] == "paused"
    assert found["status_reason"] == f"resuming failed: {NONE}"
    assert house.cell.observe(instance_id) is None


def test_its_name_may_be_another_ones_now(house: House, tenant: Tenant) -> None:
    instance_id = house.instance(tenant, name="sales")
    delete(house, tenant, instance_id)
    other = house.instance(tenant, name="sales")
    assert "has an instance with this name" in refusal(undelete(house, tenant, instance_id))
    assert look(house, tenant, instance_id)["status"] == "deleted"
    house.request("PATCH", path_of(tenant, other), tenant.key, json={"name": "sales-2"})
    assert undelete(house, tenant, instance_id).status_code == 202


def test_it_counts_against_the_plan_again(house: House) -> None:
    tenant = house.tenant("Small", plan="free")
    instance_id = house.instance(tenant)
    delete(house, tenant, instance_id)
    others = [house.instance(tenant) for _ in range(2)]
    said = refusal(undelete(house, tenant, instance_id))
    assert said.startswith("cannot undelete the instance now: the free plan allows 2 instances")
    assert look(house, tenant, instance_id)["status"] == "deleted"
    delete(house, tenant, others[0])
    assert undelete(house, tenant, instance_id).status_code == 202


def test_a_change_that_was_cut_off_is_dropped(house: House, tenant: Tenant) -> None:
    instance_id = house.instance(tenant, size="s0")
    house.request("PATCH", path_of(tenant, instance_id), tenant.key, json={"size": "s1"})
    delete(house, tenant, instance_id)
    assert undelete(house, tenant, instance_id).status_code == 202
    house.settle()
    assert look(house, tenant, instance_id)["size"] == "s0"
    with house.database.read() as db:
        assert changes.pending(db, tenant.org_id, instance_id) == []
        assert instances.fetch(db, tenant.org_id, instance_id).updated_at <= now(db)


def test_it_needs_room_only_where_it_is_to_run(make_house: MakeHouse) -> None:
    house = make_house()
    tenant = house.tenant("Crowded", plan="enterprise")
    with house.database.write() as db:
        full = {"vcpu": 64, "memory_bytes": 2 * 512 * MIB, "storage_bytes": 10**15}
        cells.fetch(db, CELL_ID).capacity = full
    running, paused = house.instance(tenant), house.instance(tenant)
    house.post(f"{path_of(tenant, paused)}/actions/pause", tenant.key)
    house.settle()
    for instance_id in (running, paused):
        delete(house, tenant, instance_id)
    for _ in range(2):
        house.instance(tenant)
    said = refusal(undelete(house, tenant, running))
    assert said.startswith("cannot undelete the instance now: there is not enough memory left")
    assert undelete(house, tenant, paused).status_code == 202


def test_it_is_audited_and_told(house: House, tenant: Tenant) -> None:
    instance_id = house.instance(tenant)
    delete(house, tenant, instance_id)
    undelete(house, tenant, instance_id)
    house.settle()
    with house.database.read() as db:
        entries = select(AuditEntry.action).where(AuditEntry.target == instance_id)
        rows = entries.order_by(AuditEntry.id)
        assert list(db.scalars(rows))[-1] == "instance.undelete"
        told = select(Event).where(Event.instance_id == instance_id).order_by(Event.id)
        kinds = [(event.type, event.data.get("resumed_by")) for event in db.scalars(told)]
    assert kinds[-2:] == [("instance.deleted.v1", None), ("instance.resumed.v1", "user")]


def test_what_never_ran_is_erased_at_once(house: House, tenant: Tenant) -> None:
    instance_id = house.instance(tenant, running=False)
    answer = house.request("DELETE", path_of(tenant, instance_id), tenant.key)
    assert answer.status_code == 202
    house.settle()
    purge(house)
    assert look(house, tenant, instance_id)["status"] == "erased"


def test_deleted_instances_hold_so_much_and_no_more(house: House) -> None:
    """So that nobody fills a cell for days by ordering and deleting."""
    free = house.tenant("Forgetful", plan="free")
    for _ in range(10):
        delete(house, free, house.instance(free))
    order = {"engine": "duckdb", "size": "f0"}
    path = f"{free.path}/projects/{free.project_id}/instances"
    refused = house.post(path, free.key, json=order)
    is_problem(refused, 422)
    assert "your 10 deleted instances still hold 10 GB" in refused.text
    listed = house.get(f"{free.path}/instances", free.key, params={"status": "deleted"}).json()
    oldest = listed["items"][-1]["id"]
    assert house.post(f"{path_of(free, oldest)}/actions/erase", free.key).status_code == 202
    house.settle()
    assert house.post(path, free.key, json=order).status_code == 201
