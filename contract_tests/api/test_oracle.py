"""The oracle itself: it lets pass what the document says, and nothing else."""

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
