"""The headers of an attempt to deliver an event, signed in two ways that one secret verifies.

`SVC-Signature` is keyed with the whole secret as it was shown, in UTF-8. The headers of Standard
Webhooks are keyed with the bytes that its text after `whsec_` stands for, as their libraries do.
The service signs by this, and so does `menagerie webhooks listen`.
"""

import base64
import hmac
import secrets
from collections.abc import Sequence
from typing import Final

PREFIX: Final = "whsec_"
KEY_BYTES_MIN: Final = 24
KEY_BYTES_MAX: Final = 64
_NEW_KEY_BYTES: Final = 32
_SAME_FOR_ALL: Final = {
    "Content-Type": "application/json",
    "Accept-Encoding": "identity",
    "User-Agent": "Menagerie-Webhooks/1",
}


def new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(_NEW_KEY_BYTES)).decode()


def key_of(secret: str) -> bytes:
    """The bytes that the text after `whsec_` stands for. ValueError says what a secret is."""
    text = secret.removeprefix(PREFIX)
    try:
        key = base64.b64decode(text, validate=True) if text != secret else b""
    except ValueError:
        key = b""
    if not KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX:
        # Nothing of what was given: it may be a secret with a mistake in it.
        raise ValueError(
            f"a secret is {PREFIX} and the Base64 text of {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes"
        )
    return key


def headers(event_id: str, kind: str, body: bytes, at: int, keys: Sequence[str]) -> dict[str, str]:
    """Of one attempt at `at` (Unix seconds); a signature of each secret, the newest first."""
    plain, standard = [], []
    for secret in keys:
        plain.append(f"v1={_mac(secret.encode(), f'{at}.', body).hex()}")
        mac = _mac(key_of(secret), f"{event_id}.{at}.", body)
        standard.append(f"v1,{base64.b64encode(mac).decode()}")
    return {
        **_SAME_FOR_ALL,
        "SVC-Event-Id": event_id,
        "SVC-Event-Type": kind,
        "SVC-Timestamp": str(at),
        "SVC-Signature": ",".join(plain),
        "webhook-id": event_id,
        "webhook-timestamp": str(at),
        "webhook-signature": " ".join(standard),
    }


def _mac(key: bytes, before: str, body: bytes) -> bytes:
    return hmac.digest(key, before.encode() + body, "sha256")
