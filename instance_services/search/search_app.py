"""Owns the ASGI app: the document, its handlers, and the form of errors."""

from pathlib import Path

from instance_services.search import databases
from instance_services.search.allowance import Limits
from instance_services.search.boundary import Boundary, SearchService
from instance_services.search.callers import MasterKeys
from instance_services.search.clock import Clock, system_clock
from instance_services.search.rendering import render
from instance_services.search.waking import IndexingProcess
from specserver import App

DOCUMENT = Path(__file__).with_name("openapi.yaml")
BODY_BYTES_MAX = 100 * 2**20
WAITING = 512
"""Requests, beside those that are worked on."""


def make_app(
    folder: Path,
    masters: MasterKeys,
    *,
    body_bytes: int = BODY_BYTES_MAX,
    threads: int = 4,
    waiting: int = WAITING,
    clock: Clock = system_clock,
    limits: Limits = Limits(),  # noqa: B008 - it is frozen
) -> App:
    """The service; its lifespan starts and stops the indexing process."""
    databases.make(folder)
    indexing = IndexingProcess(folder, limits)
    service = SearchService(folder, masters, indexing, clock, limits)
    service.keys.make_defaults()
    return App(
        DOCUMENT,
        handlers="instance_services.search.handlers",
        boundary=Boundary(),
        state=service,
        problems=render,
        max_body_bytes=body_bytes,
        threads=threads,
        waiting=waiting,
        on_startup=[indexing.start],
        on_shutdown=[indexing.stop],
        serve_docs=False,
        checked=True,
    )
