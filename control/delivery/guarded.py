"""Requests to an address that a tenant names: to no address within, for so long, and so much read.

The name is looked up here, each of its addresses is checked, and the connection goes to one that
was checked, with TLS verified for the name. No redirect is followed, no proxy of the environment
asked, nothing unpacked.
"""

import asyncio
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpcore

from control.delivery.dns_names import Names, NameUnknown
from control.delivery.http2_streams import ResettingPool
from control.delivery.network_streams import NetworkBackend
from control.delivery.receiver_urls import Reach, ReceiverUrl
from gateway.peer_texts import printable

WITHIN_S: Final = 10.0
"""In all: from the look-up to the end of the answer."""
READ_BYTES_MAX: Final = 64 << 10
SHOWN_BYTES: Final = 1_024
CONNECTIONS_MAX: Final = 400
IDLE_CONNECTIONS_MAX: Final = 100
IDLE_S: Final = 30.0
_TRIED_MAX: Final = 3
"""Addresses of one name that are tried in turn."""
_TEXT_MAX: Final = 200


class NotReachable(httpcore.ConnectError):
    """Of a host that leads nowhere, or within; the message is for its owner."""


@dataclass(frozen=True)
class PostAnswer:
    """Either a status, or an error; `head` is how the body begins."""

    duration_ms: int
    status: int | None = None
    error: str | None = None
    head: str = ""
    retry_after: str | None = None

    @property
    def is_success(self) -> bool:
        return self.status is not None and 200 <= self.status < 300  # noqa: PLR2004 -- 2xx


class NotFetched(Exception):  # noqa: N818 -- a state of whoever was asked
    """No whole answer came; the message is for whoever named the address."""


@dataclass(frozen=True)
class Fetched:
    """A whole answer, of any status."""

    status: int
    body: bytes


class GuardedClient:
    """Connections of one event loop, reused. `close` it there."""

    def __init__(
        self,
        reach: Reach,
        names: Names,
        *,
        within_s: float = WITHIN_S,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._within_s = within_s
        self._pool = ResettingPool(
            ssl_context=tls or ssl.create_default_context(),
            http2=True,
            max_connections=CONNECTIONS_MAX,
            max_keepalive_connections=IDLE_CONNECTIONS_MAX,
            keepalive_expiry=IDLE_S,
            network_backend=_GuardedNetwork(reach, names),
        )

    async def close(self) -> None:
        await self._pool.aclose()

    async def post(
        self, place: ReceiverUrl, content: bytes, headers: Mapping[str, str]
    ) -> PostAnswer:
        return await self.send("POST", place, content, headers)

    async def send(
        self, method: str, place: ReceiverUrl, content: bytes, headers: Mapping[str, str]
    ) -> PostAnswer:
        """What came back, or why nothing did; it raises for no fault of the receiver."""
        begun = time.monotonic()
        try:
            status, answered, head = await self._in_time(
                method, place, content, headers, READ_BYTES_MAX
            )
        except NotFetched as fault:
            error = str(fault)
        else:
            shown = printable(head[:SHOWN_BYTES].decode(errors="replace"), SHOWN_BYTES)
            return PostAnswer(_since(begun), status, None, shown, answered)
        return PostAnswer(_since(begun), error=error)

    async def fetch(
        self,
        method: str,
        place: ReceiverUrl,
        content: bytes,
        headers: Mapping[str, str],
        *,
        bytes_max: int,
    ) -> Fetched:
        """The whole answer. Raises NotFetched where there is none, or it is larger than that."""
        given = {"Accept-Encoding": "identity", **headers}
        status, _, body = await self._in_time(method, place, content, given, bytes_max)
        if len(body) > bytes_max:
            raise NotFetched(f"the answer is larger than {bytes_max >> 10} KiB")
        return Fetched(status, body)

    async def _in_time(
        self,
        method: str,
        place: ReceiverUrl,
        content: bytes,
        headers: Mapping[str, str],
        bytes_max: int,
    ) -> tuple[int, str | None, bytes]:
        try:
            async with asyncio.timeout(self._within_s):
                return await self._exchange(method, place, content, headers, bytes_max)
        except (TimeoutError, httpcore.TimeoutException):
            raise NotFetched(f"no complete answer within {self._within_s:g} seconds") from None
        except Exception as fault:
            # A receiver may provoke any in the libraries.
            raise NotFetched(_in_words(fault)) from fault

    async def _exchange(
        self,
        method: str,
        place: ReceiverUrl,
        content: bytes,
        headers: Mapping[str, str],
        bytes_max: int,
    ) -> tuple[int, str | None, bytes]:
        sent = {"Host": place.authority, "Content-Length": str(len(content)), **headers}
        url = httpcore.URL(
            scheme=place.scheme, host=place.host, port=place.port, target=place.target
        )
        read = bytearray()
        async with self._pool.stream(method, url, headers=_raw(sent), content=content) as response:
            async for part in response.aiter_stream():
                read += part
                # The rest is of no use; a connection with an unread answer is closed.
                if len(read) > bytes_max:
                    break
            return response.status, _header(response.headers, b"retry-after"), bytes(read)


class _GuardedNetwork(httpcore.AsyncNetworkBackend):
    def __init__(self, reach: Reach, names: Names) -> None:
        self._reach, self._names = reach, names
        self._inner = NetworkBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 -- httpcore's signature
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        addresses = (await self._checked(host))[:_TRIED_MAX]
        for address in addresses[:-1]:
            try:
                return await self._inner.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except httpcore.ConnectError:
                continue
        return await self._inner.connect_tcp(
            addresses[-1], port, timeout, local_address, socket_options
        )

    async def _checked(self, host: str) -> list[str]:
        """Every address of the host: one that is denied spoils all."""
        try:
            addresses = [host] if _is_address(host) else await self._names.addresses(host)
        except NameUnknown as unknown:
            raise NotReachable(str(unknown)) from unknown
        # Owners are shown no addresses, which would tell them of networks that they do not see.
        if not all(self._reach.allows(host, each) for each in addresses):
            raise NotReachable("the host leads to an address that is not public")
        return addresses

    async def connect_unix_socket(self, *_given: Any, **_named: Any) -> httpcore.AsyncNetworkStream:
        raise NotReachable("receivers are no sockets of this machine")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def _is_address(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdigit()


def _raw(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]


def _header(headers: Iterable[tuple[bytes, bytes]], wanted: bytes) -> str | None:
    found = next((value for name, value in headers if name.lower() == wanted), None)
    return None if found is None else found[:_TEXT_MAX].decode(errors="replace")


def _since(begun: float) -> int:
    return round((time.monotonic() - begun) * 1_000)


def _in_words(fault: Exception) -> str:
    """For the owner of the receiver; our own sentences as they are."""
    if isinstance(fault, NotReachable):
        return str(fault)
    causes = list(_causes(fault))
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"the certificate is not valid: {printable(cause.verify_message, _TEXT_MAX)}"
    told = (
        words for kind, words in _WORDS.items() if any(isinstance(each, kind) for each in causes)
    )
    return next(told, "the connection ended before the answer")


def _causes(fault: BaseException | None) -> Iterator[BaseException]:
    while fault is not None:
        yield fault
        fault = fault.__cause__ or fault.__context__


_WORDS: Final[dict[type[BaseException], str]] = {
    ssl.SSLError: "TLS could not be agreed on",
    ConnectionRefusedError: "the connection was refused",
    httpcore.ConnectError: "no connection could be made",
    httpcore.ProtocolError: "what came back is not HTTP, or ended early",
}
"""By what is found first, in this order, among the causes."""
