"""Where a source may be: not within, by no spelling and by no name that changes its mind."""

import asyncio
import socket
import threading
from typing import Any

import pytest

from cell.instances.reasons import for_owner
from cell.migrations.addresses import SourceHost
from cell.migrations.conduit import Conduit
from cell.migrations.errors import SourceUnreachableError
from cell.migrations.source_uri import SourceUri

SOURCE = SourceUri("db.example.com", 5432, "u", "p", "d", "off")


def resolving(*answers: list[str]) -> Any:
    """A name server that says something else each time."""
    left = list(answers)

    def getaddrinfo(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        found = left.pop(0)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in found]

    return getaddrinfo


def test_what_is_connected_to_is_what_was_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that leads elsewhere a moment later is not asked for again."""
    connected: list[str] = []

    async def open_connection(host: str, *_: Any, **__: Any) -> Any:
        connected.append(host)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "getaddrinfo", resolving(["10.0.0.1", "8.8.8.8"], ["127.0.0.1"]))
    monkeypatch.setattr(asyncio, "open_connection", open_connection)
    conduit = Conduit(SOURCE, ())
    with pytest.raises(SourceUnreachableError, match="cannot be reached"):
        asyncio.run(conduit.connect())
    assert connected == ["8.8.8.8"]
    with pytest.raises(SourceUnreachableError, match="does not connect to"):
        asyncio.run(conduit.connect())
    assert connected == ["8.8.8.8"]


def test_a_name_that_does_not_exist_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with pytest.raises(SourceUnreachableError, match="cannot be resolved"):
        asyncio.run(SourceHost("nowhere.example", 5432, ()).address())


def test_a_name_server_that_does_not_answer_holds_one_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And none of those that the cell's other work has, which hundreds of look-ups would take."""
    answering, asked = threading.Event(), []

    def getaddrinfo(*given: Any, **_: Any) -> Any:
        asked.append(given)
        answering.wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("8.8.8.8", 5432))]

    async def look_up() -> list[str]:
        host = SourceHost("slow.example", 5432, ())
        waiting = [asyncio.create_task(host.address()) for _ in range(100)]
        await asyncio.sleep(0)
        # Whoever gives up takes the answer from nobody else.
        waiting.pop().cancel()
        await asyncio.gather(*(asyncio.to_thread(int) for _ in range(100)))
        answering.set()
        return await asyncio.gather(*waiting)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    try:
        assert asyncio.run(look_up()) == ["8.8.8.8"] * 99
    finally:
        answering.set()
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ("127.0.0.1", "the source has an address"),
        ("::1", "the source has an address"),
        ("localhost", "the host localhost of the source leads to an address"),
    ],
)
def test_what_is_refused_is_told_without_an_address(host: str, told: str) -> None:
    with pytest.raises(SourceUnreachableError, match=f"^{told} that this cell") as refused:
        asyncio.run(SourceHost(host, 5432, ()).address())
    assert for_owner(str(refused.value)) == str(refused.value)
