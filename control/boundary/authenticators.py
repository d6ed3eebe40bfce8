"""Passkeys (WebAuthn): the site that they are for, challenges, and what authenticators answer.

A challenge is sealed and not stored: it says what it is for, for whom and until when, and nobody
else can make one. What was answered is noted by the handler, so that it is good once.
"""

import base64
import binascii
import ipaddress
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from control.sealing import Sealer, SealError

CHALLENGE_TTL_S: Final = 300
NAME: Final = "Menagerie"
# Ed25519, ECDSA with P-256, and RSA, which Windows Hello makes.
ALGORITHMS: Final = (-8, -7, -257)
_FORMATS: Final = frozenset({"none", "packed"})
_KEY_BYTES_MAX: Final = 1_024
_RANDOM_BYTES: Final = 16
_REASON_LENGTH: Final = 200
_TIME_BYTES: Final = 8
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class PasskeyRefused(Exception):  # noqa: N818 -- of an answer, and no error of ours
    """What a browser sent proves nothing; the text is for the log, and for nobody who asks."""


@dataclass(frozen=True)
class PasskeySite:
    """What passkeys are bound to: `id` is the host that they are for, `origin` where pages are."""

    id: str
    origin: str


@dataclass(frozen=True)
class Registered:
    """A passkey as its authenticator has just made it."""

    credential_id: str
    public_key: bytes
    sign_count: int
    is_backup_eligible: bool
    is_backed_up: bool


@dataclass(frozen=True)
class Asserted:
    """A use of a passkey, which its authenticator has signed."""

    sign_count: int
    is_backed_up: bool


def site_of(base_url: str) -> PasskeySite | None:
    """None where browsers make no passkeys: without HTTPS, and at a numeric address.

    Loopback addresses are `localhost`, as no passkey is for a number.
    """
    parts = urlsplit(base_url)
    host = (parts.hostname or "").lower()
    try:
        numeric = ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        if not numeric.is_loopback:
            return None
        host = "localhost"
    is_local = host == "localhost" or host.endswith(".localhost")
    if not host or (parts.scheme != "https" and not is_local):
        return None
    port = parts.port
    shown = "" if port in (None, _DEFAULT_PORTS[parts.scheme]) else f":{port}"
    return PasskeySite(host, f"{parts.scheme}://{host}{shown}")


def new_challenge(sealer: Sealer, purpose: str, whose: str, until: datetime) -> str:
    """In base64url. `whose` is the id of the session that it is for; empty before there is one."""
    told = int(until.timestamp()).to_bytes(_TIME_BYTES) + os.urandom(_RANDOM_BYTES)
    return base64url(sealer.seal(told, _context(purpose, whose)))


def challenge_in(credential: dict[str, Any]) -> bytes:
    """What a browser says that it was challenged with."""
    try:
        told = orjson.loads(from_base64url(credential["response"]["clientDataJSON"]))
        challenge = from_base64url(told["challenge"])
        crossed = told.get("crossOrigin", False)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise PasskeyRefused("its client data is malformed") from error
    # Our pages are in nobody's frame.
    if crossed is not False:
        raise PasskeyRefused("it was made in a frame of another site")
    return challenge


def require_challenge(
    sealer: Sealer, challenge: bytes, purpose: str, whose: str, now: datetime
) -> None:
    """That it is one of ours, for this and for them, and not too old."""
    try:
        told = sealer.open(challenge, _context(purpose, whose))
    except SealError as error:
        raise PasskeyRefused("its challenge is none of ours, or for something else") from error
    if int.from_bytes(told[:_TIME_BYTES]) <= now.timestamp():
        raise PasskeyRefused("its challenge is too old")


