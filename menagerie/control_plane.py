"""The parts that decide: the API and the worker."""

import signal
import socket
from functools import partial
from threading import Event
from typing import Any, Final

import structlog
import uvicorn

from control import workflows
from control.boundary.addresses import levels
from control.delivery.deliverer import Deliverer
from control.services import Services
from control.webhooks.deliverer import make_deliverer
from control.work import Worker, collect
from menagerie import composition, first_start, open_files
from menagerie.access import AccessLog
from menagerie.monitoring import activation
from menagerie.processes import loaded, owner_is_told_to, started_by_serve
from menagerie.settings import Settings
from specserver import accepting, render_problem
from specserver.connection_counts import ConnectionCounts
from specserver.http_protocol import http_protocol

_LOG = structlog.get_logger(__name__)
# The API speaks HTTP alike under gunicorn and alone. Whose X-Forwarded-For is believed is
# decided by the setting trusted_proxies, so uvicorn must not believe any.
HTTP: Final[dict[str, Any]] = {
    "loop": "specserver.accepting:AcceptingLoop",
    "ws": "none",
    "access_log": False,
    "server_header": False,
    "proxy_headers": False,
}


def http_options(settings: Settings) -> dict[str, Any]:
    """What uvicorn is told of HTTP; in each process, as connections are counted there."""
    render = partial(render_problem, type_prefix=composition.PROBLEM_TYPES)
    most = open_files.connections(open_files.raise_limit(), settings.threads)
    connection_counts = ConnectionCounts(
        settings.address_connections, settings.trusted_proxies, most, levels
    )
    return HTTP | {"http": http_protocol(render, connection_counts)}


def build_app(settings: Settings) -> AccessLog:
    """The API, with the worker in it where nobody else runs one.

    On SQLite too, as writers of one file belong in one process.
    """
    services = composition.build_services(settings)
    alone = started_by_serve()
    if alone:
        first_start.bring_up_to_date(settings, services)
    elif settings.on_sqlite:
        services.database.migrate()
    working = background(settings, services) if alone or settings.on_sqlite else []
    end_monitoring = activation.begin(settings, "api", services.database)
    app = composition.build_app(
        settings,
        services,
        on_startup=[each.start for each in working],
        on_shutdown=[*(each.stop for each in working), end_monitoring, services.database.dispose],
    )
    return AccessLog(app, settings.trusted_proxies)


def background(settings: Settings, services: Services) -> list[Worker | Deliverer]:
    """What works beside the API, or alone in a worker's process."""
    return [build_worker(settings, services), make_deliverer(services, settings.dns_servers)]


def build_worker(settings: Settings, services: Services) -> Worker:
    return Worker(services, collect(workflows), threads=settings.worker_threads)


def run_api(settings: Settings) -> int:
    """Serve the API in this process, which `serve` tends, until SIGTERM."""
    open_files.raise_limit()
    if (writing := owner_is_told_to()) is not None:
        first_start.make_and_tell(settings, writing)
    config = uvicorn.Config(
        build_app(settings),
        log_config=None,
        timeout_graceful_shutdown=5,
        **http_options(settings),
    )
    loaded()
    uvicorn.Server(config).run(_sockets(settings))
    return 0


def _sockets(settings: Settings) -> list[socket.socket]:
    """On the port that `serve` holds. Raises SystemExit where it cannot be had now."""
    try:
        return accepting.bind(settings.host, settings.port, shared=True)
    except OSError as error:
        place = f"{settings.host} port {settings.port}"
        _LOG.error("cannot listen", place=place, reason=error.strerror)
        raise SystemExit(1) from error


def run_worker(settings: Settings) -> int:
    """Work until SIGTERM."""
    open_files.raise_limit()
    loaded()
    services = composition.build_services(settings)
    working = background(settings, services)
    stopping = Event()

    def stop(_number: int, _frame: Any) -> None:
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    end_monitoring = activation.begin(settings, "worker", services.database)
    for each in working:
        each.start()
    stopping.wait()
    for each in working:
        each.stop()
    end_monitoring()
    services.database.dispose()
    return 0
