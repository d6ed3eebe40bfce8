"""The keys of issuers: read by workers alone, bounded, and kept while nobody answers."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from contract_tests.oidc_issuer import (
    CONFIGURATION,
    JWKS,
    NEVER,
    OidcIssuer,
    ec_key,
    public,
    rsa_key,
)
from contract_tests.workflows.stage import Stage
from control.access import workload_tokens
from control.work import enqueue, schedules
from control.workflows.roles import issuers
from control.workflows.roles.issuer_documents import HttpIssuers, IssuerUnavailable
from storage.database import now
from storage.roles import oidc_issuers, service_accounts, workload_identities
from storage.roles.oidc_issuers import OidcIssuer as Kept


@pytest.fixture
def issuer() -> Iterator[OidcIssuer]:
    made = OidcIssuer()
    yield made
    made.close()


@pytest.fixture
def stage(stage: Stage, issuer: OidcIssuer) -> Stage:
    allowed = replace(stage.services.settings, oidc_issuers=(issuer.url, NEVER))
    stage.services = replace(stage.services, settings=allowed, issuers=HttpIssuers(0.5))
    return stage


def trust(stage: Stage, issuer: str) -> None:
    with stage.database.write() as db:
        name = f"for {issuer} {time.monotonic_ns()}"
        account = service_accounts.create(
            db, stage.org_id, name=name, role="member", created_by="usr_x"
        )
        about = {"audience": "here", "subject": "a/b"}
        workload_identities.create(
            db, account, name="jobs", issuer=issuer, created_by="usr_x", **about
        )
        oidc_issuers.expect(db, issuer)


def turn(stage: Stage) -> None:
    """The next one that the schedule has, with all that follows from it."""
    stage.pass_time(issuers.EVERY_S)
    schedules.enqueue_due(stage.database, [issuers.SCHEDULE])
    stage.settle()


def kept(stage: Stage, issuer: str) -> Kept:
    with stage.database.read() as db:
        found = oidc_issuers.find(db, issuer)
    assert found is not None
    return found


def test_the_keys_of_an_issuer_that_is_trusted_are_read(stage: Stage, issuer: OidcIssuer) -> None:
    with stage.database.write() as db:
        oidc_issuers.expect(db, issuer.url)
    turn(stage)
    assert issuer.asked == []
    trust(stage, issuer.url)
    turn(stage)
    assert issuer.asked == [CONFIGURATION, JWKS]
    found = kept(stage, issuer.url)
    assert [one["kid"] for one in found.keys or []] == ["rsa-1", "ec-1"]
    assert found.failed_reason is None
    with stage.database.read() as db:
        assert found.read_at is not None
        assert now(db) - found.read_at < timedelta(seconds=5)


def test_a_rotated_key_replaces_the_one_before(stage: Stage, issuer: OidcIssuer) -> None:
    trust(stage, issuer.url)
    turn(stage)
    issuer.keys = [public(rsa_key("new"), "rsa-2")]
    turn(stage)
    assert [one["kid"] for one in kept(stage, issuer.url).keys or []] == ["rsa-2"]


def test_the_keys_stay_while_the_issuer_is_down(stage: Stage, issuer: OidcIssuer) -> None:
    trust(stage, issuer.url)
    turn(stage)
    before = kept(stage, issuer.url)
    issuer.answers[CONFIGURATION] = (503, {}, b"")
    turn(stage)
    found = kept(stage, issuer.url)
    assert (found.keys, found.read_at) == (before.keys, before.read_at)
    assert found.failed_reason is not None
    assert found.failed_reason.endswith("answers with the status 503")
    # It is tried three times in a turn, and no more.
    assert issuer.asked == [CONFIGURATION, JWKS, *[CONFIGURATION] * 3]
    del issuer.answers[CONFIGURATION]
    turn(stage)
    assert kept(stage, issuer.url).failed_reason is None


def test_nobody_who_is_not_allowed_is_asked(stage: Stage, issuer: OidcIssuer) -> None:
    """Not even where the database names them: the operator may have thought better of it."""
    trust(stage, issuer.url)
    settings = replace(stage.services.settings, oidc_issuers=())
    stage.services = replace(stage.services, settings=settings)
    turn(stage)
    assert issuer.asked == []


def test_an_issuer_is_not_asked_again_at_once(stage: Stage, issuer: OidcIssuer) -> None:
    """However often somebody creates and deletes what trusts it."""
    trust(stage, issuer.url)
    turn(stage)
    for _ in range(3):
        with stage.database.write() as db:
            enqueue(db, issuers.read_keys, issuers.lane_of(issuer.url), {"issuer": issuer.url})
        stage.settle()
    assert issuer.asked == [CONFIGURATION, JWKS]


def test_nor_is_one_that_is_down(stage: Stage, issuer: OidcIssuer) -> None:
    issuer.answers[CONFIGURATION] = (503, {}, b"")
    trust(stage, issuer.url)
    turn(stage)
    with stage.database.write() as db:
        enqueue(db, issuers.read_keys, issuers.lane_of(issuer.url), {"issuer": issuer.url})
    stage.settle()
    assert len(issuer.asked) == 3


def test_one_that_is_down_delays_no_other(stage: Stage, issuer: OidcIssuer) -> None:
    trust(stage, NEVER)
    trust(stage, issuer.url)
    with stage.database.read() as db:
        lanes = issuers.in_lanes(db)
    assert lanes == {f"issuer:{url}": {"issuer": url} for url in sorted((NEVER, issuer.url))}
    turn(stage)
    assert kept(stage, NEVER).failed_reason is not None
    assert kept(stage, issuer.url).keys is not None


# What an issuer may say.


def asked(issuer: OidcIssuer, within_s: float = 0.5) -> str:
    with pytest.raises(IssuerUnavailable) as refused:
        HttpIssuers(within_s).keys(issuer.url)
    return refused.value.detail


def configured(**told: Any) -> tuple[int, dict[str, str], bytes]:
    return 200, {}, json.dumps(told).encode()


def test_it_must_be_who_it_was_asked_as(issuer: OidcIssuer) -> None:
    for told in ("https://gitlab.com", f"{issuer.url}/", None, [issuer.url]):
        issuer.answers[CONFIGURATION] = configured(issuer=told, jwks_uri=f"{issuer.url}{JWKS}")
        assert asked(issuer) == "its configuration names another issuer"
    issuer.answers[CONFIGURATION] = (200, {}, b"[]")
    assert asked(issuer) == "its configuration names another issuer"


def test_its_keys_are_on_its_own_host(issuer: OidcIssuer) -> None:
    other = OidcIssuer()
    port = issuer.url.rpartition(":")[2]
    try:
        for where in (
            f"{other.url}{JWKS}",
            "http://169.254.169.254/latest/meta-data",
            f"http://127.0.0.1:{port}@evil.example/keys",
            f"http://user@127.0.0.1:{port}/keys",
            f"https://127.0.0.1:{port}/keys",
            f"http://localhost:{port}/keys",
            "file:///etc/passwd",
            "/keys",
            "http://[",
            7,
            None,
        ):
            issuer.answers[CONFIGURATION] = configured(issuer=issuer.url, jwks_uri=where)
            assert asked(issuer) == "the address of its keys (jwks_uri) is on another host"
        assert other.asked == []
        assert set(issuer.asked) == {CONFIGURATION}
    finally:
        other.close()


def test_no_redirect_is_followed(issuer: OidcIssuer) -> None:
    other = OidcIssuer()
    try:
        for path in (CONFIGURATION, JWKS):
            issuer.answers = {path: (302, {"Location": f"{other.url}{path}"}, b"")}
            assert asked(issuer).endswith("answers with the status 302")
        assert other.asked == []
    finally:
        other.close()


def test_what_never_ends_is_given_up(issuer: OidcIssuer) -> None:
    """Ten gigabytes, a byte at a time or as fast as they come; and packed ones."""

    def slowly(out: Any) -> None:
        while True:
            out.write(b" ")
            out.flush()
            time.sleep(0.05)

    def quickly(out: Any) -> None:
        for _ in range(10_000):
            out.write(b" " * 2**20)

    for path in (CONFIGURATION, JWKS):
        issuer.answers = {path: (200, {"Content-Length": str(10 << 30)}, slowly)}
        begun = time.monotonic()
        assert "does not answer as it should" in asked(issuer)
        assert time.monotonic() - begun < 5
        issuer.answers = {path: (200, {"Content-Length": str(10 << 30)}, quickly)}
        assert "larger than 256 KiB" in asked(issuer, 20)
        issuer.answers = {path: (200, {"Content-Encoding": "gzip"}, b"x")}
        assert "compressed" in asked(issuer)


def test_what_is_no_json_is_refused(issuer: OidcIssuer) -> None:
    for body in (b"", b"<html>", b"\xff", b"[" * 5000):
        issuer.answers = {CONFIGURATION: (200, {}, body)}
        assert asked(issuer).endswith("is not JSON")


def test_who_is_not_there_is_named_with_the_reason(issuer: OidcIssuer) -> None:
    issuer.close()
    assert asked(issuer).startswith(f"{issuer.url}{CONFIGURATION} does not answer as it should")


def test_a_set_of_keys_is_one(issuer: OidcIssuer) -> None:
    strange: list[Any] = [[], {}, {"keys": {}}, {"keys": None}, {"keys": issuer.keys * 26}]
    for told in strange:
        issuer.answers = {JWKS: (200, {}, json.dumps(told).encode())}
        assert asked(issuer) == "what is at its jwks_uri is not a set of at most 50 keys"


def test_only_keys_to_verify_with_are_kept() -> None:
    good = public(rsa_key(), "a")
    private = {**good, "d": "AQAB"}
    strange: list[Any] = [
        None,
        "key",
        {},
        {"kty": "oct", "k": "c2VjcmV0", "kid": "a"},
        {**good, "use": "enc"},
        {**good, "alg": "RS512"},
        {**good, "kid": 7},
        {**good, "kid": None},
        {**good, "n": "!"},
        {**good, "n": 7},
        {**good, "kty": ["RSA"]},
        {name: value for name, value in good.items() if name != "kid"},
        public(rsa_key("weak", 1024), "weak"),
        {**public(ec_key(), "e"), "crv": "P-384"},
        {**public(ec_key(), "e"), "x": "AAAA"},
        {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}
        | {"kid": "o"},
    ]  # fmt: skip
    kept_ones = workload_tokens.usable_keys({"keys": [*strange, private, public(ec_key(), "e")]})
    assert [set(each) for each in kept_ones] == [
        {"kty", "kid", "n", "e"}, {"kty", "kid", "crv", "x", "y"},
    ]  # fmt: skip