def registered(credential: dict[str, Any], challenge: bytes, site: PasskeySite) -> Registered:
    """What it says of itself is not looked into: no make of authenticator is preferred."""
    # Loading it takes 150 ms, and most processes never see a passkey.
    from webauthn import verify_registration_response  # noqa: PLC0415
    from webauthn.helpers import bytes_to_base64url  # noqa: PLC0415
    from webauthn.helpers.cose import COSEAlgorithmIdentifier  # noqa: PLC0415

    try:
        _refuse_makers(credential["response"]["attestationObject"])
        found = verify_registration_response(
            credential=credential,
            expected_challenge=challenge,
            expected_rp_id=site.id,
            expected_origin=site.origin,
            require_user_verification=True,
            supported_pub_key_algs=[COSEAlgorithmIdentifier(one) for one in ALGORITHMS],
        )
    except PasskeyRefused:
        raise
    except Exception as error:  # three libraries read what a stranger wrote
        raise PasskeyRefused(f"it is refused: {type(error).__name__}") from error
    if len(found.credential_public_key) > _KEY_BYTES_MAX:
        raise PasskeyRefused("its key is too long")
    return Registered(
        bytes_to_base64url(found.credential_id),
        found.credential_public_key,
        found.sign_count,
        is_backup_eligible=found.credential_device_type.value == "multi_device",
        is_backed_up=found.credential_backed_up,
    )


def _refuse_makers(attestation: str) -> None:
    """Browsers leave out who made it, as our options ask them to: no certificate is looked at."""
    from webauthn.helpers import parse_attestation_object  # noqa: PLC0415

    told = parse_attestation_object(from_base64url(attestation))
    if told.fmt not in _FORMATS or told.att_stmt.x5c:
        raise PasskeyRefused("it is attested by a maker")


def asserted(
    credential: dict[str, Any],
    challenge: bytes,
    site: PasskeySite,
    *,
    public_key: bytes,
    sign_count: int,
    is_backup_eligible: bool,
) -> Asserted:
    """Of a passkey with this key, whose counter stood there when it was last used."""
    from webauthn import verify_authentication_response  # noqa: PLC0415

    try:
        found = verify_authentication_response(
            credential=credential,
            expected_challenge=challenge,
            expected_rp_id=site.id,
            expected_origin=site.origin,
            credential_public_key=public_key,
            credential_current_sign_count=sign_count,
            require_user_verification=True,
        )
    except Exception as error:  # as above
        raise PasskeyRefused(f"it is refused: {str(error)[:_REASON_LENGTH]}") from error
    # Whether a passkey can be copied is decided when it is made.
    if (found.credential_device_type.value == "multi_device") != is_backup_eligible:
        raise PasskeyRefused("it is another kind of passkey than it was")
    return Asserted(found.new_sign_count, is_backed_up=found.credential_backed_up)


def creation_options(
    site: PasskeySite, challenge: str, user: tuple[str, str, str], known: Iterable[str]
) -> dict[str, Any]:
    """For `navigator.credentials.create`; `user` is their id, address and name."""
    user_id, email, name = user
    return {
        "rp": {"id": site.id, "name": NAME},
        "user": {"id": base64url(user_id.encode()), "name": email, "displayName": name},
        "challenge": challenge,
        "pubKeyCredParams": [{"type": "public-key", "alg": one} for one in ALGORITHMS],
        "timeout": CHALLENGE_TTL_S * 1_000,
        "excludeCredentials": _described(known),
        "authenticatorSelection": {
            "residentKey": "required",
            "requireResidentKey": True,
            "userVerification": "required",
        },
        "attestation": "none",
    }


def request_options(site: PasskeySite, challenge: str, known: Iterable[str] = ()) -> dict[str, Any]:
    """For `navigator.credentials.get`; without `known`, the authenticator shows what it has."""
    return {
        "challenge": challenge,
        "timeout": CHALLENGE_TTL_S * 1_000,
        "rpId": site.id,
        "allowCredentials": _described(known),
        "userVerification": "required",
    }


def base64url(plain: bytes) -> str:
    return base64.urlsafe_b64encode(plain).rstrip(b"=").decode()


def from_base64url(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError("not base64url") from error


def _described(known: Iterable[str]) -> list[dict[str, str]]:
    return [{"type": "public-key", "id": one} for one in known]


def _context(purpose: str, whose: str) -> str:
    return f"passkey:{purpose}:{whose}"
