"""Who is calling, and for whom: all that is decided before the first byte of cryptography.

The PROXY header where a balancer sends one, what the protocol says before TLS, then the
ClientHello; from them come the client's address, the host, and whether that address is on the
host's allow-list.
"""

from dataclasses import dataclass

from gateway import client_hello, proxy_header
from gateway.addresses import Network, plain_address
from gateway.client_hello import ClientHello
from gateway.listening import Entry
from gateway.protocols.interface import TLS, Dialogue, PlainReply, Rejected, SideRequest
from gateway.routes import Route, Routes

SIZE_MAX_BYTES = 2 * client_hello.HELLO_MAX_BYTES
# Of TLS-ALPN-01; it is asked on the port of HTTPS, whatever the instance speaks.
ACME_TLS = b"acme-tls/1"
ALERT_INTERNAL_ERROR = 80
ALERT_UNRECOGNIZED_NAME = 112
ALERT_NO_APPLICATION_PROTOCOL = 120


def alert(description: int) -> bytes:
    """A fatal alert as it is said before any key is agreed on."""
    return bytes((21, 3, 3, 0, 2, 2, description))


@dataclass(frozen=True, slots=True)
class Admitted:
    """`route` is None where the client gave no name and its protocol will say where it leads."""

    route: Route | None
    alpn: tuple[str, ...]
    hello: bytes
    offers_tls_1_3: bool


@dataclass(frozen=True, slots=True)
class Challenged:
    """A certificate authority that asks whether the host is ours (RFC 8737), and nothing else.

    It comes from anywhere, so no allow-list is asked; all it gets is a handshake.
    """

    host: str
    hello: bytes


Verdict = Admitted | Challenged | PlainReply | Rejected | SideRequest | None


class Preface:
    """While it `is_proxied` its `address` is still the balancer's."""

    def __init__(
        self,
        routes: Routes,
        entry: Entry,
        dialogue: Dialogue,
        address: str,
        proxies: tuple[Network, ...],
    ) -> None:
        self._routes = routes
        self._entry = entry
        self._dialogue = dialogue
        self.address = str(plain_address(address))
        self.is_proxied = bool(proxies) and any(plain_address(address) in each for each in proxies)
        self._greeting = dialogue.greeting
        self._is_tls = False
        self._received = bytearray()

    def take(self, data: bytes | memoryview) -> Verdict:
        """None while more bytes are needed; after a Reply it is to be asked again."""
        self._received += data
        try:
            if self.is_proxied and not self._take_proxy_header():
                return None
            verdict = self._take_first()
        except proxy_header.NotProxyError:
            return Rejected("no_proxy_header")
        except client_hello.NotTlsError:
            return Rejected("plaintext")
        if verdict is None and len(self._received) > SIZE_MAX_BYTES:
            return Rejected("endless")
        return verdict

    def _take_proxy_header(self) -> bool:
        header = proxy_header.parse(self._received)
        if header is None:
            return False
        self.address = str(plain_address(header.client or self.address))
        del self._received[: header.size_bytes]
        self.is_proxied = False
        return True

    def _take_first(self) -> Verdict:
        if self._greeting:
            greeting, self._greeting = self._greeting, b""
            return PlainReply(greeting)
        if not self._is_tls:
            said = self._dialogue.before_tls(self._received)
            if said != TLS:
                return said
            self._is_tls = True
        hello = client_hello.parse(self._received)
        return None if hello is None else self._decide(hello)

    def _decide(self, hello: ClientHello) -> Admitted | Challenged | Rejected:
        route = None
        if hello.alpn == (ACME_TLS,) and hello.server_name and "https" in self._entry.protocols:
            return Challenged(hello.server_name, bytes(self._received))
        if hello.server_name is not None or not self._dialogue.names_instances:
            host = hello.server_name or ""
            route = self._routes.find(host, self._entry.protocols)
            if not (route and route.admits(self.address)) and self._routes.refresh():
                # It was made, or its allow-list changed, a moment ago.
                route = self._routes.find(host, self._entry.protocols)
            if route is None:
                return Rejected("unknown_host", alert(ALERT_UNRECOGNIZED_NAME))
            if not route.admits(self.address):
                return Rejected("not_allowed")
        alpn = self._entry.protocol.alpn if route is None or route.alpn is None else route.alpn
        agreed = any(name.encode() in hello.alpn for name in alpn)
        if not agreed and alpn and (hello.alpn or self._dialogue.needs_alpn):
            return Rejected("no_protocol", alert(ALERT_NO_APPLICATION_PROTOCOL))
        return Admitted(route, alpn, bytes(self._received), hello.offers_tls_1_3)
