"""The oracle itself: it lets pass what the document says, and nothing else."""

import json
from typing import Any

import httpx
import pytest

from contract_tests.api.oracle import Oracle, OracleError

REGIONS: dict[str, Any] = {"items": [], "next_cursor": None}
HEADERS = {"X-Request-Id": "req_01ARZ3NDEKTSV4RRFFQ69G5FAV"}


def exchange(oracle: Oracle, status: int, body: Any, query: str = "") -> None:
    request = httpx.Request(
        "GET", f"http://house/v1/regions{query}", headers={"Authorization": "Bearer x"}
    )
    oracle.check(request, httpx.Response(status, json=body, headers=HEADERS))


def refused(status: int, code: str, **more: Any) -> tuple[httpx.Request, httpx.Response]:
    problem = {"type": f"urn:x:{code}", "title": "X", "status": status, "detail": "x"}
    request = httpx.Request("GET", "http://house/v1/regions", headers={"Authorization": "Bearer x"})
    headers = {**HEADERS, "Content-Type": "application/problem+json"}
    body = {**problem, "code": code, "request_id": HEADERS["X-Request-Id"], **more}
    return request, httpx.Response(status, content=json.dumps(body), headers=headers)


def test_it_lets_pass_what_the_document_says(oracle: Oracle) -> None:
    before = oracle.checked
    exchange(oracle, 200, REGIONS)
    assert oracle.checked == before + 1


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, {"items": []}),
        (200, {"items": [{"id": "local"}], "next_cursor": None}),
        (200, {**REGIONS, "secret": "x"}),
        (201, REGIONS),
        (404, REGIONS),
    ],
)
def test_it_refuses_what_the_document_does_not_say(oracle: Oracle, status: int, body: Any) -> None:
    with pytest.raises((OracleError, KeyError)):
        exchange(oracle, status, body)


def test_it_refuses_an_invalid_request_that_was_taken(oracle: Oracle) -> None:
    request = httpx.Request("GET", "http://house/v1/orgs/org_x/projects?limit=0")
    request.headers["Authorization"] = "Bearer x"
    answer = httpx.Response(200, json=REGIONS, headers=HEADERS)
    with pytest.raises(OracleError, match="the request is invalid"):
        oracle.check(request, answer)


@pytest.mark.parametrize(
    ("status", "code", "named"),
    [
        (401, "unauthenticated", True),
        (403, "key_suspended", True),
        (403, "mfa_required", False),
        (429, "rate_limited", True),
        (429, "code_rate_limited", False),
    ],
)
def test_it_refuses_a_code_that_the_operation_does_not_name(
    oracle: Oracle, status: int, code: str, *, named: bool
) -> None:
    request, answer = refused(status, code)
    if named:
        oracle.check(request, answer)
        return
    with pytest.raises(OracleError, match=f"does not name the code {code}"):
        oracle.check(request, answer)


@pytest.mark.parametrize("each", [True, False], ids=["at night", "by day"])
def test_of_refusals_that_differ_in_their_texts_alone_one_is_judged_by_day(*, each: bool) -> None:
    oracle = Oracle(each=each)
    first = refused(401, "unauthenticated")
    for _ in range(2):
        oracle.check(*first)
        exchange(oracle, 200, REGIONS)
    assert (oracle.checked, oracle.judged) == (4, 4 if each else 3)
    for wrong in (
        refused(401, "unheard_of"),
        refused(401, "unauthenticated", detail=1),
        refused(401, "unauthenticated", errors=[{"pointer": "/a"}]),
    ):
        with pytest.raises(OracleError):
            oracle.check(*wrong)
