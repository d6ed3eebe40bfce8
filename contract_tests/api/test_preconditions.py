"""`If-Match` is honoured, or refused, wherever it is sent."""

from typing import Any

import pytest

from contract_tests.api.harness import House, Tenant
from contract_tests.api.rows import OPERATIONS, Estate, estate, is_problem, path_of
from contract_tests.api.rows import body_of as example_of
from specserver import Operation
from storage.events.audit import AuditEntry

CONDITIONS = {
    "If-Match": '"never"',
    "If-Unmodified-Since": "Sat, 21 Nov 2026 09:00:00 GMT",
    "If-None-Match": '"never"',
}


def conditions(operation: Operation) -> set[str]:
    """Those that the document says the operation looks at."""
    named = {one["name"] for one in operation.document["parameters"] if one["in"] == "header"}
    return named & set(CONDITIONS)


CHECKING = [one for one in OPERATIONS if "If-Match" in conditions(one)]
ON_AN_INSTANCE = [one for one in CHECKING if one.id.startswith("instances.")]


@pytest.fixture(scope="module")
def here(house: House) -> Estate:
    return estate(house)


@pytest.fixture(scope="module")
def session(house: House, here: Estate) -> str:
    """An owner's, with a second factor: nothing else stands in the way."""
    return house.session(here.tenant.owner.id, mfa=True)


def ask(
    house: House, operation: Operation, ids: dict[str, str], token: str, headers: dict[str, str]
) -> Any:
    body = example_of(operation)
    options = {} if body is None else {"json": body}
    return house.request(
        operation.method, path_of(operation, ids), token, headers=headers, **options
    )


def tag(house: House, tenant: Tenant, instance_id: str) -> str:
    path = f"{tenant.path}/instances/{instance_id}"
    return str(house.get(path, tenant.key).headers["etag"])


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.id)
def test_a_condition_is_looked_at_or_refused(
    house: House, here: Estate, session: str, operation: Operation
) -> None:
    for name, value in CONDITIONS.items():
        if name in conditions(operation):
            continue
        if operation.method == "GET" and name == "If-None-Match":
            continue
        answer = ask(house, operation, here.ids, session, {name: value})
        is_problem(answer, 422, "invalid_request")
        wrong = [one for one in answer.json()["errors"] if one.get("parameter") == name]
        assert [one["keyword"] for one in wrong] == ["unsupported"], answer.text
        assert "leave it out" in wrong[0]["message"]


@pytest.mark.parametrize("operation", CHECKING, ids=lambda one: one.id)
def test_nothing_is_done_to_what_has_changed(
    house: House, here: Estate, session: str, operation: Operation
) -> None:
    before = tag(house, here.tenant, here.instance_id)
    with house.database.read() as db:
        audited = db.query(AuditEntry).count()
    for given in ('"never"', '"a", "b,c" , "d"', f"W/{before}", '""'):
        answer = ask(house, operation, here.ids, session, {"If-Match": given})
        is_problem(answer, 412, "precondition_failed")
    assert tag(house, here.tenant, here.instance_id) == before
    with house.database.read() as db:
        assert db.query(AuditEntry).count() == audited


@pytest.mark.parametrize("operation", CHECKING, ids=lambda one: one.id)
@pytest.mark.parametrize("given", ["never", "", '"a', '"a" "b"', "*, *", 'w/"a"', '"a",'])
def test_what_is_no_entity_tag_is_refused(
    house: House, here: Estate, session: str, operation: Operation, given: str
) -> None:
    answer = ask(house, operation, here.ids, session, {"If-Match": given})
    is_problem(answer, 422)
    (wrong,) = [one for one in answer.json()["errors"] if one.get("parameter") == "If-Match"]
    assert "with its double quotes" in wrong["message"]


