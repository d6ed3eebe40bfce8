"""Whom a request counts for: the caller, the person behind keys and sessions, the address."""

from types import SimpleNamespace
from typing import cast

import pytest

from contract_tests.boundary.document import operation
from contract_tests.boundary.small_api import MakeSmallApi, SmallApi
from control.boundary.callers import Caller
from control.boundary.charges import of
from control.boundary.rates import Limiter
from control.boundary.rules import rule_of
from control.boundary.windows import LibraryMeter, LocalWindows
from control.settings import RateLimits
from specserver import Operation


@pytest.fixture
def limited(make_api: MakeSmallApi) -> SmallApi:
    """All its requests come at one moment, however long the machine takes over them."""
    meter = LibraryMeter(LocalWindows(clock=_still), clock=_still)
    return make_api(rate_limits=True, limiter=Limiter(meter, RateLimits()))


def _still() -> float:
    return 1_000_000.25


def test_429_says_when_and_the_other_caller_is_not_concerned(limited: SmallApi) -> None:
    ann = limited.person()
    org = limited.org((ann, "owner"))
    path = f"/v1/orgs/{org}/reveal"
    answers = [limited.post(path, ann.session) for _ in range(6)]
    assert [one.status_code for one in answers] == [200] * 5 + [429]
    assert answers[0].headers["RateLimit-Policy"] == '"reveal";q=5;w=60'
    assert answers[0].headers["RateLimit"] == '"reveal";r=4;t=60'
    refused = answers[-1]
    assert refused.json()["code"] == "rate_limited"
    assert refused.json()["detail"] == "too many requests; try again in 61 s"
    assert refused.headers["Retry-After"] == "61"
    assert refused.headers["RateLimit"] == '"reveal";r=0;t=60'
    # Another session of the same person is the same person.
    assert limited.post(path, limited.session(ann.id)).status_code == 429
    bob = limited.person()
    limited.set_role(org, bob, "member")
    assert limited.post(path, bob.session).status_code == 200


def test_a_key_takes_nothing_of_what_its_maker_may(limited: SmallApi) -> None:
    ann = limited.person()
    org = limited.org((ann, "owner"))
    path, close = f"/v1/orgs/{org}/reveal", f"/v1/orgs/{org}/close"
    key = limited.key(org, ann, scopes=[])
    for asked in (path, close):
        assert {limited.post(asked, key).status_code for _ in range(20)} == {403}
    able = limited.key(org, ann)
    assert [limited.post(path, able).status_code for _ in range(6)] == [200] * 5 + [429]
    assert limited.post(path, limited.key(org, ann)).status_code == 200
    assert limited.post(path, ann.session).status_code == 200


def test_many_keys_of_one_maker_fetch_no_more_than_a_few(limited: SmallApi) -> None:
    ann, bob = limited.person(), limited.person()
    org = limited.org((ann, "owner"), (bob, "developer"))
    path = f"/v1/orgs/{org}/reveal"
    codes = [limited.post(path, limited.key(org, ann)).status_code for _ in range(22)]
    assert codes == [200] * 20 + [429] * 2
    refused = limited.post(path, limited.key(org, ann))
    assert refused.headers["RateLimit"].startswith('"reveal_keys";r=0;')
    assert limited.post(path, ann.session).status_code == 200
    assert limited.post(path, limited.key(org, bob)).status_code == 200
    other = limited.org((ann, "owner"))
    assert limited.post(f"/v1/orgs/{other}/reveal", limited.key(other, ann)).status_code == 200


def test_a_persons_changes_are_counted_over_all_their_sessions(make_api: MakeSmallApi) -> None:
    """Each leaves a record for long, and signing in again gives another session's requests."""
    api = make_api(rate_limits=True, rates=RateLimits(changes_per_quarter_hour=4))
    ann, bob = api.person(), api.person()
    org = api.org((ann, "owner"), (bob, "owner"))
    emit, body = f"/v1/orgs/{org}/emit", {"kind": "instance.paused.v1", "audited": True}
    keys = [api.key(org, ann) for _ in range(3)]
    sessions = [ann.session, api.session(ann.id)] * 3

    def codes(tokens: list[str]) -> list[int]:
        return [api.post(emit, token, json=body).status_code for token in tokens]

    assert codes(sessions) == [204] * 4 + [429] * 2
    refused = api.post(emit, ann.session, json=body)
    assert refused.headers["RateLimit"].startswith('"changes";r=0;')
    # What the keys may is together as much, and takes nothing of the sessions', nor theirs of it.
    assert codes(keys * 2) == [204] * 4 + [429] * 2
    assert codes([bob.session]) == [204]
    # Reading goes on, and so does what ends something.
    assert api.get(f"/v1/orgs/{org}/projects", ann.session).status_code == 200
    assert not rule_of(_deleting()).leaves_records


def _deleting() -> Operation:
    path = "/v1/orgs/{org_id}/things"
    return Operation(
        path, "DELETE", operation("samples.end", path, "org:write", audit="samples.end")
    )


