"""Events as webhooks to a receiver under development: what is sent is what the service sends."""

import json
import re
import time
from dataclasses import dataclass
from typing import Any, Final, Self

import httpx

from clients import transport, webhook_signing

RESPONSE_S: Final = 10.0
READ_BYTES_MAX: Final = 64 * 1024


@dataclass(frozen=True)
class ForwardedEvent:
    """One event that was sent: the status that came back, or why none did."""

    time: str
    kind: str
    status: int | None
    error: str
    duration_ms: int


class Forwarder:
    """Sends events to a URL, each once. Raises ConfigurationError if it is not a URL."""

    def __init__(self, url: str, secret: str) -> None:
        self._url = url
        self._secret = secret
        self._http = transport.open_http(url, timeout_s=RESPONSE_S)
        # A response counts by its status: its body is not unpacked, so it may be compressed.
        self._http.event_hooks = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._http.close()

    def forward(self, data: str) -> ForwardedEvent:
        """Send the event, given as the stream has it: those are the bytes that are signed."""
        event: dict[str, Any] = json.loads(data)
        event_id, kind = str(event["id"]), str(event["type"])
        body = data.encode()
        signed = webhook_signing.headers(event_id, kind, body, int(time.time()), [self._secret])
        begun = time.monotonic()
        status, error = self._post(body, signed, begun + RESPONSE_S)
        duration_ms = round((time.monotonic() - begun) * 1000)
        return ForwardedEvent(str(event["time"]), kind, status, error, duration_ms)

    def _post(self, body: bytes, headers: dict[str, str], until: float) -> tuple[int | None, str]:
        try:
            with self._http.stream("POST", self._url, content=body, headers=headers) as response:
                size = 0
                for part in response.iter_raw():
                    size += len(part)
                    if size > READ_BYTES_MAX or time.monotonic() > until:
                        break
        except httpx.TimeoutException:
            return None, _TOO_LATE
        # The latter of a host that has a part of more than 63 characters.
        except (httpx.HTTPError, UnicodeError) as error:
            return None, _reason(error)
        # Each part may have come in time, and all of them too late.
        return (None, _TOO_LATE) if time.monotonic() > until else (response.status_code, "")


_TOO_LATE: Final = f"no complete response within {RESPONSE_S:g} s"


def _reason(error: Exception) -> str:
    said = re.sub(r"^\[Errno -?\d+\] ", "", str(error)).rstrip(".") or type(error).__name__
    if isinstance(error, httpx.ConnectError):
        return f"cannot connect: {said}"
    return f"no valid response: {said}"
