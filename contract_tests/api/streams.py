"""A house over a real server, and a client of its streams."""

import contextlib
import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from contract_tests.api.harness import House
from contract_tests.api.rows import NEVER
from contract_tests.specserver.echo_server import Patient, serving
from storage.events import events

Address = tuple[str, int]


@contextmanager
def served(house: House) -> Iterator[Address]:
    with serving("uvloop", Patient, house.app) as address:
        yield address


class Stream:
    """Of server-sent events; `last` is what a client would send to go on."""

    def __init__(
        self,
        address: Address,
        path: str,
        token: str,
        last: str | None = None,
        method: str = "GET",
        receives: int | None = None,
    ) -> None:
        """`receives`: so much at most is kept of what nobody reads here."""
        self._connection = http.client.HTTPConnection(*address, timeout=60)
        self.seen: dict[str, Any] = {}
        if receives is not None:
            self._connection.sock = socket.socket()
            self._connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
            self._connection.sock.settimeout(60)
            self._connection.sock.connect(address)
        headers = {"Authorization": f"Bearer {token}"}
        if last is not None:
            headers["Last-Event-ID"] = last
        self._connection.request(method, path, headers=headers)
        self.response = self._connection.getresponse()
        self.status = self.response.status
        self.last = last

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        self.response.close()
        self._connection.close()

    def begin(self) -> Self:
        """Reads what is sent at once."""
        assert self.status == 200, self.response.read()
        assert self.response.headers["content-type"] == "text/event-stream"
        assert self.response.readline().startswith(b"retry: ")
        block = self._block()
        assert block is not None
        assert "data" not in block
        return self

    def skip(self) -> None:
        """Reads what tells how far it has come, without an event."""
        block = self._block()
        assert block is not None
        assert block.keys() == {"id"}

    def next(self) -> dict[str, Any] | None:
        """The event that comes next; None at the end of the stream."""
        while (block := self._block()) is not None:
            if "data" in block:
                found: dict[str, Any] = json.loads(block["data"])
                assert found["id"] == block["id"] == self.last
                self.seen = found
                return found
        return None

    def rest(self) -> list[dict[str, Any]]:
        """What has arrived whole, of a stream that was cut off."""
        found = []
        with contextlib.suppress(http.client.IncompleteRead, ConnectionError):
            while (event := self.next()) is not None:
                found.append(event)
        return found

    def take(self, count: int) -> list[dict[str, Any]]:
        found = [self.next() for _ in range(count)]
        return [one for one in found if one is not None]

    def _block(self) -> dict[str, str] | None:
        found: dict[str, str] = {}
        while line := self.response.readline().decode():
            if line == "\n":
                # One that was cut off was not received.
                self.last = found.get("id", self.last)
                return found
            name, _, value = line.rstrip("\n").partition(": ")
            found[name] = value
        return None


def happen(house: House, org_id: str, instance_id: str | None, count: int = 1) -> list[str]:
    """So many events, each in a transaction of its own; their ids."""
    made = []
    for _ in range(count):
        with house.database.write() as db:
            told = {"instance_id": instance_id or f"inst_{NEVER}", "paused_by": "idle"}
            made.append(events.append(db, org_id, "instance.paused.v1", told, instance_id).id)
    return made
