"""Owns the command line: `python -m instance_services.search`."""

import argparse
import gc
import os
from pathlib import Path
from typing import Final

import structlog
import uvicorn

from instance_services import logs
from instance_services.search.allowance import Limits
from instance_services.search.callers import MasterKeys
from instance_services.search.cross_origin import CrossOrigin
from instance_services.search.databases import NewerDataError
from instance_services.search.rendering import render
from instance_services.search.search_app import BODY_BYTES_MAX, WAITING, make_app
from specserver.http_protocol import ARRIVE_WITHIN_S, http_protocol

log = structlog.get_logger()

GARBAGE_AFTER: Final = 200_000
"""Objects that are made, and not gone, before some are looked at."""
# What a slow line sends, in bytes a second.
_LINE_BYTES: Final = 500_000


def _arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m instance_services.search",
        description="Serve one search engine over HTTP on a unix socket.",
    )
    parser.add_argument("--socket", type=Path, required=True, help="unix socket to listen on")
    parser.add_argument("--data", type=Path, required=True, help="folder of the data")
    parser.add_argument(
        "--keys", type=Path, required=True, help='["<master key>", …], newest first'
    )
    parser.add_argument("--threads", type=int, default=4, help="requests that run at once")
    parser.add_argument(
        "--waiting",
        type=int,
        default=WAITING,
        help="requests that wait for others; more are refused",
    )
    parser.add_argument(
        "--body-bytes", type=int, default=BODY_BYTES_MAX, help="maximum size of a body"
    )
    parser.add_argument("--indexing-bytes", type=int, help="all memory that indexing may ask for")
    parser.add_argument(
        "--vector-bytes",
        type=int,
        default=Limits.vector_bytes,
        help="memory for vectors that searches compare",
    )
    parser.add_argument("--storage-bytes", type=int, help="refuse to grow beyond this size")
    parser.add_argument(
        "--stop-timeout-s", type=int, default=5, help="seconds for running requests to end"
    )
    parser.add_argument("--log-level", default="info", help="debug, info, warning, error")
    return parser.parse_args(words)


def arrival_s(body_bytes: int) -> float:
    """How long a request may take to arrive, where it is as large as it may be."""
    return max(ARRIVE_WITHIN_S, body_bytes / _LINE_BYTES)


def main(words: list[str] | None = None) -> int:
    given = _arguments(words)
    logs.set_up(given.log_level)
    # Searches are in threads already, and a sandbox may allow no others.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        app = make_app(
            *(given.data, MasterKeys(given.keys)),
            body_bytes=given.body_bytes,
            threads=given.threads,
            waiting=given.waiting,
            # An answer may have as many bytes of documents as a request.
            limits=Limits(
                given.indexing_bytes, given.storage_bytes, given.body_bytes, given.vector_bytes
            ),
        )
    except NewerDataError as error:
        log.error("cannot start", reason=str(error))  # noqa: TRY400 - the reason is all
        return 1
    protocol = http_protocol(render)
    protocol.arrive_within_s = arrival_s(given.body_bytes)
    server = uvicorn.Server(
        uvicorn.Config(
            CrossOrigin(app),
            uds=str(given.socket),
            loop="uvloop",
            http=protocol,
            ws="none",
            lifespan="on",
            access_log=False,
            server_header=False,
            log_config=None,
            timeout_graceful_shutdown=given.stop_timeout_s,
        )
    )
    # A search makes a hundred thousand objects that live as long as it does, and next to no cycles:
    # looking for those as often as Python does by itself took three quarters of a slow search.
    gc.freeze()
    gc.set_threshold(GARBAGE_AFTER)
    server.run()
    return 0 if server.started else 1
