"""Custom domains: added, looked up in a real DNS, told to the cell, moved and removed."""

from typing import Any

import pytest
from sqlalchemy import select

from contract_tests.api.harness import House, Tenant
from contract_tests.api.rows import is_problem
from contract_tests.workflows.known import take_turn
from storage.records import Work


@pytest.fixture
def tenant(house: House) -> Tenant:
    house.names.start()
    house.names.records.clear()
    house.names.fails = False
    return house.tenant("Named", plan="team")


def path(tenant: Tenant, instance_id: str) -> str:
    return f"{tenant.path}/instances/{instance_id}/domains"


def add(house: House, tenant: Tenant, instance_id: str, hostname: str) -> dict[str, Any]:
    made = house.post(path(tenant, instance_id), tenant.key, json={"hostname": hostname})
    assert made.status_code == 201, made.text
    return dict(made.json())


def verify(house: House, tenant: Tenant, domain: dict[str, Any]) -> dict[str, Any]:
    """The domain after it was looked up."""
    listed = path(tenant, domain["instance_id"])
    asked = house.post(f"{listed}/{domain['id']}/actions/verify", tenant.key)
    assert asked.status_code == 202, asked.text
    house.settle()
    found = house.get(listed, tenant.key).json()["items"]
    return next(dict(one) for one in found if one["id"] == domain["id"])


def reconcile(house: House) -> None:
    with house.database.write() as db:
        take_turn(db, "reconcile")
    house.settle()


def test_a_domain_is_in_force_once_its_record_is_there(house: House, tenant: Tenant) -> None:
    instance_id = house.instance(tenant)
    domain = add(house, tenant, instance_id, "DB.Example.com.")
    host = house.get(f"{tenant.path}/instances/{instance_id}", tenant.key).json()["host"]
    assert domain["hostname"] == "db.example.com"
    assert domain["cname"] == {"name": "db.example.com", "target": host}
    assert (domain["status"], domain["checked_at"]) == ("pending", None)

    failed = verify(house, tenant, domain)
    assert failed["status"] == "failed"
    assert failed["status_reason"] == (
        "db.example.com has no CNAME record that leads to this instance; create this DNS record:"
        f" db.example.com CNAME {host}"
    )
    house.names.records["db.example.com"] = "elsewhere.example.net"
    # No word of what was found: the resolver may know more names than all the world does.
    assert verify(house, tenant, domain)["status_reason"] == failed["status_reason"]
    house.names.records |= {"elsewhere.example.net": host.upper()}
    verified = verify(house, tenant, domain)
    assert (verified["status"], verified["status_reason"]) == ("verified", None)
    assert verified["verified_at"] == verified["checked_at"]
    assert house.cell.told(instance_id)["domains"] == ["db.example.com"]

    del house.names.records["db.example.com"]
    assert verify(house, tenant, domain)["status"] == "failed"
    assert house.cell.told(instance_id)["domains"] == []


def test_a_domain_that_is_removed_is_taken_from_the_cell(house: House, tenant: Tenant) -> None:
    instance_id = house.instance(tenant)
    domain = add(house, tenant, instance_id, "gone.example.com")
    house.names.records["gone.example.com"] = domain["cname"]["target"]
    assert verify(house, tenant, domain)["status"] == "verified"
    one = f"{path(tenant, instance_id)}/{domain['id']}"
    assert house.request("DELETE", one, tenant.key).status_code == 204
    house.settle()
    assert house.cell.told(instance_id)["domains"] == []
    is_problem(house.request("DELETE", one, tenant.key), 404)
    assert add(house, tenant, instance_id, "gone.example.com")["status"] == "pending"


def test_the_dns_says_whose_a_name_is(house: House, tenant: Tenant) -> None:
    other = house.tenant("Other", plan="team")
    first = add(house, tenant, house.instance(tenant), "moves.example.com")
    second = add(house, other, house.instance(other), "moves.example.com")
    house.names.records["moves.example.com"] = first["cname"]["target"]
    assert verify(house, tenant, first)["status"] == "verified"
    assert verify(house, other, second)["status"] == "failed"
    house.names.records["moves.example.com"] = second["cname"]["target"]
    assert verify(house, other, second)["status"] == "verified"
    lost = house.get(path(tenant, first["instance_id"]), tenant.key).json()["items"][0]
    assert lost["status"] == "failed"
    assert "points to another instance" in lost["status_reason"]
    assert house.cell.told(first["instance_id"])["domains"] == []
    assert house.cell.told(second["instance_id"])["domains"] == ["moves.example.com"]


