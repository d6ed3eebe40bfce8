"""Backup settings over the API: what the plan allows, what was chosen, and what holds."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from contract_tests.api.harness import House, Tenant
from contract_tests.api.rows import is_problem


def path(tenant: Tenant, instance_id: str) -> str:
    return f"{tenant.path}/instances/{instance_id}/backup-settings"


def change(house: House, tenant: Tenant, instance_id: str, **body: Any) -> Any:
    return house.request("PATCH", path(tenant, instance_id), tenant.key, json=body)


def test_what_nobody_chose_is_the_default(house: House) -> None:
    tenant = house.tenant(plan="free")
    instance_id = house.instance(tenant)
    found = house.get(path(tenant, instance_id), tenant.key).json()
    assert found["plan"] == {
        "frequencies": ["weekly", "daily"],
        "retention_days_max": 3,
        "manual_backups_max": 1,
        "pitr_days": 0,
        "copy_targets": ["none"],
    }
    choices = ("frequency", "retention_days", "window_start", "continuous_archiving", "copy_target")
    assert found["overrides"] == dict.fromkeys(choices)
    next_ = datetime.fromisoformat(found["effective"].pop("next_backup_at"))
    assert house.now() < next_ <= house.now() + timedelta(days=1)
    assert 2 <= next_.hour < 4
    assert found["effective"] == {
        "frequency": "daily",
        "retention_days": 3,
        "window_start": "02:00",
        "window_end": "04:00",
        "continuous_archiving": False,
        "copy_target": "none",
    }
    assert (found["copies"]["status"], found["copies"]["as_of"]) == ("off", None)
    assert found["updated_by"] is None


def test_what_is_chosen_stays_until_it_is_taken_back(house: House) -> None:
    tenant = house.tenant(plan="team")
    instance_id = house.instance(tenant)
    house.pass_time(60)
    chosen = change(house, tenant, instance_id, frequency="hourly", window_start="23:15")
    made = house.get(f"{tenant.path}/instances/{instance_id}", tenant.key).json()["created_at"]
    assert chosen.json()["updated_at"] > made
    assert chosen.status_code == 200, chosen.text
    assert chosen.json() == house.get(path(tenant, instance_id), tenant.key).json()
    found = change(house, tenant, instance_id, retention_days=9, window_start=None).json()
    assert found["overrides"] == {
        "frequency": "hourly",
        "retention_days": 9,
        "window_start": None,
        "continuous_archiving": None,
        "copy_target": None,
    }
    assert found["effective"]["window_start"] == "02:00"
    next_ = datetime.fromisoformat(found["effective"]["next_backup_at"])
    assert next_ <= house.now() + timedelta(hours=1)
    assert found["updated_by"] == tenant.key_id
    log = house.get(f"{tenant.path}/audit?action=backup_settings.update", tenant.key).json()
    changes = log["items"][0]["detail"].pop("changes")
    assert log["items"][0]["detail"] == {"retention_days": 9, "window_start": None}
    assert changes == {
        "retention_days": {"from": None, "to": 9},
        "window_start": {"from": "23:15", "to": None},
    }
    house.change_org(tenant.org_id, plan="solo")
    capped = house.get(path(tenant, instance_id), tenant.key).json()
    assert (capped["overrides"], capped["effective"]["frequency"]) == (found["overrides"], "daily")
    assert capped["effective"]["retention_days"] == 7


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({"frequency": "hourly", "retention_days": 4}, {"/frequency", "/retention_days"}),
        ({"frequency": "yearly"}, {"/frequency"}),
        ({"retention_days": 0}, {"/retention_days"}),
        ({"continuous_archiving": True}, {"/continuous_archiving"}),
        ({"continuous_archiving": "yes"}, {"/continuous_archiving"}),
        ({"window_start": "24:00"}, {"/window_start"}),
        ({"window_start": "2:00"}, {"/window_start"}),
        ({"copy_target": "second_store"}, {"/copy_target"}),
        ({"copy_target": "elsewhere"}, {"/copy_target"}),
        ({"cross_region": "elsewhere"}, {"/cross_region"}),
        ({}, {""}),
    ],
)
def test_what_cannot_be_is_refused(house: House, body: dict[str, Any], pointers: set[str]) -> None:
    tenant = house.tenant(plan="free")
    instance_id = house.instance(tenant)
    refused = change(house, tenant, instance_id, **body)
    is_problem(refused, 422)
    assert {one["pointer"] for one in refused.json()["errors"]} == pointers
    found = house.get(path(tenant, instance_id), tenant.key).json()
    assert set(found["overrides"].values()) == {None}


def test_a_deleted_instance_keeps_its_settings(house: House) -> None:
    tenant = house.tenant(plan="team")
    instance_id = house.instance(tenant)
    assert change(house, tenant, instance_id, retention_days=9).status_code == 200
    one = f"{tenant.path}/instances/{instance_id}"
    assert house.request("DELETE", one, tenant.key).status_code == 202
    is_problem(change(house, tenant, instance_id, retention_days=1), 409)
    found = house.get(path(tenant, instance_id), tenant.key).json()
    assert found["overrides"]["retention_days"] == 9
    assert found["effective"]["next_backup_at"] is None


def test_copies_are_wanted_where_the_installation_has_a_second_store(house: House) -> None:
    tenant = house.tenant(plan="team")
    instance_id = house.instance(tenant)
    house.has_second_store(False)
    refused = change(house, tenant, instance_id, copy_target="second_store")
    is_problem(refused, 409)
    assert "no second store" in refused.json()["detail"]
    assert "backup_copy_store_url" in refused.json()["detail"]
    for body in ({"copy_target": "none"}, {"copy_target": None}):
        assert change(house, tenant, instance_id, **body).status_code == 200
    house.has_second_store(True)
    chosen = change(house, tenant, instance_id, copy_target="second_store").json()
    assert chosen["plan"]["copy_targets"] == ["none", "second_store"]
    assert chosen["overrides"]["copy_target"] == "second_store"
    assert chosen["effective"]["copy_target"] == "second_store"
    house.settle()
    assert (house.cell.observe(instance_id) or {})["copies"]["wanted"] is True
    house.change_org(tenant.org_id, plan="solo")
    capped = house.get(path(tenant, instance_id), tenant.key).json()
    assert capped["effective"]["copy_target"] == "none"
    assert capped["overrides"]["copy_target"] == "second_store"
    assert change(house, tenant, instance_id, copy_target=None).status_code == 200
    house.settle()
    assert (house.cell.observe(instance_id) or {})["copies"]["wanted"] is False
