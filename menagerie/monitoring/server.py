"""Serves the operator's metrics on a port of their own, which is none of the API's."""

import socket
from collections.abc import Iterable
from http import HTTPStatus
from socketserver import ThreadingMixIn
from threading import BoundedSemaphore, Lock, Thread
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import make_wsgi_app

from menagerie.errors import SettingsError
from menagerie.monitoring.kept_figures import KeptFigures

PATH: Final = "/metrics"
CONNECTIONS_MAX: Final = 16
TIMEOUT_S: Final = 10.0
"""Of a client that sends or takes nothing."""
_log = structlog.get_logger("metrics")


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each connection, and so many at most: others are closed."""

    daemon_threads = True

    def __init__(self, host: str, port: int, *, shared: bool) -> None:
        """`shared`: each process of gunicorn listens, and any of them accepts."""
        self._free = BoundedSemaphore(CONNECTIONS_MAX)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.allow_reuse_port = shared
        super().__init__((host, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Of a client that went away or was silent; what fails in a scrape is answered with 500."""


class _Handler(WSGIRequestHandler):
    timeout = TIMEOUT_S

    def log_message(self, format: str, *_arguments: Any) -> None:  # noqa: A002 -- the library's name
        """A scrape is no news."""


class MetricsServer:
    """`collectors` are asked at each scrape, of which there is one at a time."""

    def __init__(self, figures: KeptFigures, collectors: Iterable[Any]) -> None:
        self._figures = figures
        self._looked_up = CollectorRegistry()
        for each in collectors:
            self._looked_up.register(each)
        self._scraping = Lock()
        self._server: _Server | None = None

    def start(self, host: str, port: int, *, shared: bool = False) -> int:
        """The port. Raises SettingsError where it cannot be had."""
        try:
            self._server = _Server(host, port, shared=shared)
        except (OSError, OverflowError) as error:
            raise SettingsError(
                f"metrics_port: cannot listen on {host} port {port}: {error}; choose another port"
            ) from error
        self._server.set_app(self._answer)
        Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()
        _log.info("metrics are served", host=host, port=self._server.server_port)
        return int(self._server.server_port)

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["PATH_INFO"] != PATH or environ["REQUEST_METHOD"] not in {"GET", "HEAD"}:
            return _not_found(start_response)
        with self._scraping:
            everything = _Both(self._figures.all_processes(), self._looked_up)
            found: Iterable[bytes] = make_wsgi_app(everything)(environ, start_response)
        return found


class _Both(CollectorRegistry):
    """What was counted, and what is looked up."""

    def __init__(self, *registries: CollectorRegistry) -> None:
        super().__init__()
        self._registries = registries

    def collect(self) -> Iterable[Any]:
        for each in self._registries:
            yield from each.collect()

    def restricted_registry(self, names: Iterable[str]) -> Any:
        return self if not names else super().restricted_registry(names)


def _not_found(start_response: Any) -> Iterable[bytes]:
    status = HTTPStatus.NOT_FOUND
    start_response(f"{status.value} {status.phrase}", [("Content-Type", "text/plain")])
    return [f"there is only {PATH} here\n".encode()]