def told_of(house: House, tenant: Tenant) -> list[tuple[str, str, bool]]:
    """Of each alert about domains its title, its severity and whether it is over."""
    with house.database.write() as db:
        take_turn(db, "alerts.evaluate")
    house.settle()
    listed = house.get(f"{tenant.path}/alerts", tenant.key, params={"kind": "domain_lost"})
    found = listed.json()["items"]
    return [(one["title"], one["severity"], one["resolved_at"] is not None) for one in found]


def test_who_loses_a_domain_is_told(house: House, tenant: Tenant) -> None:
    other = house.tenant("Other", plan="team")
    instance_id, within = house.instance(tenant), house.instance(tenant)
    first = add(house, tenant, instance_id, "lost.example.com")
    second = add(house, other, house.instance(other), "lost.example.com")
    third = add(house, tenant, within, "lost.example.com")
    records = house.names.records

    def leads_to(domain: dict[str, Any], owner: Tenant = tenant) -> None:
        records["lost.example.com"] = domain["cname"]["target"]
        assert verify(house, owner, domain)["status"] == "verified"

    name = house.get(f"{tenant.path}/instances/{instance_id}", tenant.key).json()["name"]
    title = f"lost.example.com no longer leads to {name}"
    assert verify(house, tenant, first)["status"] == "failed"
    leads_to(first)
    assert told_of(house, tenant) == []
    leads_to(second, other)
    assert told_of(house, tenant) == [(title, "warning", False)]
    assert told_of(house, other) == []
    leads_to(first)
    assert told_of(house, tenant) == [(title, "warning", True)]
    # Within the organization somebody has moved it.
    leads_to(third)
    assert told_of(house, tenant)[0] == (title, "info", False)
    one = f"{path(tenant, instance_id)}/{first['id']}"
    assert house.request("DELETE", one, tenant.key).status_code == 204
    assert told_of(house, tenant)[0] == (title, "info", True)


def test_a_dns_that_fails_is_asked_again_and_then_said(house: House, tenant: Tenant) -> None:
    domain = add(house, tenant, house.instance(tenant), "slow.example.com")
    house.names.fails = True
    failed = verify(house, tenant, domain)
    assert failed["status"] == "failed"
    assert failed["status_reason"] == (
        "DNS did not answer for slow.example.com; try to verify it again later"
    )
    assert house.names.questions.count("slow.example.com") >= 3


@pytest.mark.parametrize(
    ("hostname", "said"),
    [
        ("*.example.com", "each host separately"),
        ("localhost", "such as db.example.com"),
        ("db.local.localhost", "are reserved"),
        ("münchen.example.com", "must be in ASCII"),
        ("192.0.2.7", "such as db.example.com"),
        ("db.example.7", "such as db.example.com"),
        ("a.0x1f", "such as db.example.com"),
        ("a.0X", "such as db.example.com"),
        ("-a.example.com", "not a valid host name"),
        ("a..example.com", "not a valid host name"),
        ("a b.example.com", "not a valid host name"),
        (f"{'a' * 64}.example.com", "not a valid host name"),
        ("a." * 119 + "test", "has 242 characters; at most 240 are allowed"),
    ],
)
def test_what_is_no_host_of_yours_is_refused(
    house: House, tenant: Tenant, hostname: str, said: str
) -> None:
    body = {"hostname": hostname}
    refused = house.post(path(tenant, house.instance(tenant)), tenant.key, json=body)
    is_problem(refused, 422)
    assert said in refused.json()["detail"]
    assert refused.json()["errors"][0]["pointer"] == "/hostname"


