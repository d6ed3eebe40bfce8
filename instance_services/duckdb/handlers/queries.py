"""Owns the operations of the tag Queries."""

from typing import Any

from instance_services.duckdb.engine import Broken, Ended, Overloaded, SerialExecutor
from instance_services.duckdb.session import DiskFull, Failed
from instance_services.duckdb.users import AuthenticatedUser
from instance_services.duckdb.waiting import answer
from specserver import Exchange, Problem, Reply


async def run(body: dict[str, Any], exchange: Exchange) -> Reply:
    engine: SerialExecutor = exchange.app_state
    try:
        caller: AuthenticatedUser = exchange.principal
        job = engine.submit(body["sql"], body.get("params") or [], caller.is_known)
        return Reply(200, await answer(engine, job, exchange))
    except Ended as error:
        raise Problem(401, str(error)) from None
    except (Broken, DiskFull, Overloaded) as error:
        raise Problem(503, str(error), headers={"Retry-After": "1"}) from None
    except Failed as error:
        raise Problem(400, str(error)) from None
