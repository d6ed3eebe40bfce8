"""A bare server of server-sent events beside which ours is measured: Starlette, and no more.

usage: python -m tools.bench.streams_server PORT

Each stream is a queue that `POST /publish` puts an event into; it is kept alive as often as ours.
It knows no caller, keeps no event, and resumes nothing.
"""

import asyncio
import sys
from collections.abc import AsyncIterator

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from control.boundary.live_answers import KEEP_ALIVE, KEEP_ALIVE_S

_queues: set[asyncio.Queue[str]] = set()


async def _follow(queue: asyncio.Queue[str]) -> AsyncIterator[str]:
    _queues.add(queue)
    try:
        yield "retry: 2000\nid: 0\n\n"
        while True:
            try:
                yield await asyncio.wait_for(queue.get(), KEEP_ALIVE_S)
            except TimeoutError:
                yield KEEP_ALIVE
    finally:
        _queues.discard(queue)


async def stream(_request: Request) -> Response:
    return StreamingResponse(_follow(asyncio.Queue()), media_type="text/event-stream")


async def publish(request: Request) -> Response:
    told = (await request.body()).decode()
    for queue in _queues:
        queue.put_nowait(told)
    return Response(status_code=204)


def main(words: list[str]) -> None:
    app = Starlette(routes=[Route("/events", stream), Route("/publish", publish, methods=["POST"])])
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(words[0]),
        loop="uvloop",
        http="httptools",
        ws="none",
        access_log=False,
        log_level="error",
    )


if __name__ == "__main__":
    main(sys.argv[1:])
