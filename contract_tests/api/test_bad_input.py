"""Bad input to every operation: each refusal is a problem that says what is wrong and where."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from contract_tests.api.harness import House, Tenant
from contract_tests.api.rows import (
    NOBODY,
    OPERATIONS,
    Estate,
    body_of,
    estate,
    is_problem,
    path_of,
    query_of,
    send,
)
from contract_tests.by_day import one_in
from specserver import Operation

WITH_BODY = [one for one in OPERATIONS if "requestBody" in one.document]
POSTING = [one for one in OPERATIONS if one.method == "POST"]
OPEN = {"leak_reports.create", "payments.receive"}
"""Scanners and Stripe may add members to what they tell, which are ignored."""
CLOSED = [one for one in WITH_BODY if one.id not in OPEN]
PATHS = sorted({one.path for one in OPERATIONS})


@pytest.fixture(scope="module")
def tenant(house: House) -> Tenant:
    return house.tenant()


@pytest.fixture(scope="module")
def session(house: House, tenant: Tenant) -> str:
    """An owner's, with a second factor: nothing is refused for who asks."""
    return house.session(tenant.owner.id, mfa=True)


def _ids(tenant: Tenant) -> dict[str, str]:
    return {**NOBODY, "org_id": tenant.org_id, "project_id": tenant.project_id, "role": "member"}


@pytest.mark.parametrize("operation", CLOSED, ids=lambda one: one.id)
def test_members_that_are_not_in_the_document_are_refused(
    house: House, tenant: Tenant, session: str, operation: Operation
) -> None:
    known = operation.document["requestBody"]["content"]["application/json"]["schema"]["properties"]
    for extra in ("role", "org_id", "status", "plan", "created_by", "$ref", "a/b~c"):
        if extra in known:
            continue
        body: Any = {**body_of(operation), extra: "owner"}
        answer = send(house, operation, _ids(tenant), session, body)
        is_problem(answer, 422)
        pointers = [error["pointer"] for error in answer.json()["errors"]]
        assert pointers == ["/" + extra.replace("~", "~0").replace("/", "~1")]


# Before anything is known of the operation, so a third of them shows it by day.
@pytest.mark.parametrize("operation", one_in(3, WITH_BODY), ids=lambda one: one.id)
def test_a_body_that_cannot_be_read_is_refused(
    house: House, tenant: Tenant, session: str, operation: Operation
) -> None:
    path, method = path_of(operation, _ids(tenant)), operation.method
    json = {"Content-Type": "application/json"}
    for content in (b"{", b"\xff", b'{"a": NaN}', b'"\\ud800"', b"[" * 16_000):
        is_problem(house.request(method, path, session, content=content, headers=json), 400)
    needed = (b"",) if operation.document["requestBody"].get("required") else ()
    for content in (*needed, b"null", b"[]", b'"text"', b"1e400"):
        answer = house.request(method, path, session, content=content, headers=json)
        assert answer.status_code in (400, 422), answer.text
    other = {"Content-Type": "text/plain"}
    is_problem(house.request(method, path, session, content=b"{}", headers=other), 415)
    large = b'{"name": "' + b"x" * 2**20 + b'"}'
    is_problem(house.request(method, path, session, content=large, headers=json), 413)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.id)
def test_a_query_parameter_that_is_unknown_is_refused(
    house: House, tenant: Tenant, session: str, operation: Operation
) -> None:
    ids = _ids(tenant)
    path, asked = path_of(operation, ids), {**query_of(operation, ids), "unheard_of": "1"}
    json = {"json": body_of(operation)} if "requestBody" in operation.document else {}
    answer = house.request(operation.method, path, session, params=asked, **json)
    is_problem(answer, 422)
    assert {error["parameter"] for error in answer.json()["errors"]} == {"unheard_of"}


# By the parameter's own schema, which all of them share; the night asks each.
@pytest.mark.parametrize("operation", one_in(3, POSTING), ids=lambda one: one.id)
def test_an_idempotency_key_that_cannot_be_one_is_refused(
    house: House, tenant: Tenant, session: str, operation: Operation
) -> None:
    path = path_of(operation, _ids(tenant))
    json = {"json": body_of(operation)} if "requestBody" in operation.document else {}
    for key in ("", "two words", "x" * 256):
        answer = house.request("POST", path, session, headers={"Idempotency-Key": key}, **json)
        is_problem(answer, 422)
        assert answer.json()["errors"][0]["parameter"] == "Idempotency-Key"


