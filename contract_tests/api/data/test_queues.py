"""Queues by the public API, over a fake cell that keeps the same promises as a real one."""

import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from contract_tests.api.harness import House, Tenant
from contract_tests.api.network.test_network import authority
from contract_tests.api.rows import is_problem
from contract_tests.workflows.fake_cell import nothing
from control.boundary.pipeline import RequestPipeline
from control.cells.client import CellUnavailable
from specserver import Reply
from storage.access.organizations import Organization
from storage.errors import StorageUnavailable
from storage.events.audit import AuditEntry
from storage.instances import instances

HOSTILE = ("A", "1a", "_a", "a-b", "a b", "a" * 48, "ä", "a\n", 'a"', "a'", "a;--", "a$", "%I", "")


@pytest.fixture
def tenant(house: House) -> Iterator[Tenant]:
    yield house.tenant("Queued")
    house.cell.before = house.cell.after = nothing


@pytest.fixture
def path(house: House, tenant: Tenant) -> str:
    """Of the queues of a postgres instance that runs."""
    instance_id = house.instance(tenant)
    become(house, tenant, instance_id, engine="postgres")
    house.cell.becomes(instance_id, engine="postgres")
    return f"{tenant.path}/instances/{instance_id}/queues"


def become(house: House, tenant: Tenant, instance_id: str, **columns: Any) -> None:
    """As ordered so; which engines run where has its own tests."""
    with house.database.write() as db:
        instance = instances.fetch(db, tenant.org_id, instance_id)
        for name, value in columns.items():
            setattr(instance, name, value)


def make(house: House, tenant: Tenant, path: str, name: str = "orders") -> str:
    made = house.post(path, tenant.key, json={"name": name})
    assert made.status_code == 201, made.text
    assert made.headers["Location"] == f"{path}/{name}"
    return f"{path}/{name}"


def send(
    house: House, tenant: Tenant, queue: str, *messages: Any, key: str | None = None
) -> httpx.Response:
    headers = {} if key is None else {"Idempotency-Key": key}
    body = {"messages": list(messages)}
    return house.post(f"{queue}/messages", tenant.key, json=body, headers=headers)


def audited(house: House, tenant: Tenant) -> list[tuple[str, str | None, dict[str, Any]]]:
    query = select(AuditEntry).where(AuditEntry.org_id == tenant.org_id).order_by(AuditEntry.id)
    with house.database.read() as db:
        found = [(one.action, one.target, dict(one.detail)) for one in db.scalars(query)]
    return [one for one in found if one[0].startswith("instance.queue")]


def test_the_life_of_a_queue(house: House, tenant: Tenant, path: str) -> None:
    queue = make(house, tenant, path)
    sent = send(house, tenant, queue, {"n": 1}, {"n": 2}, {"n": 3})
    assert (sent.status_code, sent.json()) == (201, {"message_ids": [1, 2, 3]})
    later = {"messages": [{"n": 4}], "delay_seconds": 3600}
    assert house.post(f"{queue}/messages", tenant.key, json=later).json() == {"message_ids": [4]}
    listed = house.get(path, tenant.key).json()["items"]
    assert [(one["name"], one["depth"], one["hidden"]) for one in listed] == [("orders", 3, 1)]
    assert listed[0]["data_api_roles"] == ["service_role"]

    body = {"count": 2, "visibility_timeout_s": 60}
    read = house.post(f"{queue}/messages/actions/read", tenant.key, json=body).json()["messages"]
    assert [(one["message_id"], one["read_count"], one["body"]) for one in read] == [
        (1, 1, {"n": 1}), (2, 1, {"n": 2}),
    ]  # fmt: skip
    read = house.post(f"{queue}/messages/actions/read", tenant.key, json={}).json()["messages"]
    assert [one["message_id"] for one in read] == [3]
    for verb, ids, gone in (("delete", [1, 9], [1]), ("archive", [1, 2], [2])):
        asked = f"{queue}/messages/actions/{verb}"
        answer = house.post(asked, tenant.key, json={"message_ids": ids})
        assert answer.json() == {"message_ids": gone}
    assert house.post(f"{queue}/actions/purge", tenant.key).json() == {"purged": 2}
    assert house.request("DELETE", queue, tenant.key).status_code == 204
    is_problem(house.request("DELETE", queue, tenant.key), 404)
    assert house.get(path, tenant.key).json() == {"items": [], "next_cursor": None}


