"""Signed links to invoices: whoever has one sees the invoice, until it expires."""

import base64
import hashlib
import hmac
from datetime import UTC, datetime, timedelta
from typing import Final

LASTS: Final = timedelta(days=30)
_PURPOSE: Final = b"menagerie invoice link\n"
_MAC_BYTES: Final = 24


def token_of(key: bytes, invoice_id: str, now: datetime) -> str:
    """Of this link. It begins with the id and its end (seconds since 1970), which all can read."""
    said = f"{invoice_id}.{int((now + LASTS).timestamp())}"
    return f"{said}.{_mac(key, said)}"


def invoice_of(key: bytes, token: str, now: datetime) -> str | None:
    """The id of the invoice that the token is for; None if it is forged or over."""
    said, _, mac = token.rpartition(".")
    if not hmac.compare_digest(mac.encode(), _mac(key, said).encode()):
        return None
    invoice_id, _, until = said.partition(".")
    return invoice_id if now < datetime.fromtimestamp(int(until), UTC) else None


def _mac(key: bytes, said: str) -> str:
    made = hmac.digest(key, _PURPOSE + said.encode(), hashlib.sha256)[:_MAC_BYTES]
    return base64.urlsafe_b64encode(made).decode()
