"""Who is calling, and for whom: all that is decided before the first byte of cryptography.

The PROXY header where a balancer sends one, then the ClientHello; from the two come the client's
address, the host, and whether that address is on the host's allow-list.
"""

from dataclasses import dataclass

from cell.gateway import client_hello, proxy_header
from cell.gateway.client_hello import ClientHello
from cell.gateway.protocols.front import Front
from cell.gateway.routes import Network, Route, Routes, plain_address

SIZE_MAX_BYTES = 2 * client_hello.HELLO_MAX_BYTES
ALERT_INTERNAL_ERROR = 80
ALERT_UNRECOGNIZED_NAME = 112
ALERT_NO_APPLICATION_PROTOCOL = 120


def alert(description: int) -> bytes:
    """A fatal alert as it is said before any key is agreed on."""
    return bytes((21, 3, 3, 0, 2, 2, description))


@dataclass(frozen=True, slots=True)
class Admitted:
    route: Route
    hello: bytes


@dataclass(frozen=True, slots=True)
class TurnedAway:
    """`answer` is said first, if there is one; it is meant to be read where `linger`."""

    reason: str
    answer: bytes = b""
    linger: bool = False


class Preface:
    def __init__(
        self, routes: Routes, front: Front, address: str, proxies: tuple[Network, ...]
    ) -> None:
        self._routes = routes
        self._front = front
        self._address = str(plain_address(address))
        self._proxied = bool(proxies) and any(plain_address(address) in each for each in proxies)
        self._received = bytearray()

    def take(self, data: memoryview) -> Admitted | TurnedAway | None:
        """None while more bytes are needed."""
        self._received += data
        try:
            if self._proxied and not self._take_proxy_header():
                return None
            hello = client_hello.parse(self._received)
        except proxy_header.NotProxyError:
            return TurnedAway("no_proxy_header")
        except client_hello.NotTlsError:
            answer = self._front.plaintext_refusal(bytes(self._received))
            return TurnedAway("plaintext", answer or b"", linger=answer is not None)
        if hello is not None:
            return self._decide(hello)
        return TurnedAway("endless") if len(self._received) > SIZE_MAX_BYTES else None

    def _take_proxy_header(self) -> bool:
        header = proxy_header.parse(self._received)
        if header is None:
            return False
        self._address = str(plain_address(header.client or self._address))
        del self._received[: header.size_bytes]
        self._proxied = False
        return True

    def _decide(self, hello: ClientHello) -> Admitted | TurnedAway:
        route = self._routes.find(hello.server_name or "")
        if route is None:
            return TurnedAway("unknown_host", alert(ALERT_UNRECOGNIZED_NAME))
        if not route.admits(self._address):
            return TurnedAway("not_allowed")
        if hello.alpn and not any(name.encode() in hello.alpn for name in self._front.alpn):
            return TurnedAway("no_protocol", alert(ALERT_NO_APPLICATION_PROTOCOL))
        return Admitted(route, bytes(self._received))
