"""Requests to the console's pages hold a bounded share of the memory of the cell."""

import asyncio
from typing import Any

import pytest

from cell.console.bodies import (
    ADDRESS_BYTES_MAX,
    BYTES_MAX,
    EVERY_BYTES_MAX,
    STRANGER_BYTES_MAX,
    Bodies,
    BufferedBody,
    RefusedBody,
)
from contract_tests.cell.console.test_console import Browser
from contract_tests.cell.rig import Rig


async def read(
    bodies: Bodies,
    size: int,
    address: str = "192.0.2.1",
    *,
    known: bool = True,
    content: bytes = b"",
) -> BufferedBody:
    content = content or b"x" * size
    half = len(content) // 2
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": content[:half], "more_body": True},
        {"type": "http.request", "body": content[half:]},
    ]

    async def receive() -> Any:
        return messages.pop(0)

    async def has_session() -> bool:
        return known

    return await bodies.read(receive, address, has_session)


def test_who_has_no_session_sends_little() -> None:
    bodies = Bodies()
    assert asyncio.run(read(bodies, STRANGER_BYTES_MAX, known=False)).content
    with pytest.raises(RefusedBody, match="without a session"):
        asyncio.run(read(bodies, STRANGER_BYTES_MAX + 1, known=False))
    with pytest.raises(RefusedBody, match="too large"):
        asyncio.run(read(bodies, BYTES_MAX + 1))


def test_what_would_take_long_to_parse_is_refused_and_long_texts_are_not() -> None:
    nested = b'{"sql": "SELECT 1", "x": [' + b",".join([b"[" * 100 + b"]" * 100] * 400) + b"]}"
    with pytest.raises(RefusedBody, match="too many values"):
        asyncio.run(read(Bodies(), 0, content=nested))
    long = b'{"sql": "INSERT INTO t VALUES ' + b"(1, 2, '[{'), " * 60_000 + b'"}'
    assert asyncio.run(read(Bodies(), 0, content=long)).content == long


@pytest.mark.parametrize("several", [False, True])
def test_what_is_held_at_a_time_is_bounded(*, several: bool) -> None:
    bodies, held, most = Bodies(), [], EVERY_BYTES_MAX if several else ADDRESS_BYTES_MAX
    for number in range(most // BYTES_MAX):
        address = f"192.0.2.{number}" if several else "192.0.2.1"
        held.append(asyncio.run(read(bodies, BYTES_MAX, address)))
    with pytest.raises(RefusedBody, match="at a time"):
        asyncio.run(read(bodies, BYTES_MAX))
    for each in held:
        each.release()
    assert asyncio.run(read(bodies, BYTES_MAX)).content


@pytest.mark.nightly
def test_a_large_statement_needs_the_session(sql_rig: Rig) -> None:
    browser = Browser(sql_rig, sql_rig.make())
    browser.load()
    sql = "SELECT 42 -- " + "x" * 100_000
    assert browser.run(sql)["rows"] == [["42"]]
    with sql_rig.client() as http:
        refused = http.post(browser.path + "run", json={"sql": sql})
    assert refused.status_code == 413
