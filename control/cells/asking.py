"""What is told of each request to a cell: how long it took, and a span of the trace."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from specserver import tracing
from specserver.instruments import CounterInstrument, Duration

FAILED: Final = CounterInstrument(
    "menagerie_cell_failed_requests",
    "Requests to cells that got no answer, by HTTP method.",
    ("method",),
)
DURATIONS: Final = Duration(
    "menagerie_cell_request_duration_seconds",
    "How long requests to cells took that were answered, by HTTP method.",
    ("method",),
)


@contextmanager
def asked_of_cell(method: str) -> Iterator[None]:
    began = time.perf_counter()
    try:
        with tracing.span(f"cell {method}", "client"):
            yield
    except Exception:
        FAILED.add(method)
        raise
    DURATIONS.took(time.perf_counter() - began, method)
