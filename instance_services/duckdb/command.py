"""Owns the command line: `python -m instance_services.duckdb`."""

import argparse
import asyncio
import os
import signal
from pathlib import Path

import structlog
import uvicorn

from instance_services import logs
from instance_services.duckdb import memory
from instance_services.duckdb.database import EngineLimits
from instance_services.duckdb.engine import SerialExecutor
from instance_services.duckdb.service import make_app, render_error
from instance_services.duckdb.turns import QueryTurns
from instance_services.duckdb.users import Users
from specserver.http_protocol import http_protocol

# EX_SOFTWARE: the supervisor starts the process anew.
_LOST = 70
_LAST_WORDS_S = 0.2


def _arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m instance_services.duckdb",
        description="Serve one DuckDB database over HTTP on a unix socket.",
    )
    parser.add_argument("--socket", type=Path, required=True, help="unix socket to listen on")
    parser.add_argument("--data", type=Path, required=True, help="database file")
    parser.add_argument("--users", type=Path, required=True, help='{"app": ["<sha256 hex>", …]}')
    parser.add_argument("--memory-bytes", type=int, help="the engine's memory limit")
    parser.add_argument("--process-bytes", type=int, help="all memory that the process may ask for")
    parser.add_argument("--threads", type=int, help="threads of the engine")
    parser.add_argument("--temp-directory", type=Path, help="where queries spill; emptied at start")
    parser.add_argument("--temp-bytes", type=int, help="how much they may spill")
    parser.add_argument("--storage-bytes", type=int, help="refuse to grow beyond this size")
    parser.add_argument(
        "--waiting-max", type=int, default=256, help="maximum number of waiting requests"
    )
    parser.add_argument(
        "--interrupt-timeout-s",
        type=float,
        default=10,
        help="seconds for an abandoned query to stop",
    )
    parser.add_argument(
        "--stop-timeout-s", type=int, default=5, help="seconds for running queries to end"
    )
    parser.add_argument("--log-level", default="info", help="debug, info, warning, error")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    given = _arguments(words)
    logs.set_up(given.log_level)
    if given.process_bytes is not None:
        memory.limit(given.process_bytes)
    limits = EngineLimits(given.memory_bytes, given.threads, given.temp_bytes, given.storage_bytes)
    temp_directory = given.temp_directory or given.data.with_name("temp")
    turns = QueryTurns()
    engine = SerialExecutor(
        *(turns, given.data, temp_directory, limits),
        waiting_max=given.waiting_max,
        interrupt_timeout_s=given.interrupt_timeout_s,
        on_broken=_give_up,
    )
    config = uvicorn.Config(
        make_app(engine, Users(given.users)),
        uds=str(given.socket),
        loop="none",  # turns brings its own
        http=http_protocol(render_error),
        ws="none",
        lifespan="on",
        access_log=False,
        server_header=False,
        log_config=None,
        timeout_graceful_shutdown=given.stop_timeout_s,
    )
    server = uvicorn.Server(config)
    for number in (signal.SIGTERM, signal.SIGINT):
        # The server installs no handlers where it does not run on the main thread.
        signal.signal(number, server.handle_exit)
    try:
        turns.run(server.serve())
    except RuntimeError:
        # Where the database cannot be opened, the loop ends amid its own beginning.
        if server.started:
            raise
    return 0 if server.started else 1


def _give_up() -> None:
    """Ends the process soon, without the clean-up that a broken engine would abort in."""
    structlog.get_logger().error("the engine failed and needs a restart")
    asyncio.get_running_loop().call_later(_LAST_WORDS_S, os._exit, _LOST)
