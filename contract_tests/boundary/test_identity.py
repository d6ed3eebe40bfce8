"""Tokens, passwords, one-time codes, seals and signatures."""

import base64
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import cast

import jwt
import pyotp
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from control.boundary import identity, passwords
from control.boundary.breaches import BreachedPasswords
from control.boundary.callers import Caller
from control.boundary.identity import Token
from control.cells.signing import Signer
from control.sealing import Sealer, SealError
from control.services import Services
from specserver import Exchange

AT = datetime(2026, 1, 1, 12, 0, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("make", "kind", "prefix"),
    [
        (identity.new_api_key, "api_key", "mk_live_"),
        (identity.new_session_token, "session", "ms_"),
    ],
)
def test_a_token_is_recognized_by_prefix_and_checksum(
    make: Callable[[], Token], kind: str, prefix: str
) -> None:
    token = make()
    assert token.secret.startswith(prefix)
    assert token.secret[len(prefix) :].isalnum()
    assert token.prefix == token.secret[:12]
    assert token.sha256 == identity.token_sha256(token.secret)
    assert identity.token_kind(token.secret) == kind
    assert token.secret not in repr(token)
    assert make().secret != token.secret


@given(data=st.data())
def test_one_changed_character_breaks_the_checksum(data: st.DataObject) -> None:
    secret = identity.new_api_key().secret
    at = data.draw(st.integers(0, len(secret) - 1))
    other = data.draw(st.characters().filter(lambda one: one != secret[at]))
    assert identity.token_kind(secret[:at] + other + secret[at + 1 :]) is None


@given(st.text())
def test_other_text_is_no_token(text: str) -> None:
    assert identity.token_kind(text) is None
    assert identity.token_kind("mk_live_" + text) is None


def test_passwords() -> None:
    stored = identity.PASSWORDS.hash("correct horse")
    assert stored.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    stored = identity.hash_password("correct horse")
    assert stored.startswith("$argon2id$")
    assert identity.verify_password(stored, "correct horse")
    assert not identity.verify_password(stored, "wrong horse")
    assert not identity.verify_password(None, "correct horse")
    assert not identity.verify_password("not a hash", "correct horse")
    assert not identity.password_needs_rehash(stored)


@pytest.mark.parametrize(
    ("late_s", "good"),
    [(0, True), (-30, True), (30, True), (60, False), (-60, False), (90, False)],
)
def test_a_code_is_good_for_one_step_either_side(late_s: int, good: bool) -> None:
    secret = identity.new_totp_secret()
    code = pyotp.TOTP(secret).at(AT + timedelta(seconds=late_s))
    assert (identity.verify_totp(secret, code, AT) is not None) == good


def test_a_code_is_good_once() -> None:
    secret = identity.new_totp_secret()
    code = pyotp.TOTP(secret).at(AT)
    step = identity.verify_totp(secret, code, AT)
    assert step is not None
    assert identity.verify_totp(secret, code, AT, last_step=step) is None
    assert identity.verify_totp(secret, code, AT + timedelta(seconds=20), last_step=step) is None
    assert identity.verify_totp(secret, "12345é", AT) is None


def test_the_uri_names_the_account() -> None:
    uri = identity.totp_uri(identity.new_totp_secret(), "ann@example.org")
    assert uri.startswith("otpauth://totp/Menagerie:ann%40example.org?")


@given(secret=st.binary(), context=st.text())
def test_what_is_sealed_opens_in_its_context_only(secret: bytes, context: str) -> None:
    sealer = Sealer(bytes(32))
    sealed = sealer.seal(secret, context)
    assert sealer.open(sealed, context) == secret
    assert sealed != sealer.seal(secret, context)
    with pytest.raises(SealError):
        sealer.open(sealed, context + "x")


@given(at=st.integers(0, 40), bit=st.integers(0, 7))
def test_a_flipped_bit_is_found(at: int, bit: int) -> None:
    sealer = Sealer(bytes(32))
    sealed = bytearray(sealer.seal(b"a secret", "here"))
    sealed[at] ^= 1 << bit
    with pytest.raises(SealError):
        sealer.open(bytes(sealed), "here")


def test_keys_are_exchanged_without_losing_what_was_sealed() -> None:
    old, new = b"o" * 32, b"n" * 32
    sealed = Sealer(old).seal(b"a secret", "here")
    assert Sealer(new, old).open(sealed, "here") == b"a secret"
    with pytest.raises(SealError):
        Sealer(new).open(sealed, "here")
    with pytest.raises(SealError):
        Sealer(new).open(b"", "here")
    with pytest.raises(ValueError, match="32 bytes"):
        Sealer(b"short")


def decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def test_a_one_time_token_is_checked_with_the_public_key() -> None:
    signer = Signer(Ed25519PrivateKey.generate(), clock=time.time)
    token = signer.token(
        "cell_1", {"instance_id": "inst_1", "action": "reveal", "jti": "j", "exp": 1}
    )
    key = Ed25519PublicKey.from_public_bytes(signer.public_key)
    signed, _, signature = token.rpartition(".")
    key.verify(decoded(signature), signed.encode())
    read = jwt.decode(token, key, ["EdDSA"], {"verify_exp": False}, audience="cell_1")
    assert read["v"] == 1
    with pytest.raises(InvalidSignature):
        key.verify(decoded(signature), signed.encode() + b"x")


def test_a_request_is_signed_with_cell_path_query_body_time_and_nonce() -> None:
    signer = Signer(Ed25519PrivateKey.from_private_bytes(bytes(32)), clock=lambda: 1000.9)
    headers = signer.sign_request("cell_1", "put", "/v1/instances/a?b=c", b"{}")
    again = signer.sign_request("cell_1", "put", "/v1/instances/a?b=c", b"{}")
    assert headers["Menagerie-Timestamp"] == "1000"
    assert headers["Menagerie-Nonce"] != again["Menagerie-Nonce"]
    body = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    signed = f"cell_1\nPUT\n/v1/instances/a?b=c\n{body}\n1000\n{headers['Menagerie-Nonce']}"
    key = Ed25519PublicKey.from_public_bytes(signer.public_key)
    key.verify(decoded(headers["Menagerie-Signature"]), signed.encode())
    assert signer.sign_request("cell_1", "GET", "/", timestamp_s=7)["Menagerie-Timestamp"] == "7"


def test_a_new_password_beside_a_wrong_one_is_not_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes 20 ms of a CPU, and nothing would come of it."""
    stored = identity.hash_password("correct horse")
    user = SimpleNamespace(password_hash=stored, email="ada@example.com", name="Ada")
    services = cast("Services", SimpleNamespace(breaches=BreachedPasswords()))
    caller = cast("Caller", SimpleNamespace(user=user))
    hashed: list[str] = []

    def hashing(password: str) -> str:
        hashed.append(password)
        return "its hash"

    monkeypatch.setattr(identity, "hash_password", hashing)
    for sent, right in (("wrong horse", False), ("correct horse", True)):
        body = {"password": sent, "new_password": "staple of nine oaks"}
        exchange = cast("Exchange", SimpleNamespace(arguments={"body": body}, state={}))
        assert passwords.prove(exchange, "password", caller, services) is right
        assert hashed == ["staple of nine oaks"] * right
