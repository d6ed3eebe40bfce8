"""What a cell tells of an instance that runs is shown by the API, in lists too."""

from contract_tests.api.harness import House
from contract_tests.workflows.known import take_turn


def test_what_the_cell_tells_of_a_running_instance_is_shown(house: House) -> None:
    tenant = house.tenant()
    instance_id = house.instance(tenant)
    for reason in ("the storage is full: all of its 1.00 GB are used", None):
        house.cell.becomes(instance_id, status_reason=reason)
        with house.database.write() as db:
            take_turn(db, "reconcile")
        house.settle()
        shown = house.get(f"{tenant.path}/instances/{instance_id}", tenant.key).json()
        assert (shown["status"], shown["status_reason"]) == ("running", reason)
        listed = house.get(f"{tenant.path}/instances", tenant.key).json()["items"]
        assert [one["status_reason"] for one in listed] == [reason]