def test_what_is_done_to_queues_is_audited_and_messages_are_not(
    house: House, tenant: Tenant, path: str
) -> None:
    queue = make(house, tenant, path)
    send(house, tenant, queue, {"secret": "of the customer"})
    roles = {"data_api_roles": ["anon"]}
    assert house.request("PUT", f"{queue}/permissions", tenant.key, json=roles).json() == {
        "name": "orders",
        **roles,
    }
    house.post(f"{queue}/actions/purge", tenant.key)
    house.request("DELETE", queue, tenant.key)
    instance_id = path.split("/")[-2]
    assert audited(house, tenant) == [
        ("instance.queue.create", instance_id, {"queue": "orders", "unlogged": False}),
        ("instance.queue.permit", instance_id, {"queue": "orders", **roles}),
        ("instance.queue.purge", instance_id, {"queue": "orders", "purged": 1}),
        ("instance.queue.delete", instance_id, {"queue": "orders"}),
    ]


def test_only_who_may_connect_can_use_them(house: House, tenant: Tenant, path: str) -> None:
    queue = make(house, tenant, path)
    send(house, tenant, queue, {"n": 1})
    session = house.session(tenant.owner.id, mfa=True)
    network = f"{path.removesuffix('/queues')}/network"

    def allow(body: dict[str, object]) -> None:
        headers = {"If-Match": "*"}
        answer = house.request("PUT", network, session, json=body, headers=headers)
        assert answer.status_code == 200, answer.text

    def refused(status: int, code: str) -> None:
        ids = {"message_ids": [1]}
        for method, asked, body in (
            ("GET", path, None),
            ("POST", path, {"name": "more"}),
            ("DELETE", queue, None),
            ("PUT", f"{queue}/permissions", {"data_api_roles": []}),
            ("POST", f"{queue}/messages", {"messages": [{"n": 2}]}),
            ("POST", f"{queue}/messages/actions/read", {}),
            ("POST", f"{queue}/messages/actions/delete", ids),
            ("POST", f"{queue}/messages/actions/archive", ids),
            ("POST", f"{queue}/actions/purge", None),
        ):
            options: dict[str, Any] = {} if body is None else {"json": body}
            is_problem(house.request(method, asked, tenant.key, **options), status, code)

    allow({"allow_cidrs": ["192.0.2.0/24"]})
    refused(403, "address_not_allowed")
    allow({"client_ca_pem": authority()[0]})
    refused(409, "conflict")
    allow({"allow_cidrs": ["192.0.2.0/24", "203.0.113.0/24"], "client_ca_pem": None})
    assert house.get(path, tenant.key).json()["items"][0]["depth"] == 1


def test_an_answer_is_repeated_only_to_who_may_connect(
    house: House, tenant: Tenant, path: str
) -> None:
    """It may hold messages, read before the list was changed."""
    queue = make(house, tenant, path)
    send(house, tenant, queue, {"n": 1})
    options: dict[str, Any] = {"json": {}, "headers": {"Idempotency-Key": "k"}}

    def read() -> httpx.Response:
        return house.post(f"{queue}/messages/actions/read", tenant.key, **options)

    first = read()
    assert '{"n":1}' in first.text
    assert read().json() == first.json()
    session = house.session(tenant.owner.id, mfa=True)
    network = f"{path.removesuffix('/queues')}/network"
    body = {"allow_cidrs": ["192.0.2.0/24"]}
    house.request("PUT", network, session, json=body, headers={"If-Match": "*"})
    is_problem(read(), 403, "address_not_allowed")


def test_pages_go_on_by_name(house: House, tenant: Tenant, path: str) -> None:
    names = [f"q{number}" for number in range(5)]
    for name in reversed(names):
        make(house, tenant, path, name)
    first = house.get(f"{path}?limit=3", tenant.key).json()
    cursor = first["next_cursor"]
    second = house.get(path, tenant.key, params={"limit": 3, "cursor": cursor}).json()
    assert [one["name"] for one in [*first["items"], *second["items"]]] == names
    assert second["next_cursor"] is None


