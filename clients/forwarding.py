"""Events as webhooks to this machine, for development: signed as the service signs them."""

import base64
import hmac
import http.client
import json
import secrets
import time
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from clients.errors import ClientError

HERE: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_WITHIN_S: Final = 10.0
_READ_BYTES: Final = 1_024
_PREFIX: Final = "whsec_"


class Forwarder:
    """To a URL of this machine. Raises ClientError for any other."""

    def __init__(self, url: str, patterns: Sequence[str]) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port or 80
        except ValueError as error:
            raise ClientError(f"{url} is not a URL: {error}") from error
        if parts.scheme != "http" or parts.hostname not in HERE:
            raise ClientError(
                "events are forwarded to this machine only, such as http://localhost:3000/hook;"
                " register an endpoint for any other (menagerie webhooks create)"
            )
        self._place = (parts.hostname, port)
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._patterns = patterns or ("*",)
        self.secret = _PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()

    def forward(self, data: str) -> str | None:
        """A line about what came back; None for an event that matches no pattern."""
        event: dict[str, Any] = json.loads(data)
        kind, event_id = str(event.get("type")), str(event.get("id"))
        if not any(_matches(each, kind) for each in self._patterns):
            return None
        return f"{kind} {event_id}: {self._post(kind, event_id, data.encode())}"

    def _post(self, kind: str, event_id: str, body: bytes) -> str:
        connection = http.client.HTTPConnection(*self._place, timeout=_WITHIN_S)
        try:
            headers = self._headers(kind, event_id, body)
            connection.request("POST", self._target, body, headers)
            answer = connection.getresponse()
            shown = " ".join(answer.read(_READ_BYTES).decode(errors="replace").split())
        except (OSError, http.client.HTTPException) as error:
            return f"no response ({error or type(error).__name__})"
        finally:
            connection.close()
        return f"{answer.status} {shown}".rstrip()

    def _headers(self, kind: str, event_id: str, body: bytes) -> dict[str, str]:
        at = str(int(time.time()))
        plain = hmac.digest(self.secret.encode(), f"{at}.".encode() + body, "sha256")
        key = base64.b64decode(self.secret.removeprefix(_PREFIX))
        standard = hmac.digest(key, f"{event_id}.{at}.".encode() + body, "sha256")
        return {
            "Content-Type": "application/json",
            "SVC-Event-Id": event_id,
            "SVC-Event-Type": kind,
            "SVC-Timestamp": at,
            "SVC-Signature": f"v1={plain.hex()}",
            "webhook-id": event_id,
            "webhook-timestamp": at,
            "webhook-signature": f"v1,{base64.b64encode(standard).decode()}",
        }


def _matches(pattern: str, kind: str) -> bool:
    return pattern in ("*", kind) or (pattern.endswith(".*") and kind.startswith(pattern[:-1]))
