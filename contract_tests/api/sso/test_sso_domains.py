"""SSO domains: claimed by anybody, and verified for one organization by a real DNS."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from contract_tests.api.harness import House, Tenant
from contract_tests.api.rows import is_problem
from contract_tests.api.sso.with_domains import (
    at_domain,
    change,
    claim,
    connected,
    enforcing,
    found,
    new_domain,
    publish,
    verified,
    verify,
)
from contract_tests.workflows.known import take_turn
from storage.access import organizations
from storage.events.audit import AuditEntry
from storage.sso.domains import KEPT_WITHOUT_RECORD


@pytest.fixture
def tenant(house: House) -> Tenant:
    house.names.fails = False
    return house.tenant("Named", plan="free")


def audited(house: House, target: str) -> list[tuple[str, dict[str, Any]]]:
    rows = select(AuditEntry).where(AuditEntry.target == target).order_by(AuditEntry.id)
    with house.database.read() as db:
        return [(one.action, one.detail) for one in db.scalars(rows)]


def check_after(house: House, days: int = 1) -> None:
    """The daily look-up, after so many days without one."""
    house.pass_time(timedelta(days=days, minutes=1).total_seconds())
    with house.database.write() as db:
        take_turn(db, "sso_domains.check")
    house.settle()


def test_a_domain_is_verified_by_its_record(house: House, tenant: Tenant) -> None:
    domain = new_domain()
    made = claim(house, tenant, f" {domain.upper()}. ")
    assert (made["domain"], made["status"], made["is_enforced"]) == (domain, "pending", False)
    assert made["txt"]["name"] == f"_menagerie-sso.{domain}"
    failed = verify(house, tenant, made)
    assert failed["status"] == "failed"
    assert made["txt"]["name"] in failed["status_reason"]
    assert made["txt"]["value"] in failed["status_reason"]
    house.names.texts[made["txt"]["name"]] = ["v=spf1 -all", f"{made['txt']['value']} "]
    done = verify(house, tenant, made)
    assert (done["status"], done["status_reason"]) == ("verified", None)
    assert done["verified_at"] == done["checked_at"]
    assert [action for action, _ in audited(house, made["id"])] == [
        "sso_domain.create",
        "sso_domain.verify",
        "sso_domain.verify",
    ]


def test_a_name_in_another_script_is_kept_as_the_dns_has_it(house: House, tenant: Tenant) -> None:
    begins = new_domain()
    assert claim(house, tenant, f"MÜNCHEN.{begins}")["domain"] == f"xn--mnchen-3ya.{begins}"
    again = {"json": {"domain": f"xn--mnchen-3ya.{begins}"}}
    is_problem(house.post(f"{tenant.path}/sso/domains", tenant.key, **again), 409)


@pytest.mark.parametrize(
    ("domain", "said"),
    [
        ("ada@example.com", "what follows the @"),
        ("*.example.com", "a wildcard"),
        ("com", "not a valid domain name"),
        ("co.uk", "a public suffix"),
        ("公司.cn", "a public suffix"),
        ("github.io", "a public suffix"),
        ("gmail.com", "a public email provider"),
        ("GMAIL.com.", "a public email provider"),
        ("tutanota.com", "a public email provider"),
        ("example.local", "not in the public DNS"),
        ("192.0.2.7", "not a valid domain name"),
        ("_x.example.com", "not a valid domain name"),
        ("-a.example.com", "not a valid domain name"),
        ("a..example.com", "not a valid domain name"),
        ("a b.example.com", "not a valid domain name"),
        ("example.com\n", "is claimed, without the end of the line"),
        ("ex\u200dample.com", "not a valid domain name"),
        (f"{'a' * 64}.example.com", "not a valid domain name"),
        ("a." * 118 + "test", "at most 230 are allowed"),
        ("https://example.com", "not a valid domain name"),
    ],
)
def test_what_nobody_can_own_is_refused(
    house: House, tenant: Tenant, domain: str, said: str
) -> None:
    refused = house.post(f"{tenant.path}/sso/domains", tenant.key, json={"domain": domain})
    if domain.endswith("\n"):
        assert refused.status_code == 201, said
        return
    is_problem(refused, 422)
    assert said in refused.json()["detail"]
    assert refused.json()["errors"][0]["pointer"] == "/domain"


def test_one_organization_has_it_verified(house: House, tenant: Tenant) -> None:
    other = house.tenant("Other")
    first, domain = claim(house, tenant, new_domain()), ""
    domain = first["domain"]
    second = claim(house, other, domain)
    assert first["txt"]["value"] != second["txt"]["value"]
    # The record of one proves nothing of the other.
    publish(house, first)
    assert verify(house, other, second)["status"] == "failed"
    assert verify(house, tenant, first)["status"] == "verified"
    publish(house, second)
    refused = verify(house, other, second)
    assert refused["status"] == "failed"
    assert "another organization has" in refused["status_reason"]
    assert "Named" not in refused["status_reason"], "nobody is told which"
    # Released, it is whoever's record is there; and the former record proves no new claim.
    gone = house.request("DELETE", f"{tenant.path}/sso/domains/{first['id']}", tenant.key)
    assert gone.status_code == 204
    assert verify(house, other, second)["status"] == "verified"
    again = claim(house, tenant, domain)
    assert again["txt"]["value"] != first["txt"]["value"]
    assert verify(house, tenant, again)["status"] == "failed"


def test_of_twenty_that_verify_it_at_once_one_has_it(house: House) -> None:
    domain, tenants = new_domain(), [house.tenant(f"Racer {n}") for n in range(20)]
    claims = [claim(house, one, domain) for one in tenants]
    for each in claims:
        publish(house, each)
    answers = house.together(
        *(
            ("POST", f"{one.path}/sso/domains/{made['id']}/actions/verify", one.key, {})
            for one, made in zip(tenants, claims, strict=True)
        )
    )
    assert {answer.status_code for answer in answers} == {202}
    house.settle()
    states = [
        found(house, one, made["id"])["status"] for one, made in zip(tenants, claims, strict=True)
    ]
    assert sorted(states) == ["failed"] * 19 + ["verified"]


def test_a_subdomain_is_its_own(house: House, tenant: Tenant) -> None:
    made = verified(house, tenant)
    answer = house.get(f"/v1/sso/discover?email=ada@eu.{made.domain}")
    assert answer.json()["connection"] is None
    below = claim(house, tenant, f"eu.{made.domain}")
    assert verify(house, tenant, below)["status"] == "failed"


def test_an_alias_is_not_followed(house: House, tenant: Tenant) -> None:
    """A wildcard that leads to somebody's host would let them speak for the domain."""
    made = claim(house, tenant, new_domain())
    house.names.records[made["txt"]["name"]] = "elsewhere.example.net"
    house.names.texts["elsewhere.example.net"] = [made["txt"]["value"]]
    failed = verify(house, tenant, made)
    assert failed["status"] == "failed"
    assert "is an alias (CNAME)" in failed["status_reason"]
    # A chain without end is an answer of the DNS, too, and costs no more than one.
    house.names.records["elsewhere.example.net"] = "elsewhere.example.net"
    assert verify(house, tenant, made)["status"] == "failed"


