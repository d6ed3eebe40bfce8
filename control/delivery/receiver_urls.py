"""Where a receiver is: a URL, taken apart by the same rules when it is registered and used.

Parsers of URLs disagree about what is odd, so nothing odd is a place: no user, no fragment, nothing
that is not visible ASCII, no backslash, and no number that stands for an address.
"""

import re
import socket
from dataclasses import dataclass
from typing import Final

from gateway.public_addresses import is_allowed

LENGTH_MAX: Final = 2_000
HERE: Final = frozenset({"localhost", "127.0.0.1", "::1"})
"""What development may use, where the setting allows it."""
_PORTS: Final = {"https": 443, "http": 80}
_PORT_MAX: Final = 65_535
_URL: Final = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://"
    r"(?P<user>[^/?#]*@)?"
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^/?#:@\[\]]+)"
    r"(?P<port>:[0-9]*)?"
    r"(?P<target>[/?][^#]*)?"
    r"(?P<fragment>#.*)?"
)
_LABEL: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9])?")
_NAME_MAX: Final = 253
# The last label of a name is never one of these: they are how addresses are written, in all bases.
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")


class UrlRefused(ValueError):  # noqa: N818 -- a fact about a URL
    """Nothing is sent there; the message says what the URL must be."""


@dataclass(frozen=True)
class ReceiverUrl:
    """`host` is a name, or an address without brackets; `target` the path with its query."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def authority(self) -> str:
        """As the Host header has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


@dataclass(frozen=True)
class Reach:
    """What the settings let receivers be, beyond public addresses over HTTPS."""

    here: bool = False
    """This machine itself, without TLS too: for development."""
    excepted: tuple[str, ...] = ()
    """Networks that are allowed although they are not public."""

    def allows(self, host: str, address: str) -> bool:
        if self.here and host in HERE:
            return is_allowed(address, (*self.excepted, "127.0.0.0/8", "::1/128"))
        return is_allowed(address, self.excepted)


def receiver_url(url: str, reach: Reach) -> ReceiverUrl:
    """Raises UrlRefused for a URL to which nothing may be sent, whatever its name leads to."""
    if len(url) > LENGTH_MAX:
        raise UrlRefused(f"must have at most {LENGTH_MAX:,} characters")
    if any(not "!" <= each <= "~" for each in url) or "\\" in url:
        raise UrlRefused(
            "must be of visible ASCII characters, without spaces and backslashes; write other"
            " characters of a host in Punycode (xn--…), and those of a path percent-encoded"
        )
    parts = _URL.fullmatch(url)
    if parts is None:
        raise UrlRefused("must be a URL such as https://example.com/webhooks")
    if parts["user"]:
        raise UrlRefused("must not have a user or a password; receivers verify the signature")
    if parts["fragment"]:
        raise UrlRefused("must not have a fragment (#…), which is never sent")
    host = _host(parts["host"].lower(), reach)
    scheme = parts["scheme"].lower()
    if scheme != "https" and not (scheme == "http" and reach.here and host in HERE):
        also = ", or http://localhost" if reach.here else ""
        raise UrlRefused(f"must begin with https://{also}")
    target = parts["target"] or "/"
    if target.startswith("?"):
        target = f"/{target}"
    return ReceiverUrl(scheme, host, _port(parts["port"], scheme), target)


def _port(text: str | None, scheme: str) -> int:
    if text is None:
        return _PORTS[scheme]
    port = int(text[1:]) if 1 < len(text) <= 6 else 0  # noqa: PLR2004 -- a colon and five digits
    if not 1 <= port <= _PORT_MAX:
        raise UrlRefused(f"must have a port from 1 to {_PORT_MAX:,}, or none for 443")
    return port


def _host(text: str, reach: Reach) -> str:
    in_brackets = text.startswith("[")
    host = text[1:-1] if in_brackets else text.removesuffix(".")
    if in_brackets and not _is_address(host, socket.AF_INET6):
        # Other parsers fail of it, such as the one that takes the host for the audit log.
        raise UrlRefused("must have nothing but an IPv6 address in brackets")
    if in_brackets or _is_address(host, socket.AF_INET):
        if reach.allows(host, host):
            return host
        raise UrlRefused("must have a public address")
    labels = host.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        raise UrlRefused("must have a host name, or an address in its usual form")
    if len(host) > _NAME_MAX or not all(map(_LABEL.fullmatch, labels)):
        raise UrlRefused("must have a host name such as example.com")
    if host == "localhost" and not reach.here:
        raise UrlRefused("must not be on this machine")
    return host


def _is_address(host: str, family: int) -> bool:
    try:
        socket.inet_pton(family, host)
    except (OSError, UnicodeError):
        return False
    return True
