"""Tokens that somebody made up, changed, kept or stole: none of them is good for anything."""

import json
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from contract_tests.api.conftest import MakeHouse
from contract_tests.api.harness import House, Tenant
from contract_tests.api.roles.test_service_accounts import create, path_of
from contract_tests.api.roles.workload_helpers import (
    GITHUB,
    body,
    exchange,
    now,
    token,
    trusting,
    trusts,
)
from contract_tests.api.rows import NEVER, is_problem, trusted
from contract_tests.oidc_issuer import OidcIssuer, ec_key, public, rsa_key, segment
from control.access.signed_tokens import LEEWAY_S
from control.workflows.roles.issuer_documents import HttpIssuers
from storage.roles import oidc_issuers


@pytest.fixture
def tenant(house: House) -> Tenant:
    return house.tenant(plan="team")


@pytest.fixture
def account(house: House, tenant: Tenant) -> dict[str, str]:
    return trusting(house, tenant)


def signed(house: House, key: Any = None, algorithm: str = "RS256", **header: Any) -> str:
    claims = house.issuer.claims(house.now().timestamp())
    return jwt.encode(claims, key or rsa_key(), algorithm, {"kid": "rsa-1", **header})


def by_hand(header: Any, claims: Any, signature: bytes = b"") -> str:
    return f"{segment(header)}.{segment(claims)}.{segment(signature)}"


def with_the_public_key(house: House) -> str:
    """HS256, with what everybody knows as the secret."""
    pem = rsa_key().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    secret = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    header = {"alg": "HS256", "kid": "rsa-1", "typ": "JWT"}
    text = f"{segment(header)}.{segment(house.issuer.claims(house.now().timestamp()))}"
    return f"{text}.{segment(secret.sign(text.encode(), pem))}"


def tampered(house: House) -> str:
    head, _, signature = signed(house).split(".")
    claims = house.issuer.claims(house.now().timestamp(), exp=house.now().timestamp() + 9e6)
    return f"{head}.{segment(claims)}.{signature}"