def test_a_request_made_again_sends_once(house: House, tenant: Tenant, path: str) -> None:
    queue = make(house, tenant, path)
    first = send(house, tenant, queue, {"n": 1}, key="k1")
    again = send(house, tenant, queue, {"n": 1}, key="k1")
    assert first.json() == again.json() == {"message_ids": [1]}
    assert again.headers["Idempotency-Replayed"] == "true"
    is_problem(send(house, tenant, queue, {"n": 2}, key="k1"), 422, "idempotency_key_reused")
    assert send(house, tenant, queue, {"n": 1}, key="k2").json() == {"message_ids": [2]}
    assert send(house, tenant, queue, {"n": 1}).json() == {"message_ids": [3]}
    assert send(house, tenant, queue, {"n": 1}).json() == {"message_ids": [4]}


def test_an_answer_that_was_lost_is_given_again(house: House, tenant: Tenant, path: str) -> None:
    """The cell did it and nobody was told: the same request does not do it a second time."""
    queue = make(house, tenant, path)

    def lose(_action: str, _instance_id: str) -> None:
        raise CellUnavailable("the cell did not answer in time")

    house.cell.after = lose
    is_problem(send(house, tenant, queue, {"n": 1}, key="k1"), 503)
    again = house.post(path, tenant.key, json={"name": "more"}, headers={"Idempotency-Key": "k"})
    is_problem(again, 503)
    house.cell.after = nothing
    assert send(house, tenant, queue, {"n": 1}, key="k1").json() == {"message_ids": [1]}
    again = house.post(path, tenant.key, json={"name": "more"}, headers={"Idempotency-Key": "k"})
    assert again.status_code == 201
    assert house.get(path, tenant.key).json()["items"][1]["total_messages"] == 1
    actions = [action for action, _, _ in audited(house, tenant)]
    assert actions == ["instance.queue.create"] * 2, "recorded once each"


