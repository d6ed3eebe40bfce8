"""A worker process of gunicorn; apart, as `serve` runs the API without gunicorn."""

from uvicorn_worker import UvicornWorker

from menagerie.control_plane import http_options
from menagerie.settings import load


class ApiWorker(UvicornWorker):  # type: ignore[misc]  # uvicorn_worker is untyped
    """Speaks HTTP as the API does alone."""

    # Asked to end, it waits for requests this long; no master may be left to insist.
    CONFIG_KWARGS = http_options(load()) | {"timeout_graceful_shutdown": 10}
