"""A closed organization answers 409 to every change, as the document says, and can be read."""

import pytest

from contract_tests.api.harness import House
from contract_tests.api.rows import OPERATIONS, Estate, estate, is_problem, send
from specserver import Operation

IN_ORG = [one for one in OPERATIONS if "{org_id}" in one.path]
CHANGES = [one for one in IN_ORG if one.method not in {"GET", "HEAD"}]


def ids(operation: Operation) -> str:
    return operation.id


@pytest.fixture(scope="module")
def closed(house: House) -> Estate:
    made = estate(house, "Closed")
    house.change_org(made.tenant.org_id, status="closed", closed_at=house.now())
    return made


@pytest.mark.parametrize("operation", CHANGES, ids=ids)
def test_nothing_of_a_closed_organization_is_changed(
    house: House, closed: Estate, operation: Operation
) -> None:
    session = house.session(closed.tenant.owner.id, mfa=True)
    answer = send(house, operation, closed.ids, session)
    is_problem(answer, 409, "org_closed")
    assert "409" in operation.document["responses"]


def test_it_can_be_read(house: House, closed: Estate) -> None:
    assert house.get(closed.tenant.path, closed.tenant.key).json()["status"] == "closed"
    assert house.get(f"{closed.tenant.path}/instances", closed.tenant.key).json()["items"]