@pytest.mark.parametrize("given", ["{}", '"other", {}', "*"])
@pytest.mark.parametrize("verb", ["PATCH", "DELETE", "pause", "erase"])
def test_what_is_as_it_was_read_is_changed(house: House, verb: str, given: str) -> None:
    tenant = house.tenant()
    instance_id = house.instance(tenant)
    path = f"{tenant.path}/instances/{instance_id}"
    headers = {"If-Match": given.format(tag(house, tenant, instance_id))}
    if verb == "PATCH":
        answer = house.request("PATCH", path, tenant.key, json={"name": "new"}, headers=headers)
        assert answer.status_code == 200, answer.text
    elif verb == "DELETE":
        answer = house.request("DELETE", path, tenant.key, headers=headers)
        assert answer.status_code == 202, answer.text
    else:
        answer = house.post(f"{path}/actions/{verb}", tenant.key, headers=headers)
        assert answer.status_code == 202, answer.text
    # The answer's tag is that of the next request.
    assert answer.headers["etag"] == tag(house, tenant, instance_id) != headers["If-Match"]


def test_the_tag_changes_with_whatever_is_seen(house: House) -> None:
    tenant = house.tenant()
    path = f"{tenant.path}/projects/{tenant.project_id}/instances"
    ordered = house.post(path, tenant.key, json={"engine": "duckdb", "size": "s0"})
    instance_id = ordered.json()["id"]
    seen = [ordered.headers["etag"]]
    assert tag(house, tenant, instance_id) == seen[0]
    house.settle()
    seen.append(tag(house, tenant, instance_id))
    path = f"{tenant.path}/instances/{instance_id}"
    window = {"day": "sunday", "start": "03:00"}
    seen += [
        house.request("PATCH", path, tenant.key, json=change).headers["etag"]
        for change in ({"name": "new"}, {"maintenance_window": window})
    ]
    for verb in ("pause", "resume"):
        seen.append(house.post(f"{path}/actions/{verb}", tenant.key).headers["etag"])
        house.settle()
        seen.append(tag(house, tenant, instance_id))
    house.cell.becomes(instance_id, storage_bytes=123_456, connections=7, cpu_s=99.0)
    house.get(f"{path}/capacity", tenant.key)
    # What only measures it is no change of it.
    assert tag(house, tenant, instance_id) == seen[-1]
    assert len(set(seen)) == len(seen)


@pytest.mark.every_database  # what locks is the database
def test_of_two_who_read_the_same_the_second_is_told(house: House) -> None:
    tenant = house.tenant()
    instance_id = house.instance(tenant)
    path = f"{tenant.path}/instances/{instance_id}"
    headers = {"If-Match": tag(house, tenant, instance_id)}
    answers = house.together(
        *[
            ("PATCH", path, tenant.key, {"json": {"name": name}, "headers": headers})
            for name in ("first", "second", "third")
        ]
    )
    assert sorted(answer.status_code for answer in answers) == [200, 412, 412]


def test_a_retry_gets_its_first_answer_although_it_has_changed(house: House) -> None:
    tenant = house.tenant()
    instance_id = house.instance(tenant)
    headers = {"If-Match": tag(house, tenant, instance_id), "Idempotency-Key": instance_id}
    path = f"{tenant.path}/instances/{instance_id}/actions/pause"
    first, again = (house.post(path, tenant.key, headers=headers) for _ in range(2))
    assert (first.status_code, again.status_code) == (202, 202)
    assert again.headers["idempotency-replayed"] == "true"
    assert again.headers["etag"] == first.headers["etag"]


def test_what_is_known_is_not_sent_again(house: House, here: Estate) -> None:
    path = f"{here.tenant.path}/instances/{here.instance_id}"
    known = tag(house, here.tenant, here.instance_id)
    for given in (known, f"W/{known}", f'"other", {known}', "*"):
        answer = house.get(path, here.tenant.key, headers={"If-None-Match": given})
        assert (answer.status_code, answer.content) == (304, b"")
        assert answer.headers["etag"] == known
    answer = house.get(path, here.tenant.key, headers={"If-None-Match": '"other"'})
    assert answer.status_code == 200
    is_problem(house.get(path, here.tenant.key, headers={"If-None-Match": "other"}), 422)


def test_every_operation_that_changes_an_instance_checks_it() -> None:
    ids = {one.id.partition(".")[2] for one in ON_AN_INSTANCE}
    assert ids == {"update", "delete", "undelete", "erase", "pause", "resume"}
