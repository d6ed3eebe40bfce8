"""Instances from the outside: their credentials, fetched once, and sessions on them."""

import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

import httpx

from clients import answers, errors, transport
from clients.client import Client
from clients.credentials import Credential
from clients.sessions import Session, open_session
from clients.transport import Authorities

# A followed log that ended sooner was ended by somebody.
FOLLOWED_AGAIN_S = 3000.0


class Endpoint:
    """One instance, as its users reach it, whatever its engine.

        with Endpoint(client, client.call("instances.get", instance_id=…)).session() as session:
            rows = session.query("SELECT $1::int + 1 AS n", [41]).rows

    Where no ca_file is set, the control plane is asked for the chain of the instance's cell, whose
    certificates need not be publicly trusted.
    """

    def __init__(
        self, client: Client, instance: Mapping[str, Any], *, org: Mapping[str, Any] | None = None
    ) -> None:
        self.client = client
        self.instance = instance
        self._arguments = {**(org or {}), "instance_id": instance["id"]}
        self._ca_pem: str | None = None

    def ca_pem(self) -> str | None:
        """Answer the chain of the instance's cell; None where the profile names a ca_file."""
        if self.client.ca_file is None and self._ca_pem is None:
            self._ca_pem = str(self._call("GET", "/ca.pem"))
        return self._ca_pem

    def authorities(self) -> Authorities:
        """Answer whom to trust for the instance's certificate."""
        return Authorities(self.client.ca_file, self.ca_pem())

    def session(self, credential: Credential | None = None) -> Session:
        """Answer a session on the instance, with its credential revealed where none is given."""
        engine = str(self.instance["engine"])
        return open_session(engine, credential or self.reveal(), self.authorities())

    def reveal(self) -> Credential:
        """Fetch the credential from the cell. The URL works once; each call asks for a new one."""
        return Credential.parse(self._fetch_once("POST", "/credentials/reveal", "GET"))

    def rotate(self, overlap_s: int | None = None) -> Credential:
        """Make a second credential; those before stay valid until `overlap_until`.

        That is in `overlap_s` seconds, or else when the service says; with 0 they end at once.
        """
        given = {} if overlap_s is None else {"overlap_s": overlap_s}
        return Credential.parse(self._fetch_once("POST", "/credentials/rotate", "POST", **given))

    def logs(self, *, follow: bool = False, tail_lines: int | None = None) -> Iterator[str]:
        """Yield the end of the engine's log; with `follow`, what is written from then on too."""
        began_at = time.monotonic()
        yield from self._logs(follow=follow, tail_lines=tail_lines)
        while follow and time.monotonic() - began_at >= FOLLOWED_AGAIN_S:
            # The cell ends it after a while: whoever may still follow gets another URL.
            began_at = time.monotonic()
            yield from self._logs(follow=True, tail_lines=0)

    def dump(self, database: str | None = None) -> Iterator[bytes]:
        """Yield a dump in the engine's own form; raise ConnectionFailed where it is not whole."""
        given = {} if database is None else {"database": database}
        yield from self._received(str(self._one_time_url("POST", "/actions/dump", **given)))

    def download(self, backup_id: str) -> Iterator[bytes]:
        """Yield a backup as a tar archive compressed with zstd, as `dump` does."""
        suffix = "/backups/{backup_id}/actions/download"
        yield from self._received(str(self._one_time_url("POST", suffix, backup_id=backup_id)))

    def _received(self, url: str) -> Iterator[bytes]:
        with self._http(url, timeout_s=None) as http, self._answered(http, "GET", url) as response:
            try:
                yield from response.iter_raw()
            except httpx.TransportError as error:
                raise errors.ConnectionFailed(
                    "the cell broke off before the end; what was received is not complete"
                    f" (`menagerie logs {self.instance['name']}` shows the reason)"
                ) from error

    def _logs(self, *, follow: bool, tail_lines: int | None) -> Iterator[str]:
        url = self._one_time_url("GET", "/logs")
        if follow:
            url = url.copy_merge_params({"follow": "true"})
        if tail_lines is not None:
            url = url.copy_merge_params({"tail_lines": str(tail_lines)})
        yield from self._streamed(str(url))

    def _streamed(self, url: str) -> Iterator[str]:
        with self._http(url, timeout_s=None) as http, self._answered(http, "GET", url) as response:
            yield from response.iter_text()

    def _one_time_url(self, method: str, suffix: str, **given: Any) -> httpx.URL:
        """Raises MalformedAnswer where it is none, without a word of it."""
        try:
            return httpx.URL(str(self._call(method, suffix, **given)["url"]))
        except (httpx.InvalidURL, LookupError, TypeError):
            text = f"{self.client.base_url} answered with something that is not a URL"
            raise errors.MalformedAnswer(text) from None

    def _call(self, method: str, suffix: str, **given: Any) -> Any:
        operation = self.client.document.ending(method, "/instances/{instance_id}" + suffix)
        if operation is None:
            raise errors.ConfigurationError(f"{self.client.base_url} offers no instance{suffix}")
        return self.client.send(operation, {**self._arguments, **given}).body

    def _fetch_once(self, method: str, suffix: str, method_on_cell: str, **given: Any) -> Any:
        url = str(self._one_time_url(method, suffix, **given))
        with self._http(url) as http, self._answered(http, method_on_cell, url) as response:
            return answers.parsed(answers.whole(response))

    def _http(self, url: str, timeout_s: float | None = 60.0) -> httpx.Client:
        # No token travels along: the URL is the permission.
        return transport.open_http(
            url, ca_file=self.client.ca_file, ca_pem=self.ca_pem(), timeout_s=timeout_s
        )

    def _answered(self, http: httpx.Client, method: str, url: str) -> "_Stream":
        return _Stream(http, method, url)


class _Stream:
    """One request to a cell, with failures told as everywhere else and the one-time URL unsaid."""

    def __init__(self, http: httpx.Client, method: str, url: str) -> None:
        self._http = http
        self._request = http.build_request(method, url)

    def __enter__(self) -> httpx.Response:
        try:
            self._response = self._http.send(self._request, stream=True)
            if not self._response.is_success:
                self._response = answers.whole(self._response)
        except httpx.TransportError as error:
            raise errors.ConnectionFailed(
                f"cannot reach the cell {self._request.url.host}: {error}"
            ) from error
        if not self._response.is_success:
            raise errors.problem(self._response.status_code, answers.document(self._response))
        return self._response

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._response.close()
