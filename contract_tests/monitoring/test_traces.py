"""Traces, as a collector gets them: from a request through the work it starts to the cell."""

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from contract_tests.api.harness import House
from contract_tests.databases import Databases
from menagerie.monitoring import open_telemetry
from specserver import NotFound, tracing

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


class Collector:
    """Receives OTLP over HTTP, and decodes it."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    import gzip  # noqa: PLC0415 -- of this test alone

                    body = gzip.decompress(body)
                told = ExportTraceServiceRequest.FromString(body)
                for of in told.resource_spans:
                    for scope in of.scope_spans:
                        outer.spans += scope.spans
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_arguments: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture(scope="module")
def house(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with House(databases.migrated("sqlite"), tmp_path_factory.mktemp("house")) as made:
        yield made


def test_a_trace_leads_from_the_request_to_the_work(house: House, collector: Collector) -> None:
    tenant = house.tenant()
    end = open_telemetry.record(collector.url, "api", "local")
    try:
        path = f"{tenant.path}/projects/{tenant.project_id}/instances"
        order = {"engine": "duckdb", "size": "f0", "name": "canary"}
        ordered = house.post(path, tenant.key, json=order, headers={"traceparent": PARENT})
        assert ordered.status_code == 201
        house.settle()
    finally:
        end()
    ours = [each for each in collector.spans if each.trace_id.hex() == TRACE]
    by_name = {each.name: each for each in ours}
    request, work = by_name["instances.create"], by_name["instances.provision"]
    assert request.parent_span_id.hex() == "b7ad6b7169203331"
    assert work.parent_span_id == request.span_id
    steps = [each for each in ours if each.name.startswith("instances.provision ")]
    assert steps
    assert {each.parent_span_id for each in steps} == {work.span_id}
    told = "".join(map(str, collector.spans))
    for secret in (tenant.key, tenant.org_id, ordered.json()["id"], "canary"):
        assert secret not in told
    assert not [each.name for each in collector.spans if re.search(r"_[0-9A-Z]{20}|/", each.name)]


def test_of_a_failure_only_its_kind_is_told(collector: Collector) -> None:
    end = open_telemetry.record(collector.url, "api", "local")
    try:
        for error in (NotFound("secret words"), ValueError("secret words")):
            with pytest.raises(type(error)), tracing.span("a"):
                raise error
    finally:
        end()
    refused, failed = collector.spans
    assert "secret" not in str(refused) + str(failed)
    assert (refused.status.code, failed.status.code) == (0, 2)


def test_nothing_is_recorded_where_nobody_asked_for_it(house: House) -> None:
    assert tracing.traceparent() is None
    assert tracing.headers() == {}
    assert tracing.span("a") is tracing.span("b")


@pytest.mark.parametrize(
    "header", ["", "00-zz", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "x" * 9999]
)
def test_a_traceparent_that_is_none_begins_a_trace(collector: Collector, header: str) -> None:
    end = open_telemetry.record(collector.url, "api", "local")
    try:
        with tracing.span("a", "server", header):
            found = tracing.traceparent()
    finally:
        end()
    assert found is not None
    assert len(found) == 55
    assert collector.spans[0].parent_span_id == b""
