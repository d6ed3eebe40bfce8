"""The head of an answer ends as soon as a single read may take, however slowly its bytes come.

The HTTP client times each read by itself: a byte now and then would hold its reader for ever.
"""

import re
import time
from collections.abc import Iterable
from typing import Any, Final

import httpcore
import httpx

_END: Final = re.compile(rb"\n\r?\n")
_INFORMATIONAL: Final = re.compile(rb"\s*HTTP/1\.\d 1")


def hold(transport: httpx.HTTPTransport) -> None:
    """From now on, for the connections of this transport (HTTP/1.1)."""
    pool: Any = transport._pool  # noqa: SLF001 - httpx takes no other backend
    pool._network_backend = _Backend(httpcore.SyncBackend())  # noqa: SLF001 - see above


class _Backend(httpcore.NetworkBackend):
    def __init__(self, inner: httpcore.NetworkBackend) -> None:
        self._inner = inner

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        return _Stream(self._inner.connect_tcp(host, port, timeout, local_address, socket_options))

    def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        return _Stream(self._inner.connect_unix_socket(path, timeout, socket_options))

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(seconds)


class _Stream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner
        # When the last of a request was written; None once the head of its answer is there.
        self._asked_at: float | None = None
        self._head = b""

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, timeout)
        self._asked_at, self._head = time.monotonic(), b""

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._asked_at is None or timeout is None:
            return self._inner.read(max_bytes, timeout)
        left_s = self._asked_at + timeout - time.monotonic()
        if left_s <= 0:
            raise httpcore.ReadTimeout("the head of the answer did not end in time")
        part = self._inner.read(max_bytes, left_s)
        self._note(part)
        return part

    def _note(self, part: bytes) -> None:
        """How long a head may be is the client's to bound."""
        self._head += part
        while (end := _END.search(self._head)) is not None:
            if _INFORMATIONAL.match(self._head) is None:
                self._asked_at, self._head = None, b""
                return
            # Another head follows, within the same time.
            self._head = self._head[end.end() :]

    def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)

    def close(self) -> None:
        self._inner.close()
