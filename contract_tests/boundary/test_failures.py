"""What goes wrong below, as callers read it; and cursors."""

import re
import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.exc import DataError, OperationalError
from structlog.testing import capture_logs

from contract_tests.boundary.small_api import SmallApi
from control.boundary.addresses import Proxies
from control.boundary.cursors import Cursors
from control.boundary.failures import as_problem
from control.boundary.unrouted import UnroutedLimit
from control.cells.client import CellUnavailable
from control.cells.queues import QueueRefused
from control.settings import ControlSettings, RateLimits
from specserver import Invalid, Request, TooManyRequests
from storage.errors import StorageUnavailable


@pytest.mark.parametrize(
    ("how", "status", "code"),
    [
        ("not_found", 404, "not_found"),
        ("conflict", 409, "conflict"),
        ("unavailable", 503, "unavailable"),
        ("write_in_read", 500, "internal_error"),
    ],
)
def test_what_storage_raises_is_a_problem(api: SmallApi, how: str, status: int, code: str) -> None:
    ann = api.person()
    org = api.org((ann, "owner"))
    answer = api.get(f"/v1/orgs/{org}/fail/{how}", ann.session)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["Content-Type"].startswith("application/problem+json")
    assert answer.json()["request_id"] == answer.headers["X-Request-Id"]
    assert ("Retry-After" in answer.headers) == (status == 503)


def test_a_conflict_says_what_is_in_the_way(api: SmallApi) -> None:
    ann = api.person()
    path = f"/v1/orgs/{api.org((ann, 'owner'))}/projects"
    body = {"name": "A", "slug": "a"}
    assert api.post(path, ann.session, json=body).status_code == 201
    taken = api.post(path, ann.session, json=body)
    assert taken.status_code == 409
    assert taken.json()["detail"] == "a project with this slug already exists"


def test_a_value_that_the_program_forgot_is_no_conflict(api: SmallApi) -> None:
    ann = api.person()
    path = f"/v1/orgs/{api.org((ann, 'owner'))}/projects"
    with capture_logs() as logs:
        forgotten = api.post(path, ann.session, json={"name": "A", "slug": "a", "then": "forget"})
    assert (forgotten.status_code, forgotten.json()["code"]) == (500, "internal_error")
    (traceback,) = [entry["exception"] for entry in logs if "exception" in entry]
    assert "IntegrityError" in traceback
    assert api.get(path, ann.session).json()["items"] == []


# SQLite holds it, so by day it must be PostgreSQL's turn.
@pytest.mark.every_database
def test_a_text_the_database_cannot_hold_is_no_server_error(api: SmallApi) -> None:
    ann = api.person()
    org = api.org((ann, "owner"))
    body = {"name": "a\0b", "slug": "a"}
    answer = api.post(f"/v1/orgs/{org}/projects", ann.session, json=body)
    assert answer.status_code in (201, 422)
    assert api.get(f"/v1/orgs/{org}/projects/%00", ann.session).status_code in (404, 422)
    assert api.get("/v1/orgs/%00", ann.session).status_code == 404


def test_what_postgresql_cannot_store_is_for_the_caller_to_change() -> None:
    problem = as_problem(DataError("INSERT", None, ValueError("a number out of range")))
    assert (problem.status, problem.code) == (422, "value_unstorable")
    assert problem.detail == "the request contains a value that cannot be stored"


def test_what_a_cell_says_is_passed_on() -> None:
    wrong = [{"pointer": "/body", "keyword": "maxLength", "message": "is too long"}]
    refused = as_problem(QueueRefused(409, "the queue is full", "queue_full", wrong))
    told = (refused.status, refused.detail, refused.code, refused.errors)
    assert told == (409, "the queue is full", "queue_full", wrong)
    away = as_problem(CellUnavailable("the cell did not answer"))
    assert (away.status, away.detail) == (503, "the cell did not answer")
    assert away.headers["Retry-After"] == "2"


