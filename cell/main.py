"""Running a cell: its document served on its socket until it is told to end."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import uvicorn

from cell.access.client_address import proxy_header_http
from cell.agent import Cell
from cell.boundary import make_boundary, make_mounted_boundary
from cell.console import mount
from cell.settings import CellSettings
from gateway import log_lines
from instance_services.queues import service as queues
from specserver import App, render_problem

DOCUMENT = Path(__file__).with_name("openapi.yaml")
GRACE_S = 5
PROBLEM_TYPES = "urn:menagerie:problem:"
ENDS = (signal.SIGTERM, signal.SIGINT)


def run(settings: CellSettings) -> None:
    """Serves until SIGTERM or SIGINT; blocks, and must own the process's main thread."""
    log_lines.configure(settings.log_format, settings.log_level)
    # What the cell writes is its own, unless it says otherwise.
    former = os.umask(0o077)
    try:
        with _heard() as ending:
            asyncio.run(_serve(settings, ending))
    finally:
        os.umask(former)


def make_app(cell: Cell) -> App:
    """The cell's own document, and below the paths of instances what is served beside it."""
    mounted = queues.make_app(cell.queues, make_mounted_boundary(cell), PROBLEM_TYPES)
    return App(
        DOCUMENT,
        handlers="cell.handlers",
        boundary=make_boundary(cell),
        state=cell,
        problem_type_prefix=PROBLEM_TYPES,
        serve_docs=False,
        checked=True,
        extra_routes={"/v1/instances/": mounted, f"{mount.ROOT}/": mount.Pages(cell.console)},
    )


async def _serve(settings: CellSettings, ending: "ShutdownRequest") -> None:
    cell = Cell(settings)
    app = make_app(cell)
    await cell.open()
    try:
        config = uvicorn.Config(
            app,
            http=proxy_header_http(
                partial(render_problem, type_prefix=PROBLEM_TYPES), cell.gateway_token
            ),
            ws="none",
            lifespan="off",
            access_log=False,
            server_header=False,
            # The gateway alone says who calls. Uvicorn would believe whoever calls from 127.0.0.1.
            proxy_headers=False,
            log_config=None,
            timeout_graceful_shutdown=GRACE_S,
        )
        ending.server = uvicorn.Server(config)
        if not ending.asked:
            await ending.server.serve([_listen(cell.layout.socket)])
    finally:
        await cell.close()


def _listen(path: Path) -> socket.socket:
    """Uvicorn by itself would open the socket to every user of the machine."""
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    path.chmod(0o600)
    return listening


class ShutdownRequest:
    """Remembers that the process was asked to end, as uvicorn hears it only while it serves."""

    def __init__(self) -> None:
        self.asked = False
        self.server: uvicorn.Server | None = None

    def hear(self, *_: object) -> None:
        self.asked = True
        if self.server is not None:
            self.server.should_exit = True


@contextlib.contextmanager
def _heard() -> Iterator[ShutdownRequest]:
    """Uvicorn raises the signal that ended it once more; here that must not end the process."""
    ending = ShutdownRequest()
    former = {number: signal.signal(number, ending.hear) for number in ENDS}
    try:
        yield ending
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
