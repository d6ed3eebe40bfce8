"""Whom an ACME client asks, and what it takes for an answer, whoever the server is by then.

The server chooses the URLs of orders, proofs and certificates. Only its own are asked for, those of
the origin of its directory, and no redirect is followed: else it would have the cell ask whatever
only the cell's host can reach. Answers are not unpacked, and bounded in size and time.
"""

import io
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError

from gateway.bounded_answers import Bound, refuse_compressed

WITHIN_S: Final = 15.0
BYTES_MAX: Final = 1 << 20
_PART_BYTES: Final = 1 << 16


NOT_HTTPS: Final = "the ACME server uses a URL that is not https"


class Elsewhere(requests.RequestException):
    """The server would have another asked, which is not done."""


class BoundedAdapter(HTTPAdapter):
    def __init__(self, origin: tuple[str, int] | None) -> None:
        super().__init__()
        self._origin = origin

    def send(
        self, request: requests.PreparedRequest, *args: Any, **options: Any
    ) -> requests.Response:
        origin = _origin(str(request.url))
        if origin is None:
            raise Elsewhere(NOT_HTTPS)
        if origin != self._origin:
            raise Elsewhere("the ACME server uses a URL of another origin than its directory's")
        answer = super().send(request, *args, **{**options, "stream": True})
        if answer.is_redirect:
            answer.close()
            raise Elsewhere("the ACME server redirects, which is not followed")
        try:
            answer.raw = io.BytesIO(_read(answer))
        except (httpx.TransportError, HTTPError) as error:
            answer.raw.close()
            raise requests.ConnectionError(str(error)) from error
        return answer


def bind(session: requests.Session, directory: str) -> None:
    """All that the session asks for from now on is bounded, and of the directory's origin."""
    session.headers["Accept-Encoding"] = "identity"
    # In the form in which every URL is when it is asked for.
    adapter = BoundedAdapter(_origin(str(requests.Request("GET", directory).prepare().url)))
    session.adapters.clear()
    session.mount("", adapter)


def _origin(url: str) -> tuple[str, int] | None:
    """None where it is not HTTPS."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.scheme != "https" or not host:
        return None
    return host, 443 if port is None else port


def _read(answer: requests.Response) -> bytes:
    refuse_compressed(answer.headers.get("Content-Encoding"))
    bound, parts = Bound(WITHIN_S, BYTES_MAX), []
    # Read to its end, a connection goes back to those that are kept.
    for part in answer.raw.stream(_PART_BYTES, decode_content=False):
        bound.note(part)
        parts.append(part)
    return b"".join(parts)
