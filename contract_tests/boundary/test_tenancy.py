"""Another org's things and things that never were are one and the same to a caller."""

import re
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from time import perf_counter

import httpx
import pytest
from sqlalchemy import text

from contract_tests.boundary.document import document
from contract_tests.boundary.small_api import SmallApi
from control.boundary.callers import NOT_FOUND
from storage.access import organizations

NEVER = "org_01JDZZZZZZZZZZZZZZZZZZZZZZ"


def seen(answer: httpx.Response) -> tuple[int, object, object]:
    body = answer.json()
    body.pop("request_id")
    headers = {name: value for name, value in answer.headers.items() if name != "x-request-id"}
    return answer.status_code, body, headers


@pytest.mark.parametrize("by", ["session", "key"])
def test_every_operation_answers_the_same_404_in_anothers_org_and_in_none(
    api: SmallApi, by: str
) -> None:
    ann, bob = api.person(), api.person()
    own, theirs = api.org((ann, "owner")), api.org((bob, "owner"))
    token = ann.session if by == "session" else api.key(own, ann)
    calls = [
        (method.upper(), path)
        for path, item in document()["paths"].items()
        for method in item
        if "{org_id}" in path
    ]
    for method, path in calls:
        filled = re.sub(r"\{(?!org_id)\w+\}", "x", path)
        answers = api.together(
            (method, filled.format(org_id=org), token, {}) for org in (theirs, NEVER, "%00nonsense")
        )
        assert answers[0].status_code == 404, path
        assert seen(answers[0]) == seen(answers[1]) == seen(answers[2]), path


def test_another_orgs_record_in_my_org_is_the_same_404_as_none(api: SmallApi) -> None:
    ann, bob = api.person(), api.person()
    own, theirs = api.org((ann, "owner")), api.org((bob, "owner"))
    made = api.post(
        f"/v1/orgs/{theirs}/projects", bob.session, json={"name": "canary", "slug": "canary"}
    ).json()["id"]
    assert api.get(f"/v1/orgs/{theirs}/projects/{made}", bob.session).status_code == 200
    foreign = api.get(f"/v1/orgs/{own}/projects/{made}", ann.session)
    absent = api.get(f"/v1/orgs/{own}/projects/proj_01JDZZZZZZZZZZZZZZZZZZZZZZ", ann.session)
    assert foreign.status_code == 404
    assert seen(foreign) == seen(absent)
    assert "canary" not in api.get(f"/v1/orgs/{own}/projects", ann.session).text


def test_a_stranger_without_credentials_sees_401_wherever_they_look(api: SmallApi) -> None:
    org = api.org((api.person(), "owner"))
    assert {api.get(f"/v1/orgs/{one}").status_code for one in (org, NEVER)} == {401}


@pytest.mark.exclusive  # it compares times
def test_the_two_404_take_as_long(api: SmallApi) -> None:
    ann, bob = api.person(), api.person()
    api.org((ann, "owner"))
    theirs = api.org((bob, "owner"))

    def took_s(org: str) -> float:
        start = perf_counter()
        api.get(f"/v1/orgs/{org}", ann.session)
        return perf_counter() - start

    pairs = [(took_s(theirs), took_s(NEVER)) for _ in range(200)]
    foreign, absent = (sorted(times)[20:180] for times in zip(*pairs, strict=True))
    assert foreign[0] < median(absent) < foreign[-1]
    assert absent[0] < median(foreign) < absent[-1]


def test_what_races_a_close_is_refused(api: SmallApi) -> None:
    """The close is not committed yet when the other request comes."""
    ann = api.person()
    org = api.org((ann, "owner"))
    path, body = f"/v1/orgs/{org}/projects", {"name": "n", "slug": "s"}
    with ThreadPoolExecutor() as threads:
        with api.database.write() as db:
            organizations.lock(db, org)
            organizations.fetch(db, org).close(api.database.now(db))
            db.flush()
            late = threads.submit(api.post, path, ann.session, json=body)
            wait_for_lock(api)
        answer = late.result(30)
    assert (answer.status_code, answer.json()["code"]) == (409, "org_closed")
    assert api.get(path, ann.session).json()["items"] == []


def wait_for_lock(api: SmallApi) -> None:
    """Until another transaction waits for this one; on SQLite nobody else is let begin."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    end = time.monotonic() + 30
    while api.database.dialect == "postgresql":
        with api.database.read() as db:
            if db.execute(text(waiting)).scalar_one():
                return
        assert time.monotonic() < end, "the request did not wait for the close"
        time.sleep(0.01)


def test_a_closed_org_can_be_read_and_not_changed(api: SmallApi) -> None:
    ann = api.person(mfa_at=None)
    org = api.org((ann, "owner"))
    key = api.key(org, ann)
    fresh = api.session(ann.id, mfa_at=api.now())
    close = {"headers": {"Idempotency-Key": "close"}}
    assert api.post(f"/v1/orgs/{org}/close", fresh, **close).status_code == 202
    assert api.get(f"/v1/orgs/{org}/projects", ann.session).status_code == 200
    refused = api.post(f"/v1/orgs/{org}/projects", ann.session, json={"name": "n", "slug": "s"})
    assert (refused.status_code, refused.json()["code"]) == (409, "org_closed")
    assert refused.json()["detail"] == "the organization is closed and read-only"
    assert api.post(f"/v1/orgs/{org}/close", fresh).json()["code"] == "org_closed"
    assert api.get(f"/v1/orgs/{org}", key).status_code == 401
    again = api.post(f"/v1/orgs/{org}/close", fresh, **close)
    assert (again.status_code, again.headers["Idempotency-Replayed"]) == (202, "true")


def test_a_key_is_in_the_team_of_everyone_as_its_owner_is(api: SmallApi) -> None:
    ann = api.person()
    org = api.org((ann, "developer"))
    path = f"/v1/orgs/{org}/projects"
    made = api.post(path, ann.session, json={"name": "n", "slug": "s"}).json()["id"]
    key = api.key(org, ann, "developer")
    assert api.get(f"{path}/{made}", key).json() == {"id": made}
    assert api.get(path, key).json()["items"] == [made]


def test_an_organization_that_one_is_no_member_of_is_not_found(api: SmallApi) -> None:
    answer = api.get(f"/v1/orgs/{api.org()}", api.person().session)
    assert (answer.status_code, answer.json()["detail"]) == (404, NOT_FOUND)
