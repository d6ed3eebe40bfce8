"""What stands in the place of an engine's socket is not followed, and is told nothing."""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cell.console.runs import Run
from cell.console.service import has_console
from cell.console.table import RunLimits
from cell.console.target import Target
from cell.engines.driver import EngineError
from contract_tests.engines.conftest import Subject
from gateway import opening, sockets

# Asks for the password as it is, of each that would wait to be asked.
GREETINGS = {
    "mysql": b"\x5b\0\0\0\x0a8.0.0\0\1\0\0\0abcdefgh\0\xff\xff\x21\x02\0\xff\xff\x15"
    + bytes(10)
    + b"ijklmnopqrst\0mysql_clear_password\0",
    "postgres": b"R\0\0\0\x08\0\0\0\x03",
}


class Listener:
    """A stranger's: notes who comes and what is said."""

    def __init__(self, path: Path, protocol: str) -> None:
        self.path, self.heard, self.visits = path, b"", 0
        self._greeting = GREETINGS.get(protocol, b"")
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        path.chmod(0o777)
        self._socket.listen(16)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self._socket.accept()
                self.visits += 1
                with peer, contextlib.suppress(OSError):
                    peer.settimeout(1)
                    peer.sendall(self._greeting)
                    while said := peer.recv(4096):
                        self.heard += said

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture
def elsewhere(subject: Subject, tmp_path: Path) -> Iterator[Listener]:
    """Where a link leads to that the engine puts in its socket's place."""
    listener = Listener(tmp_path / "foreign.sock", subject.driver.protocol)
    place = subject.driver.socket(subject.site).outside
    place.symlink_to(listener.path)
    if (owner := subject.host.owner(subject.site)) is not None:
        os.chown(place, owner, owner, follow_symlinks=False)
    yield listener
    listener.close()


@pytest.fixture
def instead(subject: Subject) -> Iterator[Listener]:
    """In the socket's place itself, and of another user than the engine."""
    if subject.host.owner(subject.site) in {None, os.geteuid()}:
        pytest.skip("the engine runs as the user of the tests")
    listener = Listener(subject.driver.socket(subject.site).outside, subject.driver.protocol)
    yield listener
    listener.close()


def knock(subject: Subject) -> None:
    """With a credential, by every way there is."""
    path = str(subject.driver.socket(subject.site))
    assert not subject.works(subject.login)
    with contextlib.suppress(EngineError):
        subject.accept(subject.login)
    if has_console(subject.driver.engine, subject.driver.protocol):
        login = subject.login
        place = Target(subject.driver.protocol, path, login.username, login.password)
        answer = subject.run(Run(place, RunLimits(seconds=5)).answer("SELECT 1"))
        assert "error" in answer
    with pytest.raises(sockets.NotTheEngineError):
        opening.connect(path)


def test_a_link_in_the_sockets_place_is_not_followed(subject: Subject, elsewhere: Listener) -> None:
    knock(subject)
    assert elsewhere.visits == 0


def test_who_is_not_the_engine_is_told_nothing(subject: Subject, instead: Listener) -> None:
    knock(subject)
    assert subject.login.password.encode() not in instead.heard
    if subject.driver.protocol != "postgres":
        # Whose client speaks first, names no secret, and answers no question but one.
        assert instead.heard == b""


def test_a_link_in_the_folders_place_is_not_followed(subject: Subject, tmp_path: Path) -> None:
    run = subject.site.run.outside
    run.rename(tmp_path / "run")
    run.symlink_to(tmp_path / "run")
    listener = Listener(tmp_path / "run" / subject.driver.socket(subject.site).name, "resp")
    try:
        with pytest.raises(OSError, match="Not a directory"):
            sockets.connect(str(subject.driver.socket(subject.site)))
    finally:
        listener.close()
    assert listener.visits == 0
