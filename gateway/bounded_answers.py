"""HTTP clients whose answers are bounded: never unpacked, so many bytes, for so long.

A few bytes, compressed several times over, fill any memory, and one byte now and then holds its
reader for ever. Whoever answers may have been taken over, so no client goes without these bounds.
"""

import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import httpx

from gateway import heads_in_time

BYTES_MAX: Final = 16 << 20


class AnswerRefused(httpx.TransportError):
    """The answer is compressed, or larger than any that is expected."""


def client(transport: httpx.BaseTransport | None = None, **options: Any) -> httpx.Client:
    """It trusts no proxy of the environment."""
    inner = transport or httpx.HTTPTransport()
    if isinstance(inner, httpx.HTTPTransport):
        heads_in_time.hold(inner)
    return httpx.Client(transport=_Transport(inner), **options)


def async_client(transport: httpx.AsyncBaseTransport, **options: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=_AsyncTransport(transport), **options)


class Bound:
    """Of one answer's body: raises AnswerRefused, or httpx.ReadTimeout after `within_s`."""

    def __init__(self, within_s: float | None = None, bytes_max: int = BYTES_MAX) -> None:
        self._left = self._most = bytes_max
        self._end = None if within_s is None else time.monotonic() + within_s

    def note(self, part: bytes) -> None:
        self._left -= len(part)
        if self._left < 0:
            raise AnswerRefused(f"the answer is larger than {self._most >> 20} MiB")
        if self._end is not None and time.monotonic() > self._end:
            raise httpx.ReadTimeout("the answer did not end in time")


def refuse_compressed(encoding: str | None) -> None:
    """Before the body is read; by its `Content-Encoding`."""
    if encoding is not None and encoding.strip().lower() not in {"", "identity"}:
        raise AnswerRefused(f"the answer is compressed ({encoding[:40]}), which was not asked for")


def _begun(request: httpx.Request, response: httpx.Response) -> Bound:
    refuse_compressed(response.headers.get("Content-Encoding"))
    # As long again as a single read may take: what sends a byte now and then never times out.
    return Bound(request.extensions.get("timeout", {}).get("read"))


class _Transport(httpx.BaseTransport):
    def __init__(self, inner: httpx.BaseTransport) -> None:
        self._inner = inner

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.headers["Accept-Encoding"] = "identity"
        response = self._inner.handle_request(request)
        assert isinstance(response.stream, httpx.SyncByteStream)
        try:
            response.stream = _Stream(response.stream, _begun(request, response))
        except AnswerRefused:
            response.close()
            raise
        return response

    def close(self) -> None:
        self._inner.close()


class _Stream(httpx.SyncByteStream):
    def __init__(self, inner: httpx.SyncByteStream, bound: Bound) -> None:
        self._inner, self._bound = inner, bound

    def __iter__(self) -> Iterator[bytes]:
        for part in self._inner:
            self._bound.note(part)
            yield part

    def close(self) -> None:
        self._inner.close()


class _AsyncTransport(httpx.AsyncBaseTransport):
    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        request.headers["Accept-Encoding"] = "identity"
        response = await self._inner.handle_async_request(request)
        assert isinstance(response.stream, httpx.AsyncByteStream)
        try:
            response.stream = _AsyncStream(response.stream, _begun(request, response))
        except AnswerRefused:
            await response.aclose()
            raise
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _AsyncStream(httpx.AsyncByteStream):
    def __init__(self, inner: httpx.AsyncByteStream, bound: Bound) -> None:
        self._inner, self._bound = inner, bound

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._inner:
            self._bound.note(part)
            yield part

    async def aclose(self) -> None:
        await self._inner.aclose()