def test_huge_answers_and_slow_servers_cost_little(house: House, tenant: Tenant) -> None:
    made = claim(house, tenant, new_domain())
    name = made["txt"]["name"]
    house.names.texts[name] = ["x" * 4_000] * 12
    assert verify(house, tenant, made)["status"] == "failed"
    house.names.texts[name].append(made["txt"]["value"])
    assert verify(house, tenant, made)["status"] == "verified"
    house.names.silent.add(name)
    try:
        silent = verify(house, tenant, made)
    finally:
        house.names.silent.discard(name)
    assert silent["status"] == "verified", "what does not answer ends nothing"
    assert silent["status_reason"].startswith("DNS did not answer")


def test_a_record_that_is_gone_ends_it_after_a_week(house: House) -> None:
    made = enforcing(house)
    record = f"_menagerie-sso.{made.domain}"
    kept = house.names.texts.pop(record)
    check_after(house)
    at_risk = found(house, made.tenant, made.domain_id)
    assert (at_risk["status"], at_risk["is_enforced"]) == ("verified", True)
    assert at_risk["verified_until"] is not None
    alerts = house.get(f"{made.tenant.path}/alerts", made.tenant.key).json()["items"]
    assert [(one["kind"], one["severity"]) for one in alerts] == [
        ("sso_domain_unverifiable", "critical")
    ]
    # It comes back: the week begins anew when it is missing again.
    house.names.texts[record] = kept
    check_after(house)
    assert found(house, made.tenant, made.domain_id)["verified_until"] is None
    del house.names.texts[record]
    check_after(house)
    check_after(house, KEPT_WITHOUT_RECORD.days - 1)
    assert found(house, made.tenant, made.domain_id)["status"] == "verified"
    check_after(house)
    lapsed = found(house, made.tenant, made.domain_id)
    assert (lapsed["status"], lapsed["is_enforced"], lapsed["verified_at"]) == (
        "failed",
        False,
        None,
    )
    assert house.letters.last.to == made.tenant.owner.email
    assert made.domain in house.letters.last.subject
    assert ("sso_domain.lapse", {"domain": made.domain, "enforced": True}) in audited(
        house, made.domain_id
    )
    with house.database.read() as db:
        assert organizations.fetch(db, made.tenant.org_id).sso_enforced_domains is None


