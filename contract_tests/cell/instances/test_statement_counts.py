"""An engine is asked what it ran only after it was used, and never costs more than that."""

import asyncio
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cell.instances import statement_counts
from cell.instances.activity import Traffic
from cell.instances.hosted import HostedInstance


class Told:
    """As much of a driver as is asked: it says what it is given, or nothing for ever."""

    def __init__(self, *said: int | None) -> None:
        self.said, self.asked = list(said), 0

    async def statements(self, _site: Any, _login: Any) -> int | None:
        self.asked += 1
        if not self.said:
            await asyncio.sleep(600)
        return self.said.pop(0)


def instance(driver: Any) -> HostedInstance:
    known = {
        "driver": driver,
        "site": None,
        "process": object(),
        "usable": True,
        "lock": asyncio.Lock(),
        "counting": None,
        "statement_count": None,
    }
    return cast("HostedInstance", SimpleNamespace(**known))


def count(of: HostedInstance, traffic: Traffic) -> None:
    asyncio.run(statement_counts.count(of, cast("Any", None), traffic))


def long_ago(of: HostedInstance) -> None:
    assert of.statement_count is not None
    asked_at = time.monotonic() - statement_counts.EVERY_S
    of.statement_count = replace(of.statement_count, asked_at=asked_at)


def test_one_that_nobody_uses_is_left_alone() -> None:
    used = instance(Told(5, 6))
    assert statement_counts.is_due(used, Traffic())
    count(used, Traffic(last_activity_at=1.0))
    assert statement_counts.told(used) == 5
    # Used since, and asked a moment ago; then asked long ago, and not used since.
    assert not statement_counts.is_due(used, Traffic(last_activity_at=2.0))
    long_ago(used)
    assert not statement_counts.is_due(used, Traffic(last_activity_at=1.0))
    assert statement_counts.is_due(used, Traffic(last_activity_at=2.0))


def test_one_that_does_not_run_or_is_worked_on_is_not_asked() -> None:
    for changed in ({"usable": False}, {"process": None}):
        paused = instance(Told(5))
        vars(paused).update(changed)
        assert not statement_counts.is_due(paused, Traffic())
        assert statement_counts.told(paused) is None
    busy = instance(Told(5))
    asyncio.run(busy.lock.acquire())
    assert not statement_counts.is_due(busy, Traffic())
    assert not statement_counts.is_due(instance(object()), Traffic())


def test_another_start_of_the_engine_is_asked_anew() -> None:
    restarted = instance(Told(5, 1))
    count(restarted, Traffic())
    vars(restarted)["process"] = object()
    assert statement_counts.told(restarted) is None
    assert statement_counts.is_due(restarted, Traffic())
    count(restarted, Traffic())
    assert statement_counts.told(restarted) == 1


def test_what_it_says_is_bounded_and_its_silence_is_no_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    odd = instance(Told(10**30, None, -1))
    count(odd, Traffic())
    assert statement_counts.told(odd) == statement_counts.COUNT_MAX
    count(odd, Traffic())
    assert statement_counts.told(odd) == statement_counts.COUNT_MAX
    count(odd, Traffic())
    assert statement_counts.told(odd) == 0
    monkeypatch.setattr(statement_counts, "ANSWER_WITHIN_S", 0.01)
    count(odd, Traffic())
    assert statement_counts.told(odd) == 0