def test_what_could_not_be_recorded_is_recorded_with_the_next_try(
    house: House, tenant: Tenant, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when this process ends between the cell's answer and its own."""

    def fail(*_given: Any) -> Reply:
        raise StorageUnavailable("the database is busy with other writes")

    named = {"json": {"name": "orders"}, "headers": {"Idempotency-Key": "k0"}}
    queue = f"{path}/orders"
    with monkeypatch.context() as failing:
        failing.setattr(RequestPipeline, "_record", fail)
        is_problem(house.post(path, tenant.key, **named), 503)
        is_problem(send(house, tenant, queue, {"n": 1}, key="k1"), 503)
    assert audited(house, tenant) == []
    assert house.post(path, tenant.key, **named).status_code == 201
    assert send(house, tenant, queue, {"n": 1}, key="k1").json() == {"message_ids": [1]}
    assert house.get(path, tenant.key).json()["items"][0]["total_messages"] == 1
    assert [action for action, _, _ in audited(house, tenant)] == ["instance.queue.create"]


@pytest.mark.every_database  # what locks is the database
def test_one_key_sent_by_many_at_once_sends_once(house: House, tenant: Tenant, path: str) -> None:
    queue = make(house, tenant, path)
    options = {"json": {"messages": [{}]}, "headers": {"Idempotency-Key": "k1"}}
    request = ("POST", f"{queue}/messages", tenant.key, options)
    answers = house.together(*[tuple(map(_copy, request)) for _ in range(10)])
    kinds = {(one.status_code, one.json().get("code")) for one in answers}
    assert kinds <= {(201, None), (409, "idempotency_in_flight")}
    assert house.get(path, tenant.key).json()["items"][0]["total_messages"] == 1


@pytest.mark.every_database  # what locks is the database
def test_two_requests_that_share_a_key_at_once_are_both_recorded(
    house: House, tenant: Tenant, path: str
) -> None:
    """What a cell has done is told and audited, though the key was another request's by then."""
    queues = [make(house, tenant, path, name) for name in ("orders", "bills")]
    both = threading.Barrier(2)

    def meet(_action: str, _instance_id: str) -> None:
        both.wait(30)

    house.cell.before = meet
    options = {"headers": {"Idempotency-Key": "k1"}}
    asked = [("POST", f"{queue}/actions/purge", tenant.key, options) for queue in queues]
    answers = house.together(*[tuple(map(_copy, one)) for one in asked])
    assert [one.status_code for one in answers] == [200, 200], [one.text for one in answers]
    assert sorted(one[2]["queue"] for one in audited(house, tenant)[2:]) == ["bills", "orders"]
    house.cell.before = nothing
    again = [house.post(f"{one}/actions/purge", tenant.key, **options) for one in queues]
    assert sorted(one.status_code for one in again) == [200, 422]


@pytest.mark.every_database  # what locks is the database
def test_no_transaction_waits_for_the_cell(house: House, tenant: Tenant, path: str) -> None:
    queue = make(house, tenant, path)
    asked, go_on = threading.Event(), threading.Event()

    def wait(_action: str, _instance_id: str) -> None:
        asked.set()
        assert go_on.wait(30)

    def write_meanwhile() -> None:
        assert asked.wait(30)
        with house.database.write() as db:
            db.get_one(Organization, tenant.org_id).name = "Renamed"
        go_on.set()

    house.cell.before = wait
    sent = house.during(
        write_meanwhile, "POST", f"{queue}/messages", tenant.key, json={"messages": [{}]}
    )
    assert sent.json() == {"message_ids": [1]}


def test_what_queues_need(house: House, tenant: Tenant, path: str) -> None:
    other = house.instance(tenant)
    refused = house.get(f"{tenant.path}/instances/{other}/queues", tenant.key)
    is_problem(refused, 409)
    assert refused.json()["detail"] == "queues need a postgres instance; this instance is duckdb"
    instance_id = path.split("/")[-2]
    become(house, tenant, instance_id, status="paused")
    refused = house.post(path, tenant.key, json={"name": "orders"})
    is_problem(refused, 409)
    assert "resume it first" in refused.json()["detail"]
    become(house, tenant, instance_id, status="running")
    house.cell.becomes(instance_id, status="paused")
    is_problem(house.get(path, tenant.key), 409)
    house.cell.becomes(instance_id, status="running")
    assert audited(house, tenant) == []


def test_what_is_not_there_or_there_already(house: House, tenant: Tenant, path: str) -> None:
    queue = make(house, tenant, path)
    is_problem(house.post(path, tenant.key, json={"name": "orders"}), 409, "queue_exists")
    is_problem(send(house, tenant, f"{path}/never", {}), 404, "queue_not_found")
    is_problem(house.post(path, tenant.key, json={"name": "a_pkey"}), 422)
    is_problem(send(house, tenant, queue), 422)
    is_problem(send(house, tenant, queue, *[{}] * 1001), 422)
    is_problem(send(house, tenant, queue, {"text": "\u0000"}), 422)
    is_problem(send(house, tenant, queue, "no object"), 422)
    is_problem(send(house, tenant, queue, {"text": "x" * 1_048_576}), 413)
    negative = {"messages": [{}], "delay_seconds": -1}
    is_problem(house.post(f"{queue}/messages", tenant.key, json=negative), 422)
    stranger = {"data_api_roles": ["postgres"]}
    is_problem(house.request("PUT", f"{queue}/permissions", tenant.key, json=stranger), 422)
    assert house.get(path, tenant.key).json()["items"][0]["total_messages"] == 0


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_name_never_reaches_the_cell(
    house: House, tenant: Tenant, path: str, name: str
) -> None:
    is_problem(house.post(path, tenant.key, json={"name": name}), 422)
    assert house.get(path, tenant.key).json()["items"] == []


def test_who_only_reads_sees_no_messages(house: House, tenant: Tenant, path: str) -> None:
    queue = make(house, tenant, path)
    auditor = house.member(tenant.org_id, "auditor")
    assert house.get(path, auditor.session).status_code == 200
    requests: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", f"{queue}/messages/actions/read", {"count": 1}),
        ("POST", f"{queue}/messages", {"messages": [{}]}),
        ("PUT", f"{queue}/permissions", {"data_api_roles": []}),
    ]
    for method, asked, body in requests:
        is_problem(house.request(method, asked, auditor.session, json=body), 403)


def _copy(value: Any) -> Any:
    return dict(value) if isinstance(value, dict) else value
