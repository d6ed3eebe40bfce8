"""Owns waiting for the engine: with an eye on the client, and never for longer than is useful."""

import asyncio

from instance_services.duckdb.engine import Broken, Job, Overloaded, SerialExecutor
from instance_services.duckdb.session import Failed
from specserver import Exchange, Problem

_UNWATCHED_S = 0.05
_PROBE_S = 2.0


async def answer(engine: SerialExecutor, job: Job, exchange: Exchange) -> bytes:
    """The answer to a request; a client that goes away takes its request with it."""
    watches: list[asyncio.Task[None]] = []

    def watch() -> None:
        # Most queries are done before this, and are spared the cost of a second task.
        watches.append(asyncio.ensure_future(_abandon_when_gone(engine, job, exchange)))
        engine.watch(job)

    timer = asyncio.get_running_loop().call_later(_UNWATCHED_S, watch)
    try:
        return await job.future
    except asyncio.CancelledError:
        engine.abandon(job)
        if job.future.cancelled() and watches:
            raise Problem(503, "the client is gone", headers={"Retry-After": "1"}) from None
        raise
    finally:
        timer.cancel()
        for each in watches:
            each.cancel()


async def _abandon_when_gone(engine: SerialExecutor, job: Job, exchange: Exchange) -> None:
    await exchange.disconnected()
    engine.abandon(job)
    job.future.cancel()


async def trouble(engine: SerialExecutor) -> str | None:
    """Why queries are not answered; while one runs and obeys, that it runs is the answer."""
    if engine.trouble is not None or engine.is_busy:
        return engine.trouble
    try:
        job = engine.submit("SELECT 1", [])
        await asyncio.wait_for(job.future, _PROBE_S)
    except (Broken, Failed) as error:
        return str(error)
    except Overloaded:
        return None
    except TimeoutError:
        return engine.trouble
    return None
