"""Whose process listens at an address of this machine, as Linux tells everybody."""

import contextlib
import os
import socket
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from clients.errors import ConfigurationError

NET: Final = Path("/proc/net")
# Those that listen come first. To look for the next one among the connections takes milliseconds.
_LISTENS: Final = b"0A"
_READ_BYTES: Final = 256
_PLACES: Final = {
    "127.0.0.1": ("127.0.0.1",),
    "::1": ("::1",),
    "localhost": ("127.0.0.1", "::1"),
}
_ALL_UIDS: Final = 2**32 - 1


@dataclass(frozen=True)
class _Listener:
    address: str
    uid: int


def refuse_strangers(base_url: str, uids: Collection[int]) -> None:
    """Raise ConfigurationError where a user with none of these uids answers at a local HTTP URL.

    No certificate tells who answers there, and any user may listen while the service does not.
    """
    found = urlsplit(base_url)
    if found.scheme != "http" or not _knows_uids():
        return
    places = _PLACES.get(found.hostname or "", ())
    listening = list(_listeners(found.port or 80)) if places else []
    for address in places:
        for uid in _uids(address, listening):
            if uid not in uids:
                raise ConfigurationError(
                    f"another user of this machine (uid {uid}) is listening at {base_url}, and not"
                    " your service; nothing was sent. Check with `menagerie doctor`"
                )


def _uids(address: str, listeners: Collection[_Listener]) -> set[int]:
    """Of those that get a connection to it: the ones bound to all addresses come second."""
    order = (address, "0.0.0.0", "::") if "." in address else (address, "::")  # noqa: S104
    found = ({each.uid for each in listeners if each.address == place} for place in order)
    return next(filter(None, found), set())


def _listeners(port: int) -> Iterator[_Listener]:
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        with contextlib.suppress(OSError), (NET / name).open("rb", _READ_BYTES) as lines:
            next(lines, None)
            for line in lines:
                fields = line.split()
                if fields[3] != _LISTENS:
                    break
                place, number = fields[1].decode().split(":")
                if int(number, 16) == port:
                    yield _Listener(_address(family, place), int(fields[7]))


def _address(family: socket.AddressFamily, place: str) -> str:
    """From words of four bytes, each as this machine keeps numbers."""
    words = [place[at : at + 8] for at in range(0, len(place), 8)]
    packed = b"".join(socket.htonl(int(word, 16)).to_bytes(4, "big") for word in words)
    return socket.inet_ntop(family, packed).removeprefix("::ffff:")


def _knows_uids() -> bool:
    """Not in a user namespace, where those of others all look alike."""
    try:
        first, _, count = Path("/proc/self/uid_map").read_text().split()[:3]
    except (OSError, ValueError):
        return False
    return first == "0" and int(count) == _ALL_UIDS and hasattr(os, "geteuid")
