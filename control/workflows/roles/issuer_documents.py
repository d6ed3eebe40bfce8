"""What an issuer of tokens publishes: its configuration, and in it where its keys are."""

import ssl
import time
from typing import Any, Final, Protocol
from urllib.parse import SplitResult, urlsplit

import httpx
import orjson

from control.access.signed_tokens import Jwk
from control.access.workload_tokens import usable_keys
from gateway import bounded_answers
from gateway.bounded_answers import AnswerRefused
from gateway.peer_texts import printable

CONFIGURATION: Final = "/.well-known/openid-configuration"
BYTES_MAX: Final = 256 << 10
WITHIN_S: Final = 5.0
"""For the head of an answer, and again for its body."""
REASON_MAX: Final = 300


class IssuerUnavailable(Exception):  # noqa: N818 -- a state of the issuer
    """Its keys cannot be had now; they may be later."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class Issuers(Protocol):
    def keys(self, issuer: str) -> list[Jwk]:
        """The keys that it publishes now. Raises IssuerUnavailable."""


class HttpIssuers:
    """Follows no redirects, reads a bounded answer for a bounded time, and stays on the host."""

    def __init__(self, within_s: float = WITHIN_S) -> None:
        self._within_s = within_s

    def keys(self, issuer: str) -> list[Jwk]:
        # The certificates that the system trusts: an issuer of one's own may have its own CA.
        transport = httpx.HTTPTransport(verify=ssl.create_default_context())
        with bounded_answers.client(transport, timeout=self._within_s) as http:
            told = self._get(http, f"{issuer}{CONFIGURATION}")
            if not isinstance(told, dict) or told.get("issuer") != issuer:
                raise IssuerUnavailable("its configuration names another issuer")
            where = told.get("jwks_uri")
            if not isinstance(where, str) or not _is_beside(issuer, where):
                raise IssuerUnavailable("the address of its keys (jwks_uri) is on another host")
            published = self._get(http, where)
        try:
            return usable_keys(published)
        except ValueError as error:
            raise IssuerUnavailable(f"what is at its jwks_uri is {error}") from error

    def _get(self, http: httpx.Client, url: str) -> Any:
        try:
            with http.stream("GET", url, headers={"Accept": "application/json"}) as answer:
                if answer.status_code != httpx.codes.OK:
                    raise IssuerUnavailable(f"{url} answers with the status {answer.status_code}")
                return orjson.loads(_body(answer, self._within_s))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            reason = printable(str(error), REASON_MAX) or type(error).__name__
            raise IssuerUnavailable(f"{url} does not answer as it should: {reason}") from error
        except orjson.JSONDecodeError as error:
            raise IssuerUnavailable(f"what is at {url} is not JSON") from error


def _body(answer: httpx.Response, within_s: float) -> bytes:
    read, end = bytearray(), time.monotonic() + within_s
    for part in answer.iter_raw():
        read += part
        if len(read) > BYTES_MAX:
            raise AnswerRefused(f"the answer is larger than {BYTES_MAX >> 10} KiB")
        if time.monotonic() > end:
            raise httpx.ReadTimeout("the answer did not end in time")
    return bytes(read)


def _is_beside(issuer: str, url: str) -> bool:
    """Of the same scheme, host and port: what is trusted is that host, and nobody it points to."""
    try:
        return _origin(urlsplit(issuer)) == _origin(urlsplit(url)) and url.isprintable()
    except ValueError:
        return False


def _origin(parts: SplitResult) -> tuple[str, str | None, int | None, bool]:
    port = parts.port or {"https": 443, "http": 80}.get(parts.scheme)
    return parts.scheme, parts.hostname, port, "@" in parts.netloc