def test_a_use_that_cannot_be_noted_stops_nobody(
    api: SmallApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        raise StorageUnavailable("the database has no space left")

    ann = api.person()
    with monkeypatch.context() as patched, capture_logs() as logs:
        patched.setattr(api.database, "write", full)
        assert api.get("/v1/me", ann.session).status_code == 200
        api.boundary.last_used.flush()
    (told,) = [entry for entry in logs if entry["event"] == "last_used_not_noted"]
    assert told["reason"] == "the database has no space left"
    assert told["id"].startswith("ses_")


def test_too_many_requests_for_pages_say_when_to_try_again() -> None:
    settings = ControlSettings(cursor_key=b"k" * 32, rates=RateLimits(pages_per_minute=1))
    limit = UnroutedLimit(Proxies([]), settings)
    scope = {"method": "GET", "path": "/docs", "headers": [], "client": ("192.0.2.1", 1)}
    request = Request(scope)
    limit.charge(request)
    with pytest.raises(TooManyRequests) as refused:
        limit.charge(request)
    assert refused.value.code == "rate_limited"
    assert re.fullmatch(
        r"too many requests for pages and for paths and methods that do not exist; try again in"
        r" \d+ s",
        refused.value.detail,
    )


def page_request(peer: str, *forwarded_for: bytes) -> Request:
    headers = [(b"x-forwarded-for", each) for each in forwarded_for]
    return Request({"method": "GET", "path": "/docs", "headers": headers, "client": (peer, 1)})


def test_pages_are_counted_by_who_asks_behind_a_trusted_proxy() -> None:
    settings = ControlSettings(cursor_key=b"k" * 32, rates=RateLimits(pages_per_minute=1))
    limit = UnroutedLimit(Proxies(["127.0.0.0/8"]), settings)
    for client in (b"198.51.100.1", b"203.0.113.1"):
        limit.charge(page_request("127.0.0.1", client))
        with pytest.raises(TooManyRequests):
            limit.charge(page_request("127.0.0.1", client))


def test_without_rate_limits_pages_have_none() -> None:
    rates = RateLimits(pages_per_minute=1)
    settings = ControlSettings(cursor_key=b"k" * 32, rates=rates, rate_limits=False)
    limit = UnroutedLimit(Proxies([]), settings)
    for _ in range(3):
        limit.charge(page_request("192.0.2.1"))


def test_an_unreachable_database_is_503_and_a_retry_works(
    api: SmallApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(_db: object) -> None:
        raise OperationalError("SELECT 1", {}, sqlite3.OperationalError("disk I/O error"))

    with monkeypatch.context() as patched:
        patched.setattr(api.database, "now", lost)
        answer = api.get("/v1/ping")
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert int(answer.headers["Retry-After"]) > 0
    assert api.get("/v1/ping").status_code == 200


def test_pages_follow_their_cursor_to_the_end(api: SmallApi) -> None:
    ann = api.person()
    path = f"/v1/orgs/{api.org((ann, 'owner'))}/projects"
    made = [
        api.post(path, ann.session, json={"name": "p", "slug": f"p{n}"}).json()["id"]
        for n in range(5)
    ]
    found, cursor = [], None
    while True:
        page = api.get(path + (f"?cursor={cursor}" if cursor else ""), ann.session).json()
        found += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
        assert re.fullmatch(r"[A-Za-z0-9_.-]+", cursor)
    assert sorted(found) == sorted(made)


def test_a_cursor_is_good_for_its_own_list_only(api: SmallApi) -> None:
    ann = api.person()
    org, other = api.org((ann, "owner")), api.org((ann, "owner"))
    path = f"/v1/orgs/{org}/projects"
    for n in range(3):
        api.post(path, ann.session, json={"name": "p", "slug": f"p{n}"})
    cursor = api.get(path, ann.session).json()["next_cursor"]
    altered = ("B" if cursor[0] != "B" else "C") + cursor[1:]
    for refused in (
        api.get(f"{path}?cursor={altered}", ann.session),
        api.get(f"{path}?cursor=", ann.session),
        api.get(f"{path}?cursor=nonsense!", ann.session),
        api.get(f"/v1/orgs/{org}/others?cursor={cursor}", ann.session),
        api.get(f"/v1/orgs/{other}/projects?cursor={cursor}", ann.session),
    ):
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["parameter"] == "cursor"


@given(st.text())
def test_no_text_is_taken_for_a_cursor(text: str) -> None:
    with pytest.raises(Invalid):
        Cursors(b"k" * 32).read(text, "here")


@given(st.dictionaries(st.text(), st.text() | st.integers(0, 2**53)), st.text())
def test_a_position_comes_back_as_it_went(position: dict[str, object], place: str) -> None:
    cursors = Cursors(b"k" * 32)
    assert cursors.read(cursors.write(position, place), place) == position
