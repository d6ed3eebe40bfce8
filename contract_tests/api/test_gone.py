"""An instance that is deleted is not changed, whatever the operation: by the document."""

from contract_tests.api.harness import House
from contract_tests.api.rows import OPERATIONS, is_problem, send

# What changes the instance itself, and nothing that its path names inside of it.
CHANGING = {
    one.id: one
    for one in OPERATIONS
    if one.method != "GET" and "{instance_id}" in one.path and one.path.count("{") == 2
}
OF_DELETED = {"instances.undelete", "instances.erase"}
"""What is done with deleted instances and no others."""


def test_a_deleted_instance_is_changed_by_nothing(house: House) -> None:
    tenant = house.tenant()
    ids = {"org_id": tenant.org_id, "instance_id": house.instance(tenant)}
    session = house.session(tenant.owner.id, mfa=True)
    is_problem(send(house, CHANGING["instances.undelete"], ids, session), 409)
    assert send(house, CHANGING["instances.delete"], ids, session).status_code == 202
    house.settle()
    answers = {
        name: send(house, operation, ids, session).status_code
        for name, operation in CHANGING.items()
        if name not in OF_DELETED
    }
    allowed = sorted(name for name, status in answers.items() if status != 409)
    assert not allowed, (
        f"{', '.join(allowed)}: done with a deleted instance; let a method of the instance refuse"
        " it, such as instance.change(waits=False)"
    )
    assert send(house, CHANGING["instances.undelete"], ids, session).is_success
