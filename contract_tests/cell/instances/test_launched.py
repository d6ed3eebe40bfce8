"""Holds how it is told that an engine ended at once: as one that does not start."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cell.engines.driver import EngineError
from cell.instances import starting
from cell.runtime.process import LaunchError, Process


class EndsAtOnce:
    async def start(self, *_given: Any) -> Process:
        raise LaunchError("the engine exited at once, with status 1")


def test_an_engine_that_ends_at_once_is_one_that_does_not_start() -> None:
    instance = cast(Any, SimpleNamespace(driver=EndsAtOnce(), site=None))
    with pytest.raises(EngineError, match="cannot be started: the engine exited at once"):
        asyncio.run(starting.launched(instance, cast(Any, None)))