def test_a_dns_that_does_not_answer_ends_nothing(house: House) -> None:
    made = enforcing(house)
    house.names.silent.add(f"_menagerie-sso.{made.domain}")
    try:
        house.names.fails = True
        check_after(house, KEPT_WITHOUT_RECORD.days + 2)
        check_after(house)
    finally:
        house.names.fails = False
        house.names.silent.clear()
    kept = found(house, made.tenant, made.domain_id)
    assert (kept["status"], kept["is_enforced"]) == ("verified", True)


def test_it_is_enforced_where_people_can_sign_in(house: House, tenant: Tenant) -> None:
    made = claim(house, tenant, new_domain())
    is_problem(change(house, tenant, made["id"], is_enforced=True), 409)
    publish(house, made)
    verify(house, tenant, made)
    is_problem(change(house, tenant, made["id"], is_enforced=True), 409)
    for status in ("disabled", "pending_verification"):
        connection_id = connected(house, tenant, status)
        refused = change(house, tenant, made["id"], connection_id=connection_id, is_enforced=True)
        is_problem(refused, 409)
    done = change(
        house, tenant, made["id"], connection_id=connected(house, tenant), is_enforced=True
    )
    assert done.status_code == 200, done.text
    assert done.json()["is_enforced"] is True
    is_problem(change(house, tenant, made["id"], connection_id=None), 409)
    other = house.tenant("Other")
    is_problem(change(house, tenant, made["id"], connection_id=connected(house, other)), 404)
    off = change(house, tenant, made["id"], is_enforced=False, connection_id=None)
    assert (off.json()["is_enforced"], off.json()["connection_id"]) == (False, None)


def test_an_owner_must_keep_a_way_in(house: House) -> None:
    tenant = house.tenant("Locked")
    made = verified(house, tenant)
    at_domain(house, tenant.owner, made.domain)
    refused = change(house, tenant, made.domain_id, is_enforced=True)
    is_problem(refused, 409)
    assert refused.json()["code"] == "no_break_glass"
    # An owner with an address of elsewhere is one; a member is not.
    house.member(tenant.org_id, "admin")
    is_problem(change(house, tenant, made.domain_id, is_enforced=True), 409)
    house.member(tenant.org_id, "owner")
    assert change(house, tenant, made.domain_id, is_enforced=True).status_code == 200


def test_an_organization_claims_so_many(house: House, tenant: Tenant, monkeypatch: Any) -> None:
    monkeypatch.setattr("control.policy.quotas.SSO_DOMAINS_MAX", 2)
    for _ in range(2):
        claim(house, tenant, new_domain())
    body = {"json": {"domain": new_domain()}}
    is_problem(house.post(f"{tenant.path}/sso/domains", tenant.key, **body), 422)


def test_a_closed_organization_holds_no_domain(house: House) -> None:
    made = enforcing(house)
    session = house.session(made.tenant.owner.id, mfa=True)
    with house.database.write() as db:
        organizations.fetch(db, made.tenant.org_id).sso_enforced_domains = None
    closed = house.post(
        f"{made.tenant.path}/actions/close", session, json={"erase_everything": True}
    )
    assert closed.status_code == 202, closed.text
    other = house.tenant("Next")
    second = claim(house, other, made.domain)
    publish(house, second)
    assert verify(house, other, second)["status"] == "verified"
