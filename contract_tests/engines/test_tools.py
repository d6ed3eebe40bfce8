"""Tools that run beside an engine: whenever one is ended, nothing of it goes on."""

import asyncio
import random
import secrets
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from cell.layout import Layout
from cell.runtime.confined_tools import Toolbox
from cell.runtime.host import Host
from cell.runtime.tool_streams import ToolStream
from cell.runtime.tools import ToolCommand
from contract_tests.by_day import one_in
from contract_tests.cell.rig import until
from contract_tests.engines.conftest import SIZE, UID

Started = TypeVar("Started")


def left(mark: str) -> list[str]:
    """The command lines in which it stands."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                words = (each / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if mark in words:
                found.append(words[:200])
    return found


@pytest.mark.nightly
@pytest.mark.parametrize("delays_ms", one_in(3, [(0, 3), (3, 12), (12, 40)]), ids=str)
def test_a_tool_that_is_ended_leaves_nothing(
    host: Host, layout: Layout, delays_ms: tuple[int, int]
) -> None:
    """Also one that is only being started: a sandbox that ends first would leave it behind."""
    site = layout.site("inst_01JD0000000000000000000T00", UID + 9)
    site.make(host.owner(site))
    mark = f"mark{secrets.token_hex(8)}"

    async def one() -> None:
        toolbox = Toolbox(host, site, SIZE, ())
        argv = ["/bin/sh", "-c", f"sleep 1000 & sleep 1000; : {mark}"]
        tool = await toolbox.start(argv, {}, stdin=asyncio.subprocess.PIPE)
        await asyncio.sleep(random.uniform(*delays_ms) / 1000)
        await tool.end()

    async def several() -> None:
        for _ in range(10):
            await asyncio.gather(*(one() for _ in range(5)))

    asyncio.run(several())
    assert left(mark) == []


async def broken_off(begun: Coroutine[Any, Any, Started], delay_ms: float) -> Started | None:
    """What had started by then."""
    start = asyncio.create_task(begun)
    await asyncio.sleep(delay_ms / 1000)
    start.cancel()
    (found,) = await asyncio.gather(start, return_exceptions=True)
    return None if isinstance(found, BaseException) else found


@pytest.mark.nightly
def test_a_tool_whose_start_is_broken_off_leaves_nothing(host: Host, layout: Layout) -> None:
    """Whoever cancels does not wait for what is inside."""
    site = layout.site("inst_01JD0000000000000000000T01", UID + 10)
    site.make(host.owner(site))
    mark = f"mark{secrets.token_hex(8)}"

    async def one(delay_ms: float) -> None:
        toolbox = Toolbox(host, site, SIZE, ())
        argv = ["/bin/sh", "-c", f"read line; : {mark}"]
        begun = toolbox.start(argv, {}, stdin=asyncio.subprocess.PIPE)
        if (tool := await broken_off(begun, delay_ms)) is not None:
            await tool.end()

    async def several() -> None:
        for number in range(60):
            async with asyncio.timeout(20):
                await one(number / 4)

    asyncio.run(several())
    assert left(mark) == []


@pytest.mark.nightly
def test_a_stream_whose_start_is_broken_off_leaves_nothing(host: Host, layout: Layout) -> None:
    """Such as a dump whose client is gone before its tool has said a word."""
    site = layout.site("inst_01JD0000000000000000000T02", UID + 11)
    site.make(host.owner(site))
    mark = f"mark{secrets.token_hex(8)}"

    async def one(delay_ms: float) -> None:
        command = ToolCommand(["/bin/sh", "-c", f"sleep 1000; : {mark}"], {})
        begun = ToolStream.start(host, site, command)
        if (tool := await broken_off(begun, delay_ms)) is not None:
            tool.end()

    async def several() -> None:
        for number in range(80):
            async with asyncio.timeout(20):
                await one(number / 4)

    asyncio.run(several())
    # One that is killed may take a moment to go.
    until(lambda: not left(mark), "nothing of the tool is left")