# Told by one table of paths; the night asks at each.
@pytest.mark.parametrize("path", one_in(3, PATHS))
def test_a_method_that_is_not_there_is_405_and_says_which_are(
    house: House, tenant: Tenant, session: str, path: str
) -> None:
    there = {one.method for one in OPERATIONS if one.path == path}
    asked = path.format_map(_ids(tenant))
    for method in {"GET", "PUT", "POST", "PATCH", "DELETE", "TRACE"} - there:
        answer = house.request(method, asked, session)
        is_problem(answer, 405)
        assert set(answer.headers["allow"].split(", ")) >= there
    if "GET" in there:
        headed = house.request("HEAD", asked, session)
        assert not headed.content
        assert headed.headers["x-request-id"]
    assert house.request("OPTIONS", asked).status_code == 204


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/", "/v1/orgs/", "/v2/orgs", "/v1/orgs/%2e%2e/me", "/%00", "//v1/me"]
)
def test_an_unknown_path_is_a_problem(house: House, session: str, path: str) -> None:
    is_problem(house.get(path, session), 404)


@pytest.mark.parametrize("segment", ["%00", "%0a", "%ff", "a%2fb", "%27%20or%201=1", "x" * 4000])
def test_an_id_that_cannot_be_one_is_404(
    house: House, tenant: Tenant, session: str, segment: str
) -> None:
    for path in (f"/v1/orgs/{segment}", f"{tenant.path}/instances/{segment}"):
        is_problem(house.get(path, session), 404)


TEXTS = ("a\0b", "0000-01-01T00:00:00Z")
NUMBERS = (2**63,)
# Each in every operation at night. By day those that have a body, which is where most of it can
# stand, and a third of the others, whose parameters are the same few.
STORING = [*WITH_BODY, *one_in(3, [one for one in OPERATIONS if one not in WITH_BODY])]


@pytest.mark.parametrize("house", ["postgresql"], indirect=True)
@pytest.mark.parametrize("operation", STORING, ids=lambda one: one.id)
def test_what_no_database_can_store_is_refused_wherever_it_stands(
    house: House, session: str, there: Estate, operation: Operation
) -> None:
    """In each parameter, and in each member of the body: found by chance once (42)."""
    body, path = body_of(operation), path_of(operation, there.ids)
    options = {} if body is None else {"json": body}
    asked = [(path, {"json": each}) for each in spoiled(body)]
    for one in operation.document["parameters"]:
        if one["in"] == "path":
            ids = {**there.ids, one["name"]: "%00"}
            asked.append((path_of(operation, ids), options))
        elif one["in"] == "query":
            values = (quote(str(each)) for each in (*TEXTS, *NUMBERS))
            asked += [(f"{path}?{one['name']}={each}", options) for each in values]
    for where, rest in asked:
        # Sessions are revoked on the way.
        token = house.session(there.tenant.owner.id, mfa=True) if operation.security else None
        answer = house.request(operation.method, where, token, **rest)
        assert answer.status_code < 500, (where, rest, answer.text)


@pytest.fixture(scope="module")
def there(house: House) -> Estate:
    return estate(house)


def spoiled(body: Any) -> Iterator[Any]:
    """The body with one of its members at a time replaced."""
    if isinstance(body, dict | list):
        for key, value in body.items() if isinstance(body, dict) else enumerate(body):
            for other in spoiled(value):
                changed = body.copy()
                changed[key] = other
                yield changed
    elif isinstance(body, str):
        yield from TEXTS
    elif isinstance(body, int | float) and not isinstance(body, bool):
        yield from NUMBERS


def test_an_answer_in_another_form_cannot_be_had(house: House, session: str) -> None:
    is_problem(house.get("/v1/me", session, headers={"Accept": "text/html"}), 406)


def test_every_violation_is_named_at_once(house: House, tenant: Tenant) -> None:
    path = f"{tenant.path}/projects/{tenant.project_id}/instances?dry_run=maybe"
    body = {"engine": "sqlite", "name": "No", "storage_bytes": 1.5, "maintenance_window": {}}
    answer = house.post(path, tenant.key, json=body)
    is_problem(answer, 422)
    places = {error.get("pointer", error.get("parameter")) for error in answer.json()["errors"]}
    assert places == {
        "dry_run",
        "/engine",
        "/size",
        "/name",
        "/storage_bytes",
        "/maintenance_window/day",
        "/maintenance_window/start",
    }


