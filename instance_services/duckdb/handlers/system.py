"""Owns the operations of the tag System."""

import duckdb

from instance_services.duckdb.engine import Engine
from instance_services.duckdb.waiting import is_answering
from specserver import Exchange, Problem


async def version() -> dict[str, str]:
    return {"engine": "duckdb", "version": duckdb.__version__}


async def health(exchange: Exchange) -> dict[str, str]:
    engine: Engine = exchange.app_state
    if not await is_answering(engine):
        raise Problem(503, "the engine has stopped", headers={"Retry-After": "1"})
    return {"status": "ok"}
