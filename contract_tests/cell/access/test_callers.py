"""Who may ask the cell what: signatures, replays, tokens of the gateway, steps and leases."""

import socket
import threading
import time
from typing import Any

import httpx
import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from contract_tests.cell.rig import LARGER, SMALL, VALKEY, Rig, new_id, spec, until


def refused(rig: Rig, headers: dict[str, str], path: str = "/v1/instances") -> str:
    with rig.client() as http:
        answer = http.get(path, headers=headers)
    assert answer.status_code == 401, answer.text
    return str(answer.json()["code"])


def test_an_unsigned_request_is_refused(shared_rig: Rig) -> None:
    assert refused(shared_rig, {}) == "not_signed"


def test_a_signature_by_another_key_is_refused(shared_rig: Rig) -> None:
    stranger = Rig(shared_rig.home, key=Ed25519PrivateKey.generate())
    assert refused(shared_rig, stranger.sign("GET", "/v1/instances")) == "bad_signature"


@pytest.mark.parametrize(
    "changed", ["cell", "method", "path", "query", "body", "timestamp", "nonce"]
)
def test_a_signature_covers_the_whole_request(shared_rig: Rig, changed: str) -> None:
    signed_for: dict[str, Any] = {"method": "GET", "path": "/v1/instances"}
    if changed == "method":
        signed_for["method"] = "PUT"
    elif changed == "path":
        signed_for["path"] = "/v1/cell"
    elif changed == "query":
        signed_for["path"] = "/v1/instances?a=b"
    elif changed == "body":
        signed_for["body"] = b"{}"
    headers = shared_rig.sign(**signed_for)
    if changed == "timestamp":
        headers["Menagerie-Timestamp"] = str(int(headers["Menagerie-Timestamp"]) + 1)
    elif changed == "cell":
        headers["Menagerie-Cell"] = "cell_other"
    elif changed == "nonce":
        headers["Menagerie-Nonce"] = "0" * 32
    assert refused(shared_rig, headers) == "bad_signature"