def test_a_cursor_is_good_for_its_own_list_only(house: House, tenant: Tenant) -> None:
    for number in range(2):
        body = {"name": f"Project {number}"}
        assert house.post(f"{tenant.path}/projects", tenant.key, json=body).status_code == 201
    page = house.get(f"{tenant.path}/projects?limit=1", tenant.key).json()
    cursor = page["next_cursor"]
    assert house.get(f"{tenant.path}/projects?cursor={cursor}", tenant.key).status_code == 200
    for path in (f"{tenant.path}/instances", f"{house.tenant().path}/projects"):
        token = tenant.key if path.startswith(tenant.path) else None
        answer = house.get(f"{path}?cursor={cursor}", token)
        assert answer.status_code == (422 if token else 401)
    altered = ("A" if cursor[0] != "A" else "B") + cursor[1:]
    padded = cursor + "=" * (-len(cursor) % 4 or 4)
    for wrong in (altered, padded, *rewritten(cursor)):
        is_problem(house.get(f"{tenant.path}/projects?cursor={wrong}", tenant.key), 422)


def rewritten(cursor: str) -> list[str]:
    """The same bytes by other last characters, whose spare bits a lenient decoder passes over."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    spare = {0: 1, 2: 16, 3: 4}[len(cursor.rpartition(".")[2]) % 4]
    first = alphabet.index(cursor[-1]) // spare * spare
    others = [cursor[:-1] + alphabet[first + number] for number in range(spare)]
    return [other for other in others if other != cursor]


@pytest.mark.parametrize("coding", ["gzip", "br", "deflate", "x", "identity, gzip"])
def test_an_encoded_body_is_refused_and_told_what_is_allowed(
    house: House, tenant: Tenant, coding: str
) -> None:
    path, headers = f"{tenant.path}/projects", {"content-type": "application/json"}
    body = b'{"name": "Coded"}'
    sent = house.request(
        "POST", path, tenant.key, content=body, headers=headers | {"content-encoding": coding}
    )
    is_problem(sent, 415)
    assert sent.headers["accept-encoding"] == "identity"
    assert "without Content-Encoding" in sent.json()["detail"]
    plain = headers | {"content-encoding": "Identity"}
    assert house.request("POST", path, tenant.key, content=body, headers=plain).status_code == 201


NAMED = [one for one in WITH_BODY if "name" in body_of(one)] + [
    one for one in WITH_BODY if one.id in {"projects.update", "orgs.update"}
]
UNSEEN = {
    "a direction": "pay\u202egnp.exe",
    "an isolate": "a\u2066b",
    "zero width": "adm\u200bin",
    "a joiner": "a\u200db",
    "a mark at its end": "admin\ufeff",
    "a soft hyphen": "ad\u00admin",
    "a tag": "a\U000e0041",
    "private use": "a\ue000",
    "a non-character": "a\ufffe",
    "a filler": "\u3164",
    "a control character": "a\x85b",
    "a line": "a\u2028b",
    "a blank before": "\u3000a",
    "a blank behind": "a ",
    "nothing but blanks": " ",
}


@pytest.mark.parametrize("operation", NAMED, ids=lambda one: one.id)
def test_a_name_holds_nothing_that_nobody_sees(
    house: House, tenant: Tenant, session: str, operation: Operation
) -> None:
    for what, name in UNSEEN.items():
        body = {**body_of(operation), "name": name}
        answer = send(house, operation, _ids(tenant), session, body)
        is_problem(answer, 422)
        (error,) = [one for one in answer.json()["errors"] if one["pointer"] == "/name"]
        assert "must be 1 to " in error["message"], what
        assert "\\" not in error["message"], "no regular expression"
        assert "^" not in error["message"], "no regular expression"


@pytest.mark.parametrize(
    "name", ["Ada Lovelace", "Änne Größe 1", "数据 二", "عربي", "🦜 zoo", "e\u0301"]
)
def test_a_name_may_be_in_any_script(house: House, tenant: Tenant, session: str, name: str) -> None:
    answer = house.request(
        "POST", f"/v1/orgs/{tenant.org_id}/projects", session, json={"name": name}
    )
    assert answer.status_code == 201, answer.text
    assert answer.json()["name"] == name


@pytest.mark.parametrize("operation", WITH_BODY, ids=lambda one: one.id)
def test_a_member_given_twice_is_refused(
    house: House, tenant: Tenant, session: str, operation: Operation
) -> None:
    path, method = path_of(operation, _ids(tenant)), operation.method
    headers = {"Content-Type": "application/json"}
    content = b'{"name": "a", "name": "b:c"}'
    answer = house.request(method, path, session, content=content, headers=headers)
    is_problem(answer, 422)
    assert [error["pointer"] for error in answer.json()["errors"]] == ["/name"]
