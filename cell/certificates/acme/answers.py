"""Answers of an ACME server: not unpacked, and bounded in size and time, whoever it is by then."""

import io
from typing import Any, Final

import httpx
import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError

from gateway.bounded_answers import Bound, refuse_compressed

WITHIN_S: Final = 15.0
_PART_BYTES: Final = 1 << 16


class BoundedAdapter(HTTPAdapter):
    def send(self, *args: Any, **options: Any) -> requests.Response:
        answer = super().send(*args, **{**options, "stream": True})
        try:
            answer.raw = io.BytesIO(_read(answer))
        except (httpx.TransportError, HTTPError) as error:
            answer.raw.close()
            raise requests.ConnectionError(str(error)) from error
        return answer


def bind(session: requests.Session) -> None:
    """All that the session asks for from now on is bounded."""
    session.headers["Accept-Encoding"] = "identity"
    for scheme in ("https://", "http://"):
        session.mount(scheme, BoundedAdapter())


def _read(answer: requests.Response) -> bytes:
    refuse_compressed(answer.headers.get("Content-Encoding"))
    bound, parts = Bound(WITHIN_S), []
    # Read to its end, a connection goes back to those that are kept.
    for part in answer.raw.stream(_PART_BYTES, decode_content=False):
        bound.note(part)
        parts.append(part)
    return b"".join(parts)
