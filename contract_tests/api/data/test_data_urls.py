"""URLs of dumps and backups: who gets one, of what, and what is told to the cell."""

from typing import Any

import httpx
import pytest

from contract_tests.api.access.test_organizations import audited
from contract_tests.api.harness import House
from contract_tests.api.instances.test_credentials import claims
from contract_tests.api.network.test_network import authority
from contract_tests.api.rows import Estate, estate, is_problem
from storage.instances import instances

ACTIONS = ["dump", "download"]


@pytest.fixture(scope="module")
def here(house: House) -> Estate:
    return estate(house)


def asked(house: House, of: Estate, action: str, token: str, **given: Any) -> httpx.Response:
    place = f"{of.tenant.path}/instances/{of.instance_id}"
    if action == "download":
        place += f"/backups/{of.backup_id}"
    return house.post(f"{place}/actions/{action}", token, **given)


@pytest.mark.parametrize(
    ("action", "audit"), [("dump", "instance.dump"), ("download", "backup.download")]
)
def test_the_url_is_signed_for_the_cell_and_audited(
    house: House, here: Estate, action: str, audit: str
) -> None:
    answer = asked(house, here, action, here.tenant.key)
    assert answer.status_code == 200, answer.text
    made = answer.json()
    assert made["url"].startswith(f"https://cell.local.localhost:8443/v1/{action}/")
    assert made["method"] == "GET"
    said = claims(made["url"])
    assert (said["action"], said["instance_id"]) == (action, here.instance_id)
    assert said["holder"] == here.tenant.key_id
    assert said["name"]
    assert said.get("backup_id") == (here.backup_id if action == "download" else None)
    target = here.backup_id if action == "download" else here.instance_id
    assert (audit, target) in audited(house, here.tenant.org_id)


def test_a_database_is_named_where_there_are_several(house: House) -> None:
    here = estate(house)
    named = {"json": {"database": "reports'; x"}}
    refused = asked(house, here, "dump", here.tenant.key, **named)
    is_problem(refused, 422)
    assert "leave the database out" in refused.json()["detail"]
    with house.database.write() as db:
        instances.fetch(db, here.tenant.org_id, here.instance_id).engine = "postgres"
    url = asked(house, here, "dump", here.tenant.key, **named).json()["url"]
    assert claims(url)["database"] == "reports'; x"
    for wrong in ("", "x" * 65, "a\nb", "a\0b", 7):
        is_problem(asked(house, here, "dump", here.tenant.key, json={"database": wrong}), 422)


@pytest.mark.parametrize("action", ACTIONS)
def test_who_may_have_the_data(house: House, here: Estate, action: str) -> None:
    tenant = here.tenant
    for role, status in (("admin", 200), ("developer", 200), ("member", 200), ("auditor", 403)):
        person = house.member(tenant.org_id, role)
        assert asked(house, here, action, person.session).status_code == status
    without, _ = house.key(
        tenant.org_id, tenant.owner, "owner", scopes=["backups:read", "credentials:reveal"]
    )
    is_problem(asked(house, here, action, without), 403, "permission_missing")
    having, _ = house.key(tenant.org_id, tenant.owner, "owner", scopes=["data:export"])
    assert asked(house, here, action, having).status_code == 200


def test_the_assurance_and_the_network_are_those_of_the_console(house: House) -> None:
    here = estate(house)
    tenant, session = here.tenant, house.session(here.tenant.owner.id, mfa=True)
    path = f"{tenant.path}/instances/{here.instance_id}/network"

    def answers() -> set[tuple[int, str]]:
        found = [asked(house, here, action, tenant.key) for action in ACTIONS]
        return {(each.status_code, each.json().get("code", "")) for each in found}

    for body, expected in (
        ({"allow_cidrs": ["192.0.2.0/24"]}, (403, "address_not_allowed")),
        ({"allow_cidrs": ["203.0.113.0/24"]}, (200, "")),
        ({"client_ca_pem": authority()[0]}, (409, "conflict")),
    ):
        changed = house.request("PUT", path, session, json=body, headers={"If-Match": "*"})
        assert changed.status_code == 200, changed.text
        assert answers() == {expected}
    house.change_org(tenant.org_id, require_mfa=True)
    assert answers() == {(403, "mfa_required")}


def test_a_backup_outlives_its_instance_until_that_is_erased(house: House) -> None:
    here = estate(house)
    path = f"{here.tenant.path}/instances/{here.instance_id}"
    fresh = house.post(f"{path}/backups", here.tenant.key, json={}).json()
    pending = Estate(here.tenant, here.instance_id, here.domain_id, fresh["id"])
    refused = asked(house, pending, "download", here.tenant.key)
    is_problem(refused, 409)
    assert "cannot download a backup that is pending" in refused.json()["detail"]
    house.settle()
    house.request("DELETE", path, here.tenant.key)
    house.settle()
    assert asked(house, here, "download", here.tenant.key).status_code == 200
    is_problem(asked(house, here, "dump", here.tenant.key), 409)
