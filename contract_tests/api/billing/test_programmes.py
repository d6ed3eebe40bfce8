"""Credit programs: organizations apply, and the operator decides, once."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from contract_tests import written
from contract_tests.api.harness import House, Tenant
from contract_tests.api.oracle import document
from contract_tests.api.rows import NEVER, is_problem
from control.policy.programmes import PROGRAMMES
from menagerie import credit_grants
from storage.errors import RecordNotFound, StateConflict

STATEMENT = "We are five people who rent out looms by the hour."


@pytest.fixture
def tenant(house: House) -> Tenant:
    return house.tenant()


def apply(house: House, tenant: Tenant, token: str = "", **body: Any) -> httpx.Response:
    sent = {"programme": "startup", "statement": STATEMENT, **body}
    path = f"{tenant.path}/programmes/applications"
    return house.post(path, token or tenant.owner.session, json=sent)


def applied(house: House, tenant: Tenant, **body: Any) -> str:
    made = apply(house, tenant, **body)
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


def listed(house: House, tenant: Tenant) -> list[dict[str, Any]]:
    found = house.get(f"{tenant.path}/programmes/applications", tenant.key).json()
    assert found["next_cursor"] is None
    items: list[dict[str, Any]] = found["items"]
    return items


def balance(house: House, tenant: Tenant) -> int:
    return int(house.get(f"{tenant.path}/credits", tenant.key).json()["balance_cents"])


def test_the_document_names_the_programs() -> None:
    path = "/v1/orgs/{org_id}/programmes/applications"
    (operation,) = [one for at, how, one in document().operations() if (at, how) == (path, "POST")]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    programme = schema["properties"]["programme"]
    assert programme["enum"] == [*PROGRAMMES]
    for one in PROGRAMMES.values():
        assert one.who in " ".join(programme["description"].split())


def test_an_approval_grants_the_credit_and_tells_who_applied(house: House, tenant: Tenant) -> None:
    application_id = applied(house, tenant, website="https://engines.example.com")
    assert listed(house, tenant)[0]["status"] == "pending"
    credit_grants.approve(house.services, application_id, None, None)
    found = listed(house, tenant)[0]
    assert (found["status"], found["applied_by"]) == ("approved", tenant.owner.id)
    assert balance(house, tenant) == PROGRAMMES["startup"].amount_cents == 500_000
    with house.database.read() as db:
        told = written.events_of(db, tenant.org_id)
        assert [each.type for each in told][-2:] == ["credit.granted.v1", "programme.decided.v1"]
        decided = {"programme": "startup", "status": "approved"}
        about = {"application_id": application_id, "credit_id": found["credit_id"]}
        assert told[-1].data == {**decided, **about}
        actions = [(one.action, one.detail) for one in written.audited(db, tenant.org_id)]
        assert ("programme.decide", decided) in actions
        assert ("programme.apply", {"programme": "startup"}) in actions
    house.settle()
    letter = house.letters.last
    assert letter.to == tenant.owner.email
    assert "was approved" in letter.text
    assert "5,000.00 USD" in letter.text
    is_problem(apply(house, tenant), 409, "programme_granted")
    assert applied(house, tenant, programme="education")


def test_the_operator_chooses_another_amount(house: House, tenant: Tenant) -> None:
    credit_grants.approve(house.services, applied(house, tenant), "12.50", 2)
    assert balance(house, tenant) == 1_250


def test_a_decline_says_why_and_after_a_month_another_is_heard(
    house: House, tenant: Tenant
) -> None:
    application_id = applied(house, tenant)
    is_problem(apply(house, tenant), 409, "programme_pending")
    credit_grants.decline(house.services, application_id, "no such company")
    assert listed(house, tenant)[0]["note"] == "no such company"
    house.settle()
    assert "no such company" in house.letters.last.text
    answer = apply(house, tenant)
    is_problem(answer, 409, "programme_declined")
    assert "apply again from" in answer.text
    house.pass_time(30 * 86_400 + 1)
    session = house.session(tenant.owner.id)
    assert apply(house, tenant, session).status_code == 201
    house.database.clock_offset *= 0
    assert [one["status"] for one in listed(house, tenant)] == ["pending", "declined"]
    assert balance(house, tenant) == 0


def test_what_is_decided_stays(house: House, tenant: Tenant) -> None:
    application_id = applied(house, tenant)
    credit_grants.decline(house.services, application_id, "no")
    with pytest.raises(StateConflict, match="is declined already"):
        credit_grants.approve(house.services, application_id, None, None)
    with pytest.raises(RecordNotFound, match="there is no application"):
        credit_grants.decline(house.services, f"papp_{NEVER}", "no")


@pytest.mark.every_database  # what locks is the database
def test_of_twenty_approvals_at_once_one_grants(house: House, tenant: Tenant) -> None:
    application_id = applied(house, tenant)

    def approve(_number: int) -> int:
        try:
            credit_grants.approve(house.services, application_id, None, None)
        except StateConflict:
            return 0
        return 1

    with ThreadPoolExecutor(20) as threads:
        assert sum(threads.map(approve, range(20))) == 1
    assert balance(house, tenant) == PROGRAMMES["startup"].amount_cents


@pytest.mark.every_database  # as above
def test_of_twenty_applications_at_once_one_is_taken(house: House, tenant: Tenant) -> None:
    body = {"programme": "open_source", "statement": STATEMENT}
    path = f"{tenant.path}/programmes/applications"
    answers = house.together(*[("POST", path, tenant.key, {"json": body})] * 20)
    assert sorted(each.status_code for each in answers) == [201, *[409] * 19]


def test_the_operator_reads_what_strangers_wrote_as_text(house: House, tenant: Tenant) -> None:
    application_id = applied(house, tenant, statement="a\x1b[2J\nb\u202ec")
    found = credit_grants.applications(house.services, "pending")
    (shown,) = [one for one in found if one["id"] == application_id]
    assert shown["statement"] == "a [2J b c"
    assert shown in credit_grants.applications(house.services, None)
    assert shown not in credit_grants.applications(house.services, "approved")


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("programme", "unknown"),
        ("statement", ""),
        ("statement", "x" * 2001),
        ("website", "javascript:alert(1)"),
        ("website", "https://a b"),
        ("website", "https://example.com/\n"),
        ("amount_cents", 5),
    ],
)
def test_what_is_no_application_is_refused(
    house: House, tenant: Tenant, member: str, value: str
) -> None:
    is_problem(apply(house, tenant, **{member: value}), 422)


def test_who_does_not_see_the_bills_applies_for_nothing(house: House, tenant: Tenant) -> None:
    for role in ("auditor", "developer", "member"):
        token = house.member(tenant.org_id, role).session
        is_problem(apply(house, tenant, token), 403, "permission_missing")
    is_problem(apply(house, tenant, house.tenant().key), 404, "not_found")
