"""How many statements engines have run: asked now and then, of those that were used meanwhile.

Asking is a login. An engine that nobody uses is left alone, so that it costs nothing; and as the
gateway has no part in this, it keeps no engine awake.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cell.engines.driver import CountsStatements, Login
from cell.instances.activity import Traffic
from cell.runtime.process import Process

if TYPE_CHECKING:  # which names the count
    from cell.instances.hosted import HostedInstance

EVERY_S: Final = 30.0
ANSWER_WITHIN_S: Final = 10.0
COUNT_MAX: Final = 2**53 - 1
"""The engine is its owner's, and says what it likes; more is nothing that anybody could read."""


@dataclass(frozen=True)
class StatementCount:
    """What an engine said at `asked_at` (monotonic), and when it was last used before that."""

    process: Process
    statements: int | None
    asked_at: float
    used_at: float | None


def is_due(instance: "HostedInstance", traffic: Traffic) -> bool:
    if not instance.usable or instance.process is None or instance.lock.locked():
        return False
    if instance.counting is not None and not instance.counting.done():
        return False
    last = instance.statement_count
    if last is not None and last.process is instance.process:
        waited_s = time.monotonic() - last.asked_at
        if waited_s < EVERY_S or last.used_at == traffic.last_activity_at:
            return False
    return isinstance(instance.driver, CountsStatements)


async def count(instance: "HostedInstance", login: Login, traffic: Traffic) -> None:
    process, driver = instance.process, instance.driver
    if process is None or not isinstance(driver, CountsStatements):
        return
    try:
        async with asyncio.timeout(ANSWER_WITHIN_S):
            said = await driver.statements(instance.site, login)
    except TimeoutError:
        said = None
    last = instance.statement_count
    if said is None and last is not None and last.process is process:
        # It is asked again, and until then it has run no fewer.
        said = last.statements
    statements = None if said is None else min(COUNT_MAX, max(0, said))
    used_at = traffic.last_activity_at
    instance.statement_count = StatementCount(process, statements, time.monotonic(), used_at)


def told(instance: "HostedInstance") -> int | None:
    """None where its engine does not run, or has not said yet."""
    last = instance.statement_count
    return None if last is None or last.process is not instance.process else last.statements
