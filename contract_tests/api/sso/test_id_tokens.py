"""Attacks on the ID token: each is refused, and nobody comes of it."""

import base64
import hashlib
import hmac
import json
import os
import time
from collections.abc import Callable
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jwt.algorithms import OKPAlgorithm

from contract_tests.api.harness import House
from contract_tests.api.sso.with_oidc import (
    SESSIONS,
    Begun,
    begin,
    connected,
    new_domain,
    returned,
    sign_in,
)
from contract_tests.oidc_issuer import ec_key, public, rsa_key, segment
from contract_tests.sso_provider import CLIENT_ID, SsoProvider
from control.sso.questions import KEYS_EVERY

Json = dict[str, Any]
Attack = Callable[[SsoProvider, Json], str]


def by_hand(header: Json, claims: Any, signature: bytes = b"x") -> str:
    return ".".join(segment(each) for each in (header, claims, signature))


def symmetric(provider: SsoProvider, claims: Json) -> str:
    """RS-to-HS: the public key, which everybody has, as the secret."""
    pem = (
        rsa_key()
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    signed = f"{segment({'alg': 'HS256', 'kid': 'rsa-1'})}.{segment(claims)}"
    mac = hmac.new(pem, signed.encode(), hashlib.sha256).digest()
    assert provider
    return f"{signed}.{segment(mac)}"


def embedded(provider: SsoProvider, claims: Json) -> str:
    """With the key that verifies it in its own header."""
    key = rsa_key("attacker")
    header: Any = {"jwk": public(key, "rsa-1"), "jku": "http://127.0.0.1:9/keys", "x5u": "http://x"}
    return provider.signed(claims, key, **header)


def with_times(**changed: float | str | None) -> Attack:
    def attack(provider: SsoProvider, claims: Json) -> str:
        now = time.time()
        shifted = {
            name: now + value if isinstance(value, int | float) else value
            for name, value in changed.items()
        }
        told = {**claims, **shifted}
        return provider.signed({name: value for name, value in told.items() if value is not None})

    return attack


def saying(**changed: Any) -> Attack:
    def attack(provider: SsoProvider, claims: Json) -> str:
        told = {**claims, **changed}
        return provider.signed({name: value for name, value in told.items() if value is not ...})

    return attack


def other_signature(provider: SsoProvider, claims: Json) -> str:
    one = provider.signed(claims).rpartition(".")[0]
    return f"{one}.{provider.signed({**claims, 'sub': 'x'}).rpartition('.')[2]}"


ATTACKS: dict[str, Attack] = {
    "alg none": lambda _, c: by_hand({"alg": "none", "kid": "rsa-1"}, c, b""),
    "alg None": lambda _, c: by_hand({"alg": "None", "kid": "rsa-1"}, c, b""),
    "no signature": lambda p, c: p.signed(c).rpartition(".")[0] + ".",
    "RS to HS": symmetric,
    "HS256 with the client secret": lambda _, c: jwt.encode(
        c, "its:secret %".ljust(32), "HS256", {"kid": "rsa-1"}
    ),
    "key of the attacker": lambda p, c: p.signed(c, rsa_key("attacker")),
    "key in the header": embedded,
    "RS512, which is not offered": lambda p, c: p.signed(c, alg="RS512"),
    "PS256, which is not offered": lambda p, c: p.signed(c, alg="PS256"),
    "EC signature with the id of an RSA key": lambda p, c: p.signed(c, ec_key(), "ES256"),
    "RSA signature with the id of an EC key": lambda p, c: p.signed(c, kid="ec-1"),
    "unknown kid": lambda p, c: p.signed(c, kid="rsa-2"),
    "kid that is a path": lambda p, c: p.signed(c, kid="../../dev/null"),
    "kid that is no text": lambda _, c: by_hand({"alg": "RS256", "kid": 7}, c),
    "no kid where there are others": lambda p, c: p.signed(c, rsa_key("attacker"), kid=None),
    "unknown crit": lambda p, c: p.signed(c, crit=["exp"]),
    "b64 false": lambda _, c: by_hand({"alg": "RS256", "kid": "rsa-1", "b64": False}, c),
    "signature of another token": other_signature,
    "wrong issuer": saying(iss="https://attacker.example.com"),
    "issuer with a slash": lambda p, c: p.signed({**c, "iss": c["iss"] + "/"}),
    "no issuer": saying(iss=...),
    "wrong audience": saying(aud="another"),
    "audience of several, without azp": saying(aud=[CLIENT_ID, "another"]),
    "audience of several, given to another": saying(aud=[CLIENT_ID, "another"], azp="another"),
    "audience that has ours in it": saying(aud=f"{CLIENT_ID} another"),
    "no audience": saying(aud=...),
    "audience that is a map": saying(aud={CLIENT_ID: True}),
    "azp of another": saying(azp="another"),
    "wrong nonce": saying(nonce="another"),
    "no nonce": saying(nonce=...),
    "nonce that is a list": saying(nonce=["x"]),
    "no subject": saying(sub=...),
    "empty subject": saying(sub=""),
    "subject that is a number": saying(sub=7),
    "subject that is long": saying(sub="x" * 501),
    "subject with a NUL": saying(sub="a\0b"),
    "expired": with_times(exp=-31.0),
    "never expires": saying(exp=...),
    "expires at infinity": lambda p, c: p.signed({**c, "exp": float("inf")}),
    "expires in words": saying(exp="tomorrow"),
    "issued in the future": with_times(iat=120.0),
    "not issued": saying(iat=...),
    "not valid yet": with_times(nbf=120.0),
    "at_hash of another access token": saying(at_hash="AAAAAAAAAAAAAAAAAAAAAA"),
    "at_hash that is no text": saying(at_hash=7),
    "huge": saying(padding="x" * (33 << 10)),
    "nested": lambda *_: by_hand(
        {"alg": "RS256", "kid": "rsa-1"}, json.loads("[" * 900 + "]" * 900)
    ),
    "a list of claims": lambda _, c: by_hand({"alg": "RS256", "kid": "rsa-1"}, [c]),
    "encrypted": lambda *_: "e30.e30.e30.e30.e30",
    "no token": lambda *_: "token",
    "empty": lambda *_: "",
}


def attacked(house: House, connection: Json, provider: SsoProvider, attack: Attack) -> Any:
    begun = begin(house, connection)
    claims = provider.claims(begun.nonce, email=f"a@{new_domain()}", sub=os.urandom(4).hex())
    return come(house, provider, begun, attack(provider, claims))


def come(house: House, provider: SsoProvider, begun: Begun, id_token: Any) -> httpx.Response:
    code = provider.gives(os.urandom(8).hex(), id_token)
    return house.post(SESSIONS, json=returned(begun, code))


def test_each_attack_is_refused_and_leaves_nobody(house: House, provider: SsoProvider) -> None:
    tenant = house.tenant()
    connection = connected(house, tenant, provider)
    for name, attack in ATTACKS.items():
        answer = attacked(house, connection, provider, attack)
        assert answer.status_code == 401, name
        assert answer.json()["code"] == "sso_refused", name
        assert "token" not in answer.json(), name
    members = house.get(f"{tenant.path}/members", tenant.owner.session).json()["items"]
    assert [one["user_id"] for one in members] == [tenant.owner.id]
    # The same provider, connection and way, with a token that is right.
    assert sign_in(house, connection, provider, email=f"a@{new_domain()}").status_code == 201


@pytest.mark.parametrize("id_token", [None, 7, ["x"], {}])
def test_an_answer_without_an_id_token_opens_nothing(
    house: House, provider: SsoProvider, id_token: Any
) -> None:
    begun = begin(house, connected(house, house.tenant(), provider))
    answer = come(house, provider, begun, id_token)
    assert (answer.status_code, answer.json()["code"]) == (401, "sso_refused")


def test_what_is_right_in_unusual_ways_is_let_in(house: House, provider: SsoProvider) -> None:
    curve = ed25519.Ed25519PrivateKey.generate()
    edwards = {**OKPAlgorithm.to_jwk(curve.public_key(), as_dict=True), "kid": "ed-1"}
    provider.keys.append(edwards)
    offered = ["RS256", "PS256", "ES256", "EdDSA"]
    provider.changed = {"id_token_signing_alg_values_supported": offered}
    connection = connected(house, house.tenant(), provider)
    half = hashlib.sha256(b"at-1").digest()[:16]
    at_hash = base64.urlsafe_b64encode(half).rstrip(b"=").decode()
    now = int(time.time())
    for attack in (
        saying(aud=[CLIENT_ID]),
        saying(aud=[CLIENT_ID, "another"], azp=CLIENT_ID),
        saying(azp=CLIENT_ID),
        saying(at_hash=at_hash),
        with_times(iat=20.0, exp=-20.0, nbf=20.0),
        lambda p, c: p.signed({**c, "exp": now + 60.5}),
        lambda p, c: p.signed(c, alg="PS256"),
        lambda p, c: p.signed(c, ec_key(), "ES256", kid="ec-1"),
        lambda p, c: p.signed(c, ec_key(), "ES256", kid=None),
        lambda p, c: p.signed(c, curve, "EdDSA", kid="ed-1"),
    ):
        answer = attacked(house, connection, provider, attack)
        assert answer.status_code == 201, answer.text


def test_a_new_key_of_the_provider_is_read_once_a_minute(
    house: House, provider: SsoProvider
) -> None:
    connection = connected(house, house.tenant(), provider)
    new = rsa_key("next")
    provider.keys = [public(new, "rsa-2")]

    def signed_by_new(p: SsoProvider, claims: Json) -> str:
        return p.signed(claims, new, kid="rsa-2")

    # Read when the connection was made, a moment ago.
    assert attacked(house, connection, provider, signed_by_new).status_code == 401
    house.pass_time(KEYS_EVERY.total_seconds() + 1)
    provider.asked.clear()
    assert attacked(house, connection, provider, signed_by_new).status_code == 201
    assert attacked(house, connection, provider, signed_by_new).status_code == 201
    old = lambda p, c: p.signed(c)  # noqa: E731
    assert attacked(house, connection, provider, old).status_code == 401
    assert [one[0] for one in provider.asked].count("/keys") == 1


SECRET = "secret-of-thirty-two-bytes-long!"
SWAPPED: dict[str, tuple[list[Json], int]] = {
    "a secret": (
        [{"kty": "oct", "k": "c2VjcmV0LW9mLXRoaXJ0eS10d28tYnl0ZXMtISE", "kid": "new"}],
        503,
    ),
    "none": ([], 503),
    "the attacker's, by its own id": ([public(rsa_key("attacker"), "attacker")], 401),
}


@pytest.mark.parametrize("what", SWAPPED)
def test_keys_that_are_swapped_let_in_nobody_whom_they_did_not_sign(
    house: House, provider: SsoProvider, what: str
) -> None:
    """By somebody who can change what is published for a moment, and not what was read before."""
    connection = connected(house, house.tenant(), provider)
    before = provider.keys
    provider.keys, status = SWAPPED[what]
    house.pass_time(KEYS_EVERY.total_seconds() + 1)

    def by_secret(_provider: SsoProvider, claims: Json) -> str:
        return jwt.encode(claims, SECRET, "HS256", {"kid": "new"})

    assert attacked(house, connection, provider, by_secret).status_code == 401
    unknown = attacked(house, connection, provider, lambda p, c: p.signed(c, kid="new"))
    assert unknown.status_code == status, unknown.text
    provider.keys = before
    house.pass_time(KEYS_EVERY.total_seconds() + 1)
    assert sign_in(house, connection, provider, email=f"a@{new_domain()}").status_code == 201


UNUSABLE: dict[str, Callable[[], Any]] = {
    "no key": list,
    "symmetric": lambda: [{"kty": "oct", "k": "c2VjcmV0", "kid": "rsa-1"}],
    "small": lambda: [public(rsa_key("small", 1024), "rsa-1")],
    "for encryption": lambda: [{**public(rsa_key(), "rsa-1"), "use": "enc"}],
    "for another algorithm": lambda: [{**public(rsa_key(), "rsa-1"), "alg": "RSA-OAEP"}],
    "another curve": lambda: [{**public(ec.generate_private_key(ec.SECP384R1()), "ec-1")}],
    "too many": lambda: [public(rsa_key(), f"k-{number}") for number in range(51)],
    "no keys": lambda: [7, None, "x", []],
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_provider_without_a_usable_key_is_not_connected(
    house: House, provider: SsoProvider, name: str
) -> None:
    tenant = house.tenant()
    provider.keys = UNUSABLE[name]()
    body = {
        "name": "x",
        "oidc": {"issuer": provider.url, "client_id": "a", "client_secret": "b"},
    }
    answer = house.post(f"{tenant.path}/sso/connections", tenant.owner.session, json=body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"] == "/oidc/issuer"


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_no_changed_byte_of_a_token_is_let_in(
    house: House, provider: SsoProvider, data: st.DataObject
) -> None:
    """Of the token alone, without the API: sixty thousand of these would take a day."""
    from control.access.signed_tokens import (  # noqa: PLC0415
        TokenRefused,
        header_of,
        usable_keys,
        verified_claims,
    )

    claims = provider.claims("n")
    token = provider.signed(claims)
    keys = usable_keys({"keys": provider.keys}, ["RS256", "ES256"])
    at = data.draw(st.integers(0, len(token) - 1))
    put = data.draw(st.text("abcXYZ019-_.=", min_size=0, max_size=3))
    changed = token[:at] + put + token[at + 1 :]
    try:
        algorithm, key_id = header_of(changed, ["RS256", "ES256"])
        found = verified_claims(changed, algorithm, key_id, keys)
    except TokenRefused:
        return
    # Base64 has bits at the end of each part that mean nothing.
    assert found == claims


def test_the_corpus_signs_what_it_says(provider: SsoProvider) -> None:
    """Else an attack would be refused for another reason than its own."""
    told = jwt.decode(
        provider.signed(provider.claims("n")),
        rsa_key().public_key(),
        ["RS256"],
        audience=CLIENT_ID,
    )
    assert told["nonce"] == "n"
    assert isinstance(rsa_key(), rsa.RSAPrivateKey)
