"""Branches over the API: who may be branched, what comes of it, and what is refused."""

import pytest

from contract_tests.api.harness import House, Tenant
from contract_tests.api.rows import is_problem


@pytest.fixture
def tenant(house: House) -> Tenant:
    return house.tenant("Branching", plan="team")


def path(tenant: Tenant, instance_id: str) -> str:
    return f"{tenant.path}/instances/{instance_id}/branches"


def test_a_branch_is_an_instance_like_its_source(house: House, tenant: Tenant) -> None:
    source_id = house.instance(tenant)
    source = house.get(f"{tenant.path}/instances/{source_id}", tenant.key).json()
    made = house.post(path(tenant, source_id), tenant.key, json={"name": "try"})
    assert made.status_code == 201, made.text
    branch = made.json()
    assert made.headers["location"].endswith(f"/instances/{branch['id']}")
    same = ("engine", "engine_version", "size", "region", "placement", "storage_bytes")
    assert {name: branch[name] for name in same} == {name: source[name] for name in same}
    assert (branch["branch_of"], branch["status"]) == (source_id, "requested")
    assert branch["project_id"] == source["project_id"]
    assert branch["host"] != source["host"]
    house.settle()
    now = house.get(f"{tenant.path}/instances/{branch['id']}", tenant.key).json()
    assert now["status"] == "running"
    assert house.cell.effects(source_id) == ["put", "snapshot"]
    assert house.cell.effects(branch["id"]) == ["put"]
    listed = house.get(path(tenant, source_id), tenant.key).json()
    assert [one["id"] for one in listed["items"]] == [branch["id"]]
    assert house.get(path(tenant, branch["id"]), tenant.key).json()["items"] == []


def test_a_branch_holds_what_its_source_may_hold(house: House, tenant: Tenant) -> None:
    source_id = house.instance(tenant, size="s1")
    for body, pointer, keyword in (
        ({"size": "f0"}, "/size", "maximum"),
        ({"storage_bytes": 10**9}, "/storage_bytes", "minimum"),
        ({"size": "s9"}, "/size", "enum"),
    ):
        refused = house.post(path(tenant, source_id), tenant.key, json=body)
        is_problem(refused, 422)
        assert [(one["pointer"], one["keyword"]) for one in refused.json()["errors"]] == [
            (pointer, keyword)
        ]
    larger = house.post(path(tenant, source_id), tenant.key, json={"size": "s2"})
    assert larger.json()["size"] == "s2"


def test_what_has_no_data_yet_cannot_be_branched(house: House, tenant: Tenant) -> None:
    source_id = house.instance(tenant, running=False)
    refused = house.post(path(tenant, source_id), tenant.key, json={})
    is_problem(refused, 409)
    assert refused.json()["detail"] == "cannot branch an instance that is requested"


def test_a_branch_of_what_goes_meanwhile_fails_and_says_why(house: House, tenant: Tenant) -> None:
    source_id = house.instance(tenant)
    branch = house.post(path(tenant, source_id), tenant.key, json={}).json()
    house.cell.forget(source_id)
    house.settle()
    found = house.get(f"{tenant.path}/instances/{branch['id']}", tenant.key).json()
    assert found["status"] == "failed"
    assert found["status_reason"].startswith("provisioning failed: ")
