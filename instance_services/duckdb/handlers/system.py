"""Owns the operations of the tag System."""

import duckdb

from instance_services.duckdb.engine import SerialExecutor
from instance_services.duckdb.waiting import trouble
from specserver import Exchange, Problem


async def version() -> dict[str, str]:
    return {"engine": "duckdb", "version": duckdb.__version__}


async def statistics(exchange: Exchange) -> dict[str, int]:
    engine: SerialExecutor = exchange.app_state
    return {"queries": engine.queries}


async def health(exchange: Exchange) -> dict[str, str]:
    engine: SerialExecutor = exchange.app_state
    if reason := await trouble(engine):
        raise Problem(503, reason, headers={"Retry-After": "5"})
    return {"status": "ok"}