@pytest.mark.parametrize("skew_s", [0, -400])
def test_what_was_signed_for_another_cell_is_refused(shared_rig: Rig, skew_s: int) -> None:
    """Else a cell that was taken over could pass on to others what it is sent."""
    at = time.time() + skew_s
    headers = shared_rig.sign("GET", "/v1/instances", at=at, cell_id="cell_other")
    with shared_rig.client() as http:
        answer = http.get("/v1/instances", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (401, "wrong_cell")
    assert f"signed for cell_other, and this is {shared_rig.cell_id}" in answer.json()["detail"]
    assert "Menagerie-Challenge" not in answer.headers


def test_a_request_that_names_no_cell_is_refused(shared_rig: Rig) -> None:
    headers = shared_rig.sign("GET", "/v1/instances")
    del headers["Menagerie-Cell"]
    with shared_rig.client() as http:
        answer = http.get("/v1/instances", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (401, "not_signed")
    assert answer.json()["detail"] == "the request is not signed: it has no Menagerie-Cell"


@pytest.mark.parametrize("skew_s", [-400, 400])
def test_a_signature_of_another_time_is_refused(shared_rig: Rig, skew_s: int) -> None:
    at = time.time() + skew_s
    assert refused(shared_rig, shared_rig.sign("GET", "/v1/instances", at=at)) == "stale_signature"


def test_a_request_is_believed_once(shared_rig: Rig) -> None:
    headers = shared_rig.sign("GET", "/v1/instances")
    with shared_rig.client() as http:
        assert http.get("/v1/instances", headers=headers).status_code == 200
    assert refused(shared_rig, headers) == "replayed"


def test_a_request_is_believed_once_also_by_the_next_cell(rig: Rig) -> None:
    headers = rig.sign("GET", "/v1/instances")
    with rig.client() as http:
        assert http.get("/v1/instances", headers=headers).status_code == 200
    rig.kill()
    rig.start()
    assert refused(rig, headers) == "replayed"


def test_every_control_operation_needs_a_signature(shared_rig: Rig) -> None:
    path = f"/v1/instances/{new_id()}"
    asked = [("GET", "/v1/cell"), ("GET", path), ("PUT", path), ("GET", f"{path}/capacity")]
    verbs = ("pause", "resume", "resize", "snapshot", "delete", "erase")
    asked += [("POST", f"{path}/actions/{verb}") for verb in verbs]
    with shared_rig.client() as http:
        assert {http.request(method, path).status_code for method, path in asked} == {401}


def test_only_the_gateway_wakes_and_ends_sessions(shared_rig: Rig) -> None:
    told = {"sessions": [1], "since": 0}
    with shared_rig.client() as http:
        for headers in ({}, {"Authorization": "Bearer no"}, {"Authorization": "Basic YTpi"}):
            assert http.post(f"/v1/wake/{new_id()}", headers=headers).status_code == 401
            path = f"/v1/abandoned/{new_id()}"
            assert http.post(path, headers=headers, json=told).status_code == 401
    assert shared_rig.wake(new_id()).status_code == 404


def test_a_step_is_done_once_and_answered_alike(shared_rig: Rig) -> None:
    instance_id = shared_rig.make()
    path = f"/v1/instances/{instance_id}/actions/snapshot"
    body = {"label": "once"}
    first = shared_rig.act("POST", path, body, key=f"{instance_id}:copy").json()
    again = shared_rig.act("POST", path, body, key=f"{instance_id}:copy", lease=2).json()
    assert again == first
    other = shared_rig.act("POST", path, body, key=f"{instance_id}:copy2", lease=2).json()
    assert other["snapshot_id"] != first["snapshot_id"]


def test_a_step_of_one_request_does_not_answer_another(light_rig: Rig) -> None:
    one, other = light_rig.make(), light_rig.make()
    key = f"{one}:step"
    body = {"label": "once"}
    first = light_rig.act("POST", f"/v1/instances/{one}/actions/snapshot", body, key=key).json()
    copy = light_rig.act("POST", f"/v1/instances/{other}/actions/snapshot", body, key=key).json()
    assert copy["snapshot_id"] != first["snapshot_id"]
    paused = light_rig.act("POST", f"/v1/instances/{other}/actions/pause", key=key).json()
    assert (paused["instance_id"], paused["status"]) == (other, "paused")


def test_an_older_lease_is_refused(shared_rig: Rig) -> None:
    path = f"/v1/instances/{new_id()}/actions/pause"
    operation = new_id()
    assert shared_rig.act("POST", path, key=f"{operation}:pause", lease=5).status_code == 404
    stale = shared_rig.act("POST", path, key=f"{operation}:other", lease=4)
    assert (stale.status_code, stale.json()["code"]) == (409, "stale_lease")


def test_one_step_asked_for_at_once_makes_one_instance(shared_rig: Rig) -> None:
    instance_id = new_id()
    answers: list[httpx.Response] = []

    def ask() -> None:
        path = f"/v1/instances/{instance_id}"
        answers.append(shared_rig.act("PUT", path, spec(instance_id), key=f"{instance_id}:put"))

    callers = [threading.Thread(target=ask) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert [answer.status_code for answer in answers] == [200] * 8
    assert len({answer.content for answer in answers}) == 1
    started = shared_rig.log_path.read_text().count("cell.engine_started")
    assert shared_rig.observe(instance_id)["status"] == "running"
    lines = shared_rig.log_path.read_text().splitlines()
    assert sum("engine_started" in one and instance_id in one for one in lines) == 1, started


def test_a_caller_that_goes_away_leaves_no_half_made_instance(shared_rig: Rig) -> None:
    instance_id = new_id()
    path = f"/v1/instances/{instance_id}"
    body = orjson.dumps(spec(instance_id))
    headers = {
        **shared_rig.sign("PUT", path, body),
        "Operation-Key": f"{instance_id}:put",
        "Operation-Lease": "1",
        "Content-Type": "application/json",
    }
    lines = (f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"PUT {path} HTTP/1.1\r\nHost: cell\r\nContent-Length: {len(body)}\r\n{''.join(lines)}"
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(shared_rig.socket)
        caller.sendall(f"{head}\r\n".encode() + body)
        until(lambda: shared_rig.get(path).status_code == 200, "it is being made")
    until(lambda: shared_rig.get(path).json().get("status") == "running", "it is made")


def test_whole_numbers_may_be_written_with_a_fraction(light_rig: Rig) -> None:
    figures = {"memory_bytes": 2.0**30, "storage_bytes": 2e10, "connections_max": 60.0}
    instance_id = light_rig.make(size={**SMALL, **figures})
    resized = light_rig.action(instance_id, "resize", {"size": {**LARGER, "storage_bytes": 3e10}})
    assert (resized["status"], resized["size"]) == ("running", LARGER["name"])
    beyond = spec(instance_id, size={**SMALL, "storage_bytes": 1e30}, **VALKEY)
    assert light_rig.act("PUT", f"/v1/instances/{instance_id}", beyond).status_code == 422


def test_a_host_leads_to_one_instance_only(light_rig: Rig) -> None:
    one, other = light_rig.make(), light_rig.make()
    host = spec(one)["host"]
    for instance_id in (other, new_id()):
        path = f"/v1/instances/{instance_id}"
        answer = light_rig.act("PUT", path, spec(instance_id, host=host, **VALKEY))
        assert answer.status_code == 409, answer.text
    assert light_rig.routes()["instances"][host]["instance_id"] == one
    assert light_rig.put(one)["host"] == host


def test_what_cannot_run_here_is_refused(shared_rig: Rig) -> None:
    instance_id = new_id()
    path = f"/v1/instances/{instance_id}"
    for changes in ({"engine": "questdb"}, {"engine_version": "0.1"}, {"host": "no spaces.x"}):
        answer = shared_rig.act("PUT", path, spec(instance_id, **changes))
        assert answer.status_code == 422, answer.text
    assert shared_rig.get(path).status_code == 404
