"""How what is sent is signed, in two ways that one secret verifies.

`SVC-Signature` is keyed with the whole secret as it was shown, in UTF-8. The headers of Standard
Webhooks are keyed with the bytes that its text after `whsec_` stands for, as their libraries do.
"""

import base64
import hmac
import secrets
from collections.abc import Sequence
from typing import Final

PREFIX: Final = "whsec_"
_SECRET_BYTES: Final = 32


def new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def headers(event_id: str, kind: str, body: bytes, at: int, keys: Sequence[str]) -> dict[str, str]:
    """Of one attempt at `at` (Unix seconds); a signature of each secret, the newest first."""
    plain, standard = [], []
    for secret in keys:
        plain.append(f"v1={_mac(secret.encode(), f'{at}.', body).hex()}")
        key = base64.b64decode(secret.removeprefix(PREFIX))
        mac = _mac(key, f"{event_id}.{at}.", body)
        standard.append(f"v1,{base64.b64encode(mac).decode()}")
    return {
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
