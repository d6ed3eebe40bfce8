"""Sends traces to an OpenTelemetry collector; needs the extra `tracing`."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from specserver import Problem, tracing
from specserver.tracing import HEADER, Role

_KINDS: Final[Mapping[Role, SpanKind]] = {
    "server": SpanKind.SERVER,
    "client": SpanKind.CLIENT,
    "consumer": SpanKind.CONSUMER,
    "internal": SpanKind.INTERNAL,
}
_SERVER_ERROR: Final = 500


class OpenTelemetryTracer:
    """Of an exception only its kind is told: what it says may be for its owner alone."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = provider.get_tracer("menagerie")
        self._propagator = TraceContextTextMapPropagator()

    @contextmanager
    def span(
        self, name: str, role: Role, parent: str | None, attributes: Mapping[str, str | int]
    ) -> Iterator[None]:
        above = None if parent is None else self._propagator.extract({HEADER: parent})
        with self._tracer.start_as_current_span(
            name,
            above,
            _KINDS[role],
            attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as begun:
            try:
                yield
            except BaseException as error:
                _fail(begun, error)
                raise

    def traceparent(self) -> str | None:
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier)
        return carrier.get(HEADER)


def _fail(span: Span, error: BaseException) -> None:
    span.set_attribute("error.type", type(error).__name__)
    if not isinstance(error, Problem) or error.status >= _SERVER_ERROR:
        span.set_status(Status(StatusCode.ERROR))


def record(endpoint: str, role: str, region: str) -> Callable[[], None]:
    """From now on; what is returned sends what is left, and ends it.

    The standard variables (`OTEL_*`) say how: headers, time limits, which traces are recorded.
    """
    told = {"menagerie.role": role, "menagerie.region": region}
    if "OTEL_SERVICE_NAME" not in os.environ:
        told["service.name"] = f"menagerie-{role}"
    provider = TracerProvider(resource=Resource.create(told))
    url = f"{endpoint.rstrip('/')}/v1/traces" if endpoint else None
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=url)))
    tracing.connect(OpenTelemetryTracer(provider))

    def end() -> None:
        tracing.connect(None)
        provider.shutdown()

    return end
