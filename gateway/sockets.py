"""Connecting to an engine on its unix socket, and to nothing that it put in the socket's place.

The folder of a socket belongs to the engine's user, who may put there what it likes: a link to a
socket of the host, or one of its own. Whatever stands there is held first, without following it,
and must be a socket; what is connected to is that. Who answers must be of the user that the folder
belongs to, before anything is said: only the cell can give a folder to somebody.
"""

import contextlib
import errno
import http.client
import os
import socket
import stat
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

_CREDENTIALS = struct.Struct("3i")


class NotTheEngineError(ConnectionRefusedError):
    """Something else than the engine is where its socket should be."""


class HTTPConnection(http.client.HTTPConnection):
    """To an engine that speaks HTTP."""

    def __init__(self, path: str | Path, timeout_s: float | None = None) -> None:
        super().__init__("engine", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = connect(self._path, self.timeout)


def connect(path: str | Path, timeout_s: float | None = None) -> socket.socket:
    """A connection to the engine; with a timeout of 0 it does not block. Raises OSError."""
    with _held(Path(path)) as (held, owner):
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            peer.settimeout(timeout_s)
            peer.connect(held)
            _check(peer, owner)
        except BaseException:
            peer.close()
            raise
    return peer


@contextlib.contextmanager
def folder_of(path: str | Path) -> Iterator[str]:
    """A folder of ours in which the socket is, by its name: for a library that connects itself.

    What it connected to it must tell, for `check`; so it must not be one that says a secret first.
    """
    path = Path(path)
    with _held(path) as (held, _), tempfile.TemporaryDirectory(prefix="menagerie-") as folder:
        Path(folder, path.name).symlink_to(held)
        yield folder


def check(descriptor: int, path: str | Path) -> None:
    """Raises NotTheEngineError unless the peer is of the user whose folder the socket is in."""
    with _held(Path(path)) as (_, owner), socket.socket(fileno=os.dup(descriptor)) as peer:
        _check(peer, owner)


@contextlib.contextmanager
def _held(path: Path) -> Iterator[tuple[str, int]]:
    """A path to the very socket that is there now, and the owner of its folder."""
    with contextlib.ExitStack() as stack:
        flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
        folder = os.open(path.parent, flags | os.O_DIRECTORY)
        stack.callback(os.close, folder)
        held = os.open(path.name, flags, dir_fd=folder)
        stack.callback(os.close, held)
        if not stat.S_ISSOCK(os.fstat(held).st_mode):
            raise NotTheEngineError(errno.ECONNREFUSED, "is not a socket", path.name)
        yield f"/proc/self/fd/{held}", os.fstat(folder).st_uid


def _check(peer: socket.socket, owner: int) -> None:
    told = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(told)
    if uid != owner:
        raise NotTheEngineError(
            errno.ECONNREFUSED, f"uid {uid} is listening instead of uid {owner}"
        )
