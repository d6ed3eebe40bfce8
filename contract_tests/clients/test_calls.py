"""The Python client: what it sends, when it sends it again, and what it raises."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from clients import errors
from clients.client import Client, transport_for_localhost
from clients.document import Document
from clients.endpoint import Endpoint
from clients.retries import Retries
from clients.transport import open_http
from clients.waiting import settle
from contract_tests.clients.servers import DROP, Authority, new_id, problem
from contract_tests.clients.stand_in import ControlPlane, openapi

BUSY = problem(429, "Too Many Requests", "slow down")
UNAVAILABLE = problem(503, "Service Unavailable", "the database is away")


def listing(plane: ControlPlane) -> str:
    return f"/v1/orgs/{plane.world.org_id}/instances"


def ordering(plane: ControlPlane) -> str:
    return f"/v1/orgs/{plane.world.org_id}/projects/{plane.world.project_id}/instances"


def with_header(
    answer: tuple[int, dict[str, str], object], name: str, value: str
) -> tuple[int, dict[str, str], object]:
    return answer[0], {**answer[1], name: value}, answer[2]


def test_a_retried_order_keeps_its_idempotency_key(client: Client, plane: ControlPlane) -> None:
    plane.script("POST", ordering(plane), BUSY, UNAVAILABLE, DROP)
    made = client.call("instances.create", engine="duckdb", size="f0")
    assert made["status"] == "requested"
    sent = plane.asked("POST", "/instances")
    assert len(sent) == 4
    assert len({one.headers["Idempotency-Key"] for one in sent}) == 1
    client.call("instances.create", engine="duckdb", size="f0")
    assert (
        plane.asked("POST", "/instances")[-1].headers["Idempotency-Key"]
        != sent[0].headers["Idempotency-Key"]
    )


def test_a_given_idempotency_key_is_used(client: Client, plane: ControlPlane) -> None:
    client.call("instances.create", engine="duckdb", size="f0", idempotency_key="mine")
    assert plane.asked("POST", "/instances")[0].headers["Idempotency-Key"] == "mine"


def test_retry_after_is_obeyed(client: Client, plane: ControlPlane) -> None:
    waited: list[float] = []
    client.retries = replace(client.retries, sleep=waited.append)
    plane.script("GET", listing(plane), with_header(BUSY, "Retry-After", "7"))
    client.call("instances.list")
    assert [7 <= one < 8 for one in waited] == [True]


def test_a_wait_too_long_is_told_instead(client: Client, plane: ControlPlane) -> None:
    plane.script("GET", listing(plane), with_header(BUSY, "Retry-After", "3600"))
    with pytest.raises(errors.TooManyRequests) as raised:
        client.call("instances.list")
    assert raised.value.retry_after_s == 3600
    assert len(plane.asked("GET", "/instances")) == 1


def test_it_gives_up_in_the_end(client: Client, plane: ControlPlane) -> None:
    plane.script("GET", listing(plane), *[UNAVAILABLE] * 9)
    with pytest.raises(errors.ServiceFailed, match="the database is away"):
        client.call("instances.list")
    assert len(plane.asked("GET", "/instances")) == client.retries.attempts_max


def test_what_might_be_done_twice_is_not_repeated(client: Client, plane: ControlPlane) -> None:
    sales = plane.world.add("sales")
    plane.script("PATCH", f"{listing(plane)}/{sales['id']}", DROP)
    with pytest.raises(errors.ConnectionFailed):
        client.call("instances.update", instance_id=sales["id"], name="other")
    assert len(plane.asked("PATCH", sales["id"])) == 1


def test_its_own_first_attempt_still_at_work_is_waited_for(
    client: Client, plane: ControlPlane
) -> None:
    in_flight = problem(409, "Conflict", "the first request with this key is under way")
    plane.script("POST", ordering(plane), DROP, with_header(in_flight, "Retry-After", "0"))
    assert client.call("instances.create", engine="duckdb", size="f0")["status"] == "requested"


def test_a_conflict_of_the_first_attempt_is_a_conflict(client: Client, plane: ControlPlane) -> None:
    taken = problem(409, "Conflict", "the name is taken")
    plane.script("POST", ordering(plane), with_header(taken, "Retry-After", "0"))
    with pytest.raises(errors.Conflict, match="the name is taken"):
        client.call("instances.create", engine="duckdb", size="f0")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, errors.Invalid), (401, errors.Unauthenticated), (403, errors.Forbidden),
        (404, errors.NotFound), (409, errors.Conflict), (422, errors.Invalid),
        (500, errors.ServiceFailed), (418, errors.Problem),
    ],
)  # fmt: skip
def test_problems_are_exceptions_that_carry_the_document(
    status: int, kind: type[errors.Problem], client: Client, plane: ControlPlane
) -> None:
    violation = {"pointer": "/size", "keyword": "enum", "message": "is not a size"}
    answer = problem(status, "Title", "detail", code="a_code", errors=[violation])
    plane.script("GET", listing(plane), answer)
    with pytest.raises(errors.Problem) as raised:
        client.call("instances.list")
    found = raised.value
    assert type(found) is kind
    assert (found.status, found.title, found.detail, found.code) == (
        status,
        "Title",
        "detail",
        "a_code",
    )
    assert found.violations == [violation]
    assert found.request_id == "req_01JD7QK3V8Y2M4N6P8R0S2T4V6"


def test_an_answer_that_is_no_problem_document_is_told_too(
    client: Client, plane: ControlPlane
) -> None:
    plane.script("GET", listing(plane), (404, {"Content-Type": "text/html"}, "<h1>gateway</h1>"))
    with pytest.raises(errors.NotFound, match="gateway"):
        client.call("instances.list")


def test_arguments_it_does_not_take_are_refused_before_anything_is_sent(
    client: Client, plane: ControlPlane
) -> None:
    with pytest.raises(errors.ConfigurationError, match="colour"):
        client.call("instances.create", engine="duckdb", size="f0", colour="red")
    with pytest.raises(errors.ConfigurationError, match="instance_id"):
        client.call("instances.get")
    with pytest.raises(errors.ConfigurationError, match=r"instances\.fly"):
        client.call("instances.fly")
    assert not plane.asked("POST", "/instances")


def test_path_values_cannot_leave_their_segment(client: Client, plane: ControlPlane) -> None:
    with pytest.raises(errors.NotFound):
        client.call("instances.get", instance_id="../../../orgs?x=1")
    assert plane.seen[-1].path.endswith("/instances/..%2F..%2F..%2Forgs%3Fx%3D1")


def test_another_org_is_asked_with_the_session(client: Client, plane: ControlPlane) -> None:
    client.call("instances.list")
    client.call("instances.list", org_id=new_id("org"))
    tokens = [one.token for one in plane.asked("GET", "/instances")]
    assert tokens == [f"Bearer {plane.world.api_key}", f"Bearer {plane.world.session_token}"]


def test_without_a_session_user_operations_are_not_even_tried(plane: ControlPlane) -> None:
    told = pytest.raises(errors.SignInRequired, match="signed-in user")
    with Client(plane.base_url, api_key=plane.world.api_key) as client, told:
        client.call("sessions.list")
    assert not plane.asked("GET", "/sessions")


def test_pages_come_as_one_list(client: Client, plane: ControlPlane) -> None:
    made = [plane.world.add(f"db-{number}")["id"] for number in range(7)]
    listed = client.paginate("instances.list", limit=5)
    assert [one["id"] for one in listed] == made[:5]
    assert [one["id"] for one in client.paginate("instances.list")] == made


def test_waiting_ends_in_time_or_with_the_facts(client: Client, plane: ControlPlane) -> None:
    stuck = plane.world.add("stuck", status="resizing")
    with pytest.raises(
        errors.WaitTimedOut, match=r"stuck is resizing, not running, after 0\.1 s"
    ) as raised:
        client.wait(stuck["id"], "running", timeout_s=0.1)
    assert raised.value.last["id"] == stuck["id"]
    failed = plane.world.add("broken", status="failed", status_reason="no engine")
    with pytest.raises(
        errors.ResourceFailed, match="broken is failed and will not be running: no engine"
    ):
        client.wait(failed["id"], "running")
    erased = plane.world.add("gone", status="erased")
    assert client.wait(erased["id"], "deleted")["status"] == "erased"


def test_a_cutover_that_is_thrown_back_is_waited_for_no_longer() -> None:
    ending = Document(openapi()).operations["migrations.cutover"].ending
    assert ending is not None
    shown: Iterator[dict[str, Any]] = iter(
        [
            {"id": "mig_1", "status": "cutting_over", "status_reason": None},
            {"id": "mig_1", "status": "syncing", "status_reason": "the source is written to"},
        ]
    )
    told = pytest.raises(errors.ResourceFailed, match="mig_1 is syncing: the source is written to")
    with told:
        settle(lambda: next(shown), ending, timeout_s=20)


@pytest.mark.parametrize(
    ("last", "told"),
    [
        ({"status": None, "error": "the connection was refused"}, "the connection was refused"),
        ({"status": 500, "error": None}, "the receiver answered with status 500"),
    ],
)
def test_a_delivery_that_failed_says_what_came_back(last: dict[str, Any], told: str) -> None:
    seen = {"id": "whd_1", "status": "failed", "attempts": [{"status": 404, "error": None}, last]}
    ending = Document(openapi()).operations["webhooks.test"].ending
    assert ending is not None
    with pytest.raises(errors.ResourceFailed, match=f"^whd_1 failed: {told}$"):
        settle(lambda: seen, ending, timeout_s=20)


def test_unreachable_is_told_with_the_address(nowhere: str) -> None:
    retries = Retries(attempts_max=2, sleep=lambda _: None)
    told = pytest.raises(errors.ConnectionFailed, match=f"cannot reach {nowhere}")
    with Client(nowhere, document=Document({"paths": {}}), retries=retries) as client, told:
        client.fetch_document(None)


def test_localhost_names_are_reached_verified_and_kept_apart(
    plane: ControlPlane, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Or a connection would be given up where the machine stalls for five seconds.
    lasting = partial(httpx.HTTPTransport, limits=httpx.Limits(keepalive_expiry=None))
    monkeypatch.setattr(httpx, "HTTPTransport", lasting)
    port = plane.cell.port
    with open_http(f"https://cell.local.localhost:{port}", ca_file=str(folder / "ca.pem")) as http:
        for host in ("one", "two", "one"):
            assert http.get(f"https://{host}.local.localhost:{port}/query").status_code == 401
    seen = plane.cell.seen
    names = [f"{host}.local.localhost" for host in ("one", "two", "one")]
    assert [one.sni for one in seen] == names
    assert [one.headers["Host"] for one in seen] == [f"{name}:{port}" for name in names]
    # A connection stays with its instance, and is used again for it.
    assert seen[0].connection == seen[2].connection != seen[1].connection


def test_certificates_are_verified(plane: ControlPlane, client: Client) -> None:
    url = f"https://cell.local.localhost:{plane.cell.port}/"
    with open_http(url) as http, pytest.raises(Exception, match="CERTIFICATE_VERIFY_FAILED"):
        http.get(url)
    other = f"https://elsewhere.localhost:{plane.cell.port}/"
    endpoint = Endpoint(client, plane.world.add("sales"))
    with (
        open_http(other, ca_pem=endpoint.ca_pem()) as http,
        pytest.raises(Exception, match="Hostname mismatch"),
    ):
        http.get(other)


def test_certificates_that_are_replaced_are_read_anew(plane: ControlPlane, folder: Path) -> None:
    """A client is made for each part of an upload, and all share what takes long to load."""
    url = f"https://one.local.localhost:{plane.cell.port}/query"
    right, file, other = (folder / "ca.pem").read_text(), folder / "given.pem", folder / "other"
    other.mkdir()
    wrong = Authority(other, "one.local.localhost").ca_file.read_text()
    for content, is_trusted in ((right, True), (wrong, False)) * 2:
        file.write_text(content)
        with open_http(url, ca_file=str(file)) as http:
            if is_trusted:
                assert http.get(url).status_code == 401
                continue
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                http.get(url)
    file.unlink()
    with pytest.raises(errors.ConfigurationError, match="cannot use the certificates"):
        open_http(url, ca_file=str(file))


def test_the_transport_serves_any_httpx_client(plane: ControlPlane, folder: Path) -> None:
    with httpx.Client(transport=transport_for_localhost(str(folder / "ca.pem"))) as http:
        assert http.get(f"https://x.local.localhost:{plane.cell.port}/query").status_code == 401


def test_a_credential_comes_from_the_cell_without_our_tokens(
    client: Client, plane: ControlPlane
) -> None:
    sales = plane.world.add("sales")
    endpoint = Endpoint(client, sales)
    credential = endpoint.reveal()
    with endpoint.session(credential) as session:
        result = session.query("SELECT $1 + 1 AS n", [41])
    assert (result.columns, result.rows, result.row_count) == (["n"], [[42]], 1)
    fetched, queried = plane.cell.seen
    assert fetched.token is None
    assert str(queried.token).startswith("Basic ")
    assert plane.world.api_key not in str(plane.cell.seen)
    assert credential.password not in repr(credential)


def test_a_cell_that_refuses_is_told_without_the_url(client: Client, plane: ControlPlane) -> None:
    sales = plane.world.add("sales")
    url = plane.cell.url("reveal", sales)
    path = f"{listing(plane)}/{sales['id']}/credentials/reveal"
    plane.script("POST", path, *[(200, {}, {"url": url})] * 2)
    endpoint = Endpoint(client, sales)
    endpoint.reveal()
    with pytest.raises(errors.NotFound, match="the URL was used") as raised:
        endpoint.reveal()
    assert url not in str(raised.value)