REFUSED: dict[str, Callable[[House], str]] = {
    "no token": lambda _: "deploy-me",
    "dots": lambda _: "..",
    "of another kind": lambda house: by_hand([], house.issuer.claims()),
    "claims that are a list": lambda _: by_hand({"alg": "RS256", "kid": "rsa-1"}, []),
    "nested deeply": lambda _: by_hand(
        {"alg": "RS256", "kid": "rsa-1"}, json.loads("[" * 900 + "]" * 900)
    ),
    "a header nested deeply": lambda _: (
        f"{segment(b'[' * 4000 + b']' * 4000)}.{segment({})}.{segment(b'x')}"
    ),
    "alg none": lambda house: by_hand(
        {"alg": "none", "kid": "rsa-1"}, house.issuer.claims(now(house))
    ),
    "alg None": lambda house: by_hand({"alg": None, "kid": "rsa-1"}, house.issuer.claims()),
    "HS256 with the public key": with_the_public_key,
    "RS512": lambda house: signed(house, algorithm="RS512"),
    "PS256": lambda house: signed(house, algorithm="PS256"),
    "ES256 with the id of an RSA key": lambda house: signed(house, ec_key(), "ES256"),
    "RS256 with the id of an EC key": lambda house: signed(house, kid="ec-1"),
    "unknown kid": lambda house: signed(house, kid="rsa-2"),
    "kid that is no text": lambda house: by_hand(
        {"alg": "RS256", "kid": 7}, house.issuer.claims(), b"x"
    ),
    "kid that is a path": lambda house: signed(house, kid="../../dev/null"),
    "key of its own": lambda house: signed(
        house, rsa_key("own"), jwk=public(rsa_key("own"), "rsa-1"), jku="http://127.0.0.1:9/"
    ),
    "key of somebody else": lambda house: signed(house, rsa_key("own")),
    "crit": lambda house: signed(house, crit=["exp"]),
    "b64": lambda house: by_hand(
        {"alg": "RS256", "kid": "rsa-1", "b64": False, "crit": ["b64"]}, house.issuer.claims()
    ),
    "no signature": lambda house: signed(house).rpartition(".")[0] + ".",
    "tampered": tampered,
    "of no issuer": lambda house: token(house, iss=None),
    "an issuer that nobody allowed": lambda house: token(house, iss="https://evil.example"),
    "an issuer in a list": lambda house: token(house, iss=[house.issuer.url]),
    "another issuer's": lambda house: token(house, iss=GITHUB),
    "expired": lambda house: token(house, exp=now(house, -LEEWAY_S - 2)),
    "never expires": lambda house: token(house, exp=None),
    "expires as a text": lambda house: token(house, exp=str(int(now(house, 60)))),
    "expires in eternity": lambda house: token(house, exp=1e300),
    "expires at true": lambda house: token(house, exp=True),
    "from the future": lambda house: token(house, iat=now(house, LEEWAY_S + 9), nbf=None),
    "without a time": lambda house: token(house, iat=None),
    "not yet": lambda house: token(house, nbf=now(house, LEEWAY_S + 9)),
    "two audiences": lambda house: token(house, aud=["https://api.example.com", "other"]),
    "no audience": lambda house: token(house, aud=None),
    "an audience in an object": lambda house: token(house, aud={"https://api.example.com": 1}),
    "no subject": lambda house: token(house, sub=None),
    "a subject with a NUL": lambda house: token(house, sub="repo:acme/shop\x00:ref"),
    "half a character": lambda house: token(house, sub="repo:acme/\ud800"),
    "a subject that turns its text": lambda house: token(house, sub="repo:acme/\u202eshop"),
    "a long subject": lambda house: token(house, sub="x" * 501),
    "a subject that is a number": lambda house: token(house, sub=7),
    "without end": lambda house: token(house, exp=float("inf")),
    "of no number": lambda house: token(house, iat=float("nan")),
    "issued before time": lambda house: token(house, iat=-1),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_verify_is_refused(house: House, account: dict[str, str], what: str) -> None:
    answer = exchange(house, account, REFUSED[what](house))
    is_problem(answer, 401, "token_refused")
    assert answer.json()["detail"].startswith("the token was refused: ")


def test_a_huge_token_is_not_even_read(house: House, account: dict[str, str]) -> None:
    is_problem(exchange(house, account, "x" * 12_001), 422)
    is_problem(exchange(house, account, "x" * 20_000), 413, "content_too_large")


def test_clocks_may_differ_a_little(house: House, account: dict[str, str]) -> None:
    early = token(house, iat=now(house, 20), nbf=now(house, 20))
    late = token(house, exp=now(house, -20))
    assert [exchange(house, account, one).status_code for one in (early, late)] == [201, 201]


def test_a_token_for_another_audience_or_subject_gives_nothing(
    house: House, account: dict[str, str]
) -> None:
    for claims in (
        {"aud": "https://other.example"},
        {"aud": "https://api.example.com/"},
        {"sub": "repo:acme/shop:ref:refs/heads/other"},
        {"sub": "repo:acme/shop:ref:refs/heads/main:x"},
        {"sub": "repo:Acme/shop:ref:refs/heads/main"},
    ):
        answer = exchange(house, account, token(house, **claims))
        is_problem(answer, 403, "workload_not_trusted")
        assert next(iter(claims.values())) in answer.json()["detail"]


def test_an_account_that_is_not_there_is_one_that_trusts_nothing(
    house: House, tenant: Tenant, account: dict[str, str]
) -> None:
    untrusting = create(house, tenant, name="untrusting")
    disabled = create(house, tenant, name="disabled")
    trusted(house, tenant, disabled["id"])
    assert house.post(f"{path_of(tenant, disabled)}/actions/disable", tenant.key).is_success
    closed = house.tenant(plan="team")
    of_closed = create(house, closed)
    trusted(house, closed, of_closed["id"])
    house.change_org(closed.org_id, status="closed", closed_at=house.now())
    text = token(house)
    answers = [
        exchange(house, {"id": one}, text)
        for one in (f"sa_{NEVER}", untrusting["id"], disabled["id"], of_closed["id"])
    ]
    for answer in answers:
        is_problem(answer, 403, "workload_not_trusted")
    assert len({answer.json()["detail"] for answer in answers}) == 1
    assert exchange(house, account, text).status_code == 201


def test_its_issuer_is_asked_by_no_request(house: House, account: dict[str, str]) -> None:
    before = len(house.issuer.asked)
    for text in (token(house), signed(house, kid="unknown")):
        exchange(house, account, text)
    assert len(house.issuer.asked) == before


def test_before_the_keys_are_read_nothing_is_accepted(make_house: MakeHouse) -> None:
    house = make_house()
    tenant = house.tenant()
    account = create(house, tenant)
    answer = house.post(
        trusts(tenant, account),
        tenant.key,
        json=body(house, subject="repo:acme/shop:ref:refs/heads/main",
                  audience="https://api.example.com"),
    )  # fmt: skip
    assert answer.json()["issuer_keys_read_at"] is None
    text = token(house)
    is_problem(exchange(house, account, text), 401, "token_refused")
    house.settle()
    (listed,) = house.get(trusts(tenant, account), tenant.key).json()["items"]
    assert listed["issuer_keys_read_at"] is not None
    assert exchange(house, account, text).status_code == 201


def test_a_key_that_the_issuer_publishes_no_more_is_good_no_more(make_house: MakeHouse) -> None:
    house = make_house()
    tenant = house.tenant()
    account = create(house, tenant)
    trusted(house, tenant, account["id"])
    old, new = token(house), signed(house, rsa_key("new"), kid="rsa-2")
    is_problem(exchange(house, account, new), 401, "token_refused")
    house.issuer.keys = [public(rsa_key("new"), "rsa-2")]
    house.pass_time(60)
    trusted(house, tenant, account["id"], subject="other/*")
    assert exchange(house, account, new).status_code == 201
    is_problem(exchange(house, account, old), 401, "token_refused")


def test_an_issuer_signs_for_itself_alone(
    house: House, account: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both may be trusted, and have keys of the same name."""
    other = OidcIssuer()
    other.keys = [public(rsa_key("other"), "rsa-1")]
    allowed = (GITHUB, house.issuer.url, other.url)
    monkeypatch.setitem(vars(house.services.settings), "oidc_issuers", allowed)
    with house.database.write() as db:
        oidc_issuers.hold(db, other.url).became_known(HttpIssuers().keys(other.url), house.now())
    try:
        for text in (token(house, iss=other.url), signed(house, rsa_key("other"))):
            answer = exchange(house, account, text)
            is_problem(answer, 401, "token_refused")
            assert answer.json()["detail"].endswith("its signature is wrong")
        claims = house.issuer.claims(now(house), iss=other.url)
        its_own = jwt.encode(claims, rsa_key("other"), "RS256", {"kid": "rsa-1"})
        is_problem(exchange(house, account, its_own), 403, "workload_not_trusted")
    finally:
        other.close()


def test_an_issuer_without_keys_signs_nothing(house: House, account: dict[str, str]) -> None:
    with house.database.write() as db:
        oidc_issuers.hold(db, GITHUB).became_known([], house.now())
    is_problem(exchange(house, account, token(house, iss=GITHUB)), 401, "token_refused")
