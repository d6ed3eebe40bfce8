"""Who is let in: keys and sessions in force, and nobody else."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from contract_tests import written
from contract_tests.boundary.small_api import MakeSmallApi, SmallApi
from control.boundary import identity
from control.boundary.callers import Caller, bearer_token
from control.boundary.last_used import LastUsed
from specserver import Unauthenticated
from storage.access.api_keys import ApiKey


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer nonsense",
        "Basic dXNlcjpwYXNz",
        "Bearer mk_live_" + "0" * 49,
        "Bearer unknown key",
        "Bearer unknown session",
        "unknown session",
    ],
)
def test_without_credentials_in_force_there_is_401(api: SmallApi, header: str | None) -> None:
    if header is not None:
        header = header.replace("unknown key", identity.new_api_key().secret)
        header = header.replace("unknown session", identity.new_session_token().secret)
    answer = api.get("/v1/me", headers={} if header is None else {"Authorization": header})
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"].startswith('Bearer realm="menagerie"')
    told = "the API key or session is unknown, expired or revoked"
    if header is None:
        told = "this needs an API key or a user session: send Authorization: Bearer <token>"
    assert answer.json()["detail"] == told
    assert answer.headers["Content-Type"].startswith("application/problem+json")
    assert ("invalid_token" in answer.headers["WWW-Authenticate"]) == (header is not None)


def test_unknown_revoked_and_expired_credentials_are_told_apart_by_nothing(api: SmallApi) -> None:
    ann = api.person()
    org = api.org((ann, "owner"))
    revoked, expired, orphaned = (api.key(org, ann) for _ in range(3))
    api.change_key(revoked, revoked_at=api.now())
    api.change_key(expired, expires_at=api.now() - timedelta(seconds=1))
    gone = api.person()
    api.set_role(org, gone, "admin")
    orphaned = api.key(org, gone)
    assert api.get("/v1/me", orphaned).status_code == 200
    api.set_role(org, gone, None)
    lapsed = api.session(ann.id, ttl=timedelta(seconds=-1))
    tokens = [revoked, expired, orphaned, lapsed, identity.new_api_key().secret]
    answers = [api.get("/v1/me", token) for token in tokens]
    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.json()["detail"] for answer in answers}) == 1


def test_a_revoked_key_is_refused_by_the_next_request_on_every_replica(
    make_api: MakeSmallApi,
) -> None:
    first, second = make_api(), make_api()
    ann = first.person()
    key = first.key(first.org((ann, "owner")), ann)
    assert first.get("/v1/me", key).status_code == second.get("/v1/me", key).status_code == 200
    first.change_key(key, revoked_at=first.now())
    assert first.get("/v1/me", key).status_code == second.get("/v1/me", key).status_code == 401


def test_a_suspended_key_says_so_and_works_again_once_lifted(api: SmallApi) -> None:
    ann = api.person()
    key = api.key(api.org((ann, "owner")), ann)
    api.change_key(key, suspended_at=api.now(), suspended_reason="leaked")
    answer = api.get("/v1/me", key)
    assert (answer.status_code, answer.json()["code"]) == (403, "key_suspended")
    told = "this API key is suspended; a member with api-keys:write can unsuspend it"
    assert answer.json()["detail"] == told
    api.change_key(key, suspended_at=None)
    assert api.get("/v1/me", key).status_code == 200


def test_a_token_is_taken_by_its_scheme_and_with_spaces_around_it() -> None:
    token = identity.new_api_key().secret
    assert bearer_token(None) is None
    for header in (f"Bearer {token}", f"bearer  {token} "):
        assert bearer_token(header) == token
    for header in (f"Basic {token}", token, "Bearer nonsense"):
        with pytest.raises(Unauthenticated):
            bearer_token(header)


def test_a_key_and_a_session_without_a_second_factor_say_so(api: SmallApi) -> None:
    ann = api.person()
    key = api.key(api.org((ann, "owner")), ann)
    asked = [api.get("/v1/me", token).json() for token in (key, ann.session)]
    assert asked == [
        {"user_id": ann.id, "kind": kind, "mfa": False} for kind in ("api_key", "session")
    ]


def test_expiry_follows_the_databases_clock(make_api: MakeSmallApi) -> None:
    now, later = make_api(), make_api(clock_offset_s=25 * 3600)
    ann = now.person()
    assert now.get("/v1/me", ann.session).status_code == 200
    assert later.get("/v1/me", ann.session).status_code == 401


def test_session_only_and_mfa_operations_refuse_keys_and_bare_sessions(api: SmallApi) -> None:
    ann = api.person()
    org = api.org((ann, "owner"))
    path = f"/v1/orgs/{org}/close"
    assert api.post(path, api.key(org, ann)).json()["code"] == "session_required"
    assert api.post(path, ann.session).json()["code"] == "mfa_required"
    stale = api.session(ann.id, mfa_at=api.now() - timedelta(minutes=15))
    assert api.post(path, stale).json()["code"] == "mfa_required"
    fresh = api.session(ann.id, mfa_at=api.now() - timedelta(minutes=14))
    assert api.post(path, fresh).status_code == 202


def test_an_organization_can_ask_for_the_second_factor(api: SmallApi) -> None:
    ann = api.person()
    org = api.org((ann, "owner"))
    strict = api.org((ann, "owner"), require_mfa=True)
    assert api.post(f"/v1/orgs/{org}/reveal", ann.session).status_code == 200
    refused = api.post(f"/v1/orgs/{strict}/reveal", ann.session)
    assert (refused.status_code, refused.json()["code"]) == (403, "mfa_required")
    fresh = api.session(ann.id, mfa_at=api.now())
    assert api.post(f"/v1/orgs/{strict}/reveal", fresh).status_code == 200


def test_where_credentials_are_optional_wrong_ones_are_still_wrong(api: SmallApi) -> None:
    assert api.get("/v1/perhaps").json() == {"known": False}
    assert api.get("/v1/perhaps", api.person().session).json() == {"known": True}
    assert api.get("/v1/perhaps", identity.new_api_key().secret).status_code == 401


def test_an_operation_for_anyone_reads_no_credentials(api: SmallApi) -> None:
    assert api.get("/v1/ping", "nonsense").status_code == 200


def test_last_use_is_noted_at_most_once_a_minute(make_api: MakeSmallApi) -> None:
    def last_used_at() -> Any:
        api.boundary.last_used.flush()
        with api.database.read() as db:
            return written.key_with(db, identity.token_sha256(key)).last_used_at

    api = make_api()
    ann = api.person()
    key = api.key(api.org((ann, "owner")), ann)
    other = api.key(api.org((ann, "owner")), ann)
    assert last_used_at() is None
    api.get("/v1/me", key)
    first = last_used_at()
    with api.database.read() as db:
        assert written.key_with(db, identity.token_sha256(other)).last_used_at is None
    assert first is not None
    api.get("/v1/me", key)
    assert last_used_at() == first
    later = make_api(clock_offset_s=61)
    later.get("/v1/me", key)
    later.boundary.last_used.flush()
    assert last_used_at() > first


def test_of_two_notes_the_later_holds(api: SmallApi) -> None:
    """Two replicas write when they come to it."""
    ann = api.person()
    secret = api.key(api.org((ann, "owner")), ann)
    now = api.now()
    for at in (now + timedelta(seconds=10), now):
        with api.database.read() as db:
            key = written.key_with(db, identity.token_sha256(secret))
        replica = LastUsed(api.database)
        replica.note(cast("Caller", SimpleNamespace(key=ApiKey(id=key.id))), at)
        replica.flush()
    with api.database.read() as db:
        noted = written.key_with(db, identity.token_sha256(secret)).last_used_at
    assert noted == now + timedelta(seconds=10)
