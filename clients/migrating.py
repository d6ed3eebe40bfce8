"""Migrations from a client's side: the source goes straight to the cell, never to the API."""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Final

import httpx

from clients import answers, errors, transport
from clients.endpoint import Endpoint

PART_BYTES_MAX: Final = 8 << 20
PART_BYTES_MIN: Final = 256 << 10
"""A part must arrive within half a minute: on a slow line it is made smaller, down to this."""
PART_TIMEOUT_S: Final = 60.0
TRIES: Final = 8
REST_S: Final = 0.5
REST_MAX_S: Final = 10.0
_FILE: Final = "application/octet-stream"
_PASSING: Final = frozenset({404, 408, 429, 502, 503, 504})
"""404: the cell is about to hear of the migration."""
_ARRIVED: Final = {"received_at": "before"}

OnSent = Callable[[int, int], None]
"""Told how many bytes have arrived, and of how many."""


class TargetEndpoint(Endpoint):
    """An instance that data is migrated into."""

    def start(self, **wanted: Any) -> dict[str, Any]:
        """Begin a migration; what comes back has the `source_url`, once."""
        made: dict[str, Any] = self._call("POST", "/migrations", **wanted)
        return made

    def migration(self, migration_id: str) -> dict[str, Any]:
        path = "/migrations/{migration_id}"
        found: dict[str, Any] = self._call("GET", path, migration_id=migration_id)
        return found

    def cancel(self, migration_id: str) -> dict[str, Any]:
        path = "/migrations/{migration_id}/actions/cancel"
        found: dict[str, Any] = self._call("POST", path, migration_id=migration_id)
        return found

    def source_url(self, migration_id: str) -> str:
        """Answer another URL to send the source to."""
        path = "/migrations/{migration_id}/actions/source-url"
        return str(self._call("POST", path, migration_id=migration_id)["url"])

    def send_connection(self, migration_id: str, url: str, connection: Mapping[str, Any]) -> None:
        """Tell the cell how to connect to the source: `uri`, and `ca_pem` and `tls` if needed."""
        _Sender(self, migration_id, url).send({"json": dict(connection)})

    def send_file(
        self, migration_id: str, url: str | None, file: Path, on_sent: OnSent | None = None
    ) -> None:
        """Send the file; from where it was broken off, if a part of it has arrived already."""
        sender = _Sender(self, migration_id, url or self.source_url(migration_id))
        with file.open("rb") as content:
            size = os.fstat(content.fileno()).st_size
            if size == 0:
                raise errors.ConfigurationError(f"{file} is empty; choose a file with data")
            sender.send_file(content, size, on_sent or (lambda _sent, _size: None))


class _Sender:
    """Sends to a one-time URL, asks for another one when it has expired, and goes on."""

    def __init__(self, target: TargetEndpoint, migration_id: str, url: str) -> None:
        self._target = target
        self._migration_id = migration_id
        self._url = _checked(url)
        self._part_bytes = PART_BYTES_MAX
        self._broken = 0

    def send_file(self, content: IO[bytes], size: int, on_sent: OnSent) -> None:
        told, at = self.send(), 0
        while told["received_at"] is None:
            self._part_bytes = min(self._part_bytes, told["part_bytes_max"])
            # What has arrived of another file is begun anew.
            before, at = at, told["received_bytes"] if told["total_bytes"] == size else 0
            if at > before:
                self._broken = 0
            on_sent(at, size)
            content.seek(at)
            part = content.read(self._part_bytes)
            if not part:
                raise errors.ConfigurationError("the file became shorter while it was sent")
            told = self._sent(part, at, size)
        on_sent(size, size)

    def _sent(self, part: bytes, at: int, size: int) -> Any:
        whole = at == 0 and len(part) == size
        ranged = {"Content-Range": f"bytes {at}-{at + len(part) - 1}/{size}"}
        headers = {"Content-Type": _FILE, **({} if whole else ranged)}
        try:
            return self.send({"content": part, "headers": headers})
        except errors.Conflict as refused:
            if refused.code != "wrong_offset":
                raise
            return self.send()

    def send(self, request: Mapping[str, Any] | None = None) -> Any:
        """Send with PUT, or ask how much has arrived; again where that may help.

        Of a part that could not be sent, how much has arrived is answered: it goes on from there.
        """
        rest_s = REST_S
        for tries_left in reversed(range(TRIES)):
            try:
                return self._exchange("GET" if request is None else "PUT", request or {})
            except errors.Problem as problem:
                if problem.status == httpx.codes.GONE:
                    if not self._renewed():
                        return _ARRIVED
                elif problem.status not in _PASSING or not tries_left:
                    raise
                broken = problem.status == httpx.codes.REQUEST_TIMEOUT
            except errors.ConnectionFailed:
                if not tries_left:
                    raise
                broken = True
            if broken and (told := self._after_break(request)) is not None:
                return told
            time.sleep(rest_s)
            rest_s = min(2 * rest_s, REST_MAX_S)
        raise AssertionError("the last try raises")

    def _after_break(self, request: Mapping[str, Any] | None) -> Any:
        """How much has arrived, if what was broken off is to go on from there; None: send again."""
        self._broken += 1
        if self._broken >= TRIES:
            raise errors.ConnectionFailed("the connection to the cell broke again and again")
        if request is None:
            return None
        self._part_bytes = max(self._part_bytes // 2, PART_BYTES_MIN)
        # It may have arrived, and only the answer been lost.
        told = self.send()
        return told if "content" in request or told["received_at"] is not None else None

    def _renewed(self) -> bool:
        """Whether the source is still waited for; then there is another URL."""
        try:
            self._url = _checked(self._target.source_url(self._migration_id))
        except errors.Conflict:
            if self._target.migration(self._migration_id)["source_received_at"] is None:
                raise
            return False
        return True

    def _exchange(self, method: str, request: Mapping[str, Any]) -> Any:
        target = self._target
        opened = transport.open_http(
            self._url,
            ca_file=target.client.ca_file,
            ca_pem=target.ca_pem(),
            timeout_s=PART_TIMEOUT_S,
        )
        with opened as http:
            asked = http.build_request(method, self._url, **request)
            try:
                answer = answers.whole(http.send(asked, stream=True))
            except httpx.TransportError as error:
                raise errors.ConnectionFailed(
                    f"cannot reach the cell {asked.url.host}: {error}"
                ) from error
        if not answer.is_success:
            raise errors.problem(answer.status_code, answers.document(answer))
        return answers.parsed(answer)


def _checked(url: str) -> str:
    """Raises MalformedAnswer, without a word of the URL, where a secret must not be sent."""
    try:
        is_https = httpx.URL(url).scheme == "https"
    except httpx.InvalidURL:
        is_https = False
    if not is_https:
        raise errors.MalformedAnswer("the source URL that the service answered is not https")
    return url