def test_what_anyone_may_is_counted_by_address_whoever_asks() -> None:
    path = "/v1/hello"
    hello = Operation(path, "GET", operation("samples.hello", path, rate="unauthenticated"))
    caller = cast("Caller", SimpleNamespace(user=SimpleNamespace(id="usr_1"), key=None))
    assert ("unauthenticated", "203.0.113.7") in [*of(rule_of(hello), caller, "203.0.113.7")]


def test_what_is_refused_for_want_of_rights_is_counted_for_the_caller(
    make_api: MakeSmallApi,
) -> None:
    api = make_api(rate_limits=True, rates=RateLimits(per_minute=4))
    ann = api.person()
    org = api.org((ann, "owner"))
    key = api.key(org, ann, scopes=[])
    codes = [api.post(f"/v1/orgs/{org}/reveal", key).status_code for _ in range(5)]
    assert codes == [403] * 4 + [429]


def test_errors_tell_the_limits_too(limited: SmallApi) -> None:
    ann = limited.person()
    org = limited.org((ann, "owner"))
    path = f"/v1/orgs/{org}/projects"
    invalid = limited.post(path, ann.session, json={})
    absent = limited.get(f"{path}/proj_1", ann.session)
    assert (invalid.status_code, absent.status_code) == (422, 404)
    assert invalid.headers["RateLimit"] == '"default";r=599;t=60, "burst";r=99;t=5'
    assert absent.headers["RateLimit"] == '"default";r=598;t=60, "burst";r=98;t=5'


def test_who_is_turned_away_is_counted_too(make_api: MakeSmallApi) -> None:
    api = make_api(rate_limits=True, rates=RateLimits(per_minute=4))
    ann = api.person()
    org = api.org((ann, "auditor"))
    forbidden, absent = f"/v1/orgs/{org}/projects", "/v1/orgs/org_01JDZZZZZZZZZZZZZZZZZZZZZZ"
    codes = [api.post(forbidden, ann.session, json={}).status_code for _ in range(2)]
    codes += [api.get(absent, ann.session).status_code for _ in range(2)]
    codes += [api.get(path, ann.session).status_code for path in (absent, "/v1/me")]
    assert codes == [403, 403, 404, 404, 429, 429]


def test_a_forged_x_forwarded_for_gains_nothing(limited: SmallApi) -> None:
    codes = [
        limited.get("/v1/ping", headers={"X-Forwarded-For": f"198.51.100.{n}"}).status_code
        for n in range(61)
    ]
    assert codes == [200] * 60 + [429]
    body = {"email": "a@example.org", "password": "wrong"}
    codes = [
        limited.post(
            "/v1/sessions", json=body, headers={"X-Forwarded-For": f"10.0.0.{n}"}
        ).status_code
        for n in range(11)
    ]
    assert codes == [401] * 10 + [429]


def test_behind_a_trusted_proxy_clients_are_told_apart(make_api: MakeSmallApi) -> None:
    api = make_api(rate_limits=True, trusted_proxies=("203.0.113.0/24",))

    def attempt(forwarded: str, email: str = "a@example.org") -> int:
        body = {"email": email, "password": "wrong"}
        headers = {"X-Forwarded-For": forwarded}
        return api.post("/v1/sessions", json=body, headers=headers).status_code

    assert [attempt("192.0.2.1") for _ in range(11)][-1] == 429
    # What a client writes itself stands further left than what the proxy adds.
    assert attempt("9.9.9.9, 192.0.2.1") == 429
    # Tries count by account too, so this one is at another.
    assert attempt("192.0.2.1", "b@example.org") == 429
    assert attempt("192.0.2.2", "b@example.org") == 401


def test_refused_credentials_are_limited_by_address_and_good_ones_are_not(
    make_api: MakeSmallApi,
) -> None:
    api = make_api(rate_limits=True, rates=RateLimits(refused_per_minute=20))
    ann = api.person()
    codes = [api.get("/v1/me", "nonsense").status_code for _ in range(21)]
    assert codes == [401] * 20 + [429]
    assert api.get("/v1/me", ann.session).status_code == 200
    assert api.get("/v1/me", "nonsense", peer="198.51.100.9").status_code == 401


def test_paths_that_do_not_exist_are_counted_by_address(make_api: MakeSmallApi) -> None:
    api = make_api(rate_limits=True, rates=RateLimits(pages_per_minute=4))
    ann = api.person()
    paths = ["/nowhere", "/docs", "/docs/scalar.js", "/v1/me/nothing"]
    assert [api.get(path).status_code for path in paths] == [404, 200, 200, 404]
    refused = api.get("/docs/scalar.js", ann.session)
    assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
    assert int(refused.headers["retry-after"]) > 0
    assert api.get("/v1/me", ann.session).status_code == 200
    assert api.get("/docs", peer="198.51.100.9").status_code == 200


def test_a_long_poll_is_charged_once(limited: SmallApi) -> None:
    ann = limited.person()
    org = limited.org((ann, "owner"))
    answer = limited.get(f"/v1/orgs/{org}/wait", ann.session)
    assert answer.json() == {"attempt": 2}
    assert answer.headers["RateLimit"].startswith('"default";r=599;')