def test_an_instance_has_a_name_once_and_so_many_at_most(house: House, tenant: Tenant) -> None:
    instance_id = house.instance(tenant)
    for number in range(20):
        add(house, tenant, instance_id, f"d{number}.example.com")
    again = {"json": {"hostname": "d21.example.com"}}
    is_problem(house.post(path(tenant, instance_id), tenant.key, **again), 422)
    other = house.instance(tenant)
    add(house, tenant, other, "d1.example.com")
    twice = {"json": {"hostname": "D1.example.com"}}
    is_problem(house.post(path(tenant, other), tenant.key, **twice), 409)


def test_domains_come_with_the_solo_plan(house: House) -> None:
    free = house.tenant("Free", plan="free")
    body = {"json": {"hostname": "db.example.com"}}
    refused = house.post(path(free, house.instance(free)), free.key, **body)
    is_problem(refused, 422)
    assert refused.json()["errors"][0]["keyword"] == "plan"


def test_what_the_cell_tells_of_a_certificate_is_shown(house: House, tenant: Tenant) -> None:
    instance_id = house.instance(tenant)
    domain = add(house, tenant, instance_id, "shown.example.com")
    assert domain["certificate"] is None
    certificate = {
        "issued_by": "local",
        "not_after": "2030-01-01T00:00:00.000Z",
        "status": "failed",
        "status_reason": "dns: no such host",
        "retry_at": "2029-12-01T00:00:00.000Z",
    }
    told = [{"hostname": "shown.example.com", "certificate": certificate}]
    house.cell.becomes(instance_id, domains=told)
    reconcile(house)
    assert house.get(path(tenant, instance_id), tenant.key).json()["items"][0] == domain

    house.names.records["shown.example.com"] = domain["cname"]["target"]
    assert verify(house, tenant, domain)["status"] == "verified"
    reconcile(house)
    shown = house.get(path(tenant, instance_id), tenant.key).json()["items"][0]
    assert shown["certificate"] == certificate

    del house.names.records["shown.example.com"]
    assert verify(house, tenant, domain)["certificate"] is None


def test_however_often_it_is_asked_for_one_look_up_waits(house: House, tenant: Tenant) -> None:
    """Or whoever asks often enough makes workers look through thousands of them."""
    domain = add(house, tenant, house.instance(tenant), "often.example.com")
    listed = path(tenant, domain["instance_id"])
    session = house.session(tenant.owner.id, mfa=True)
    for _ in range(20):
        asked = house.post(f"{listed}/{domain['id']}/actions/verify", tenant.key)
        assert asked.status_code == 202
        url = f"{tenant.path}/instances/{domain['instance_id']}/network"
        tag = {"If-Match": house.get(url, tenant.key).headers["ETag"]}
        body = {"allow_cidrs": ["192.0.2.0/24"]}
        changed = house.request("PUT", url, session, json=body, headers=tag)
        assert changed.status_code < 300, changed.text
    with house.database.read() as db:
        waiting = dict(db.execute(select(Work.kind, Work.lane).where(Work.due.is_not(None))).all())
    # The look-up, which may take as long as a name server likes, is before nothing else.
    assert waiting == {
        "domains.verify": f"domain:{domain['id']}",
        "instances.network": f"{domain['instance_id']}:instances.network",
    }


def test_an_instance_that_was_deleted_meanwhile_takes_no_name(house: House, tenant: Tenant) -> None:
    other = house.tenant("Late", plan="team")
    first = add(house, tenant, house.instance(tenant), "late.example.com")
    house.names.records["late.example.com"] = first["cname"]["target"]
    assert verify(house, tenant, first)["status"] == "verified"
    second = add(house, other, house.instance(other), "late.example.com")
    house.names.records["late.example.com"] = second["cname"]["target"]
    one = f"{other.path}/instances/{second['instance_id']}"
    listed = path(other, second["instance_id"])
    assert house.post(f"{listed}/{second['id']}/actions/verify", other.key).status_code == 202
    deleted = house.request("DELETE", one, house.session(other.owner.id, mfa=True))
    assert deleted.status_code == 202, deleted.text
    house.settle()
    kept = house.get(path(tenant, first["instance_id"]), tenant.key).json()["items"][0]
    assert kept["status"] == "verified"
