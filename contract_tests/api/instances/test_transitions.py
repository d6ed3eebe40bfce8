"""Every verb against every status: the table of docs/api.md, and what the API really does."""

import re
from pathlib import Path
from typing import Any

import pytest

from contract_tests.api.harness import House, Tenant
from contract_tests.api.rows import is_problem
from contract_tests.by_day import one_in
from storage import identifiers
from storage.instances import instances
from storage.instances.instances import STATUSES, Instance
from storage.work import Work

PAGE = Path(__file__).resolve().parents[3] / "docs" / "api.md"
VERBS = ("pause", "resume", "resize", "rename", "delete", "undelete", "erase")


def documented() -> dict[tuple[str, str], str | None]:
    """(status, verb) -> the status it leads to, or None for 409, as the page's table says."""
    instances_part = PAGE.read_text().partition("\n## Instances")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \|(.+)\|$", instances_part, re.MULTILINE)
    table = {}
    for status, cells in rows:
        words = [cell.strip().strip("`") for cell in cells.split("|")]
        assert len(words) == len(VERBS), status
        for verb, word in zip(VERBS, words, strict=True):
            table[status, verb] = None if word == "409" else word
    return table


TABLE = documented()


@pytest.fixture(scope="module")
def tenant(house: House) -> Tenant:
    return house.tenant()


def test_the_page_has_a_row_for_every_status() -> None:
    assert {status for status, _ in TABLE} == set(STATUSES)


@pytest.mark.parametrize("status", one_in(3, STATUSES))
def test_a_verb_leads_where_the_page_says(house: House, tenant: Tenant, status: str) -> None:
    for verb in VERBS:
        instance_id = _in_status(house, tenant, status)
        leads_to = TABLE[status, verb]
        answer = _ask(house, tenant, instance_id, verb)
        if leads_to is None:
            is_problem(answer, 409)
        else:
            assert answer.status_code == (200 if verb == "rename" else 202), (verb, answer.text)
            assert answer.json()["status"] == leads_to, verb
        found = house.get(f"{tenant.path}/instances/{instance_id}", tenant.key).json()
        assert found["status"] == (leads_to or status), verb


def _in_status(house: House, tenant: Tenant, status: str) -> str:
    instance_id = house.instance(tenant, running=False, size="s0")
    with house.database.write() as db:
        instance = instances.fetch(db, tenant.org_id, instance_id)
        instance.status = status
        instance.desired_status = _desired(status)
        # What never ran has nothing to come back with.
        instance.ready_at = house.database.now(db)
        _forget_work(db, instance)
    return instance_id


def _forget_work(db: Any, instance: Instance) -> None:
    """Nothing is to move it from where the test put it."""
    for work in db.query(Work).filter(Work.lane == instance.id):
        db.delete(work)


def _desired(status: str) -> str:
    by_status = {"deleting": "deleted", "erasing": "erased", "pausing": "paused"}
    wanted = by_status.get(status, status)
    return wanted if wanted in instances.DESIRED else "running"


def _ask(house: House, tenant: Tenant, instance_id: str, verb: str) -> Any:
    path = f"{tenant.path}/instances/{instance_id}"
    if verb == "delete":
        return house.request("DELETE", path, tenant.key)
    if verb == "resize":
        return house.request("PATCH", path, tenant.key, json={"size": "s1"})
    if verb == "rename":
        name = f"n{identifiers.new('').lower()}"
        return house.request("PATCH", path, tenant.key, json={"name": name})
    return house.post(f"{path}/actions/{verb}", tenant.key)
