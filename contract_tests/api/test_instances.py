"""Instances through the API: ordering, waiting, changing and going."""

from contract_tests.api.harness import House


def test_an_order_becomes_a_running_instance(house: House) -> None:
    tenant = house.tenant()
    path = f"{tenant.path}/projects/{tenant.project_id}/instances"
    ordered = house.post(path, tenant.key, json={"engine": "duckdb", "size": "f0"})
    assert ordered.status_code == 201
    instance = ordered.json()
    assert instance["status"] == "requested"
    assert instance["engine_version"] == "1.5"
    assert instance["host"].startswith("duckdb-")
    assert instance["host"].endswith(".local.localhost")
    where = ordered.headers["location"]
    assert house.get(where, tenant.key).json() == instance
    house.settle()
    assert house.get(where, tenant.key).json()["status"] == "running"
