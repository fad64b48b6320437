"""Minimal receivers of metrics and spans: a StatsD server and an OpenTelemetry collector."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from tests.support.waiting import until


class StatsdReceiver:
    """Listens for datagrams on a port of its own."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]

    def received(self) -> list[str]:
        """Return what came since the last call, in order. On the loopback, what was sent is there."""
        lines = []
        self._socket.setblocking(False)
        while True:
            try:
                lines += self._socket.recv(65536).decode().splitlines()
            except BlockingIOError:
                return lines

    def close(self) -> None:
        """Free the port."""
        self._socket.close()


@dataclass(frozen=True)
class Point:
    """One value of one metric, as a collector received it."""

    name: str
    tags: dict[str, str]
    value: float
    kind: str
    temporality: str
    resource: dict[str, str]


@dataclass(frozen=True)
class SpanSeen:
    """One span, as a collector received it."""

    name: str
    attributes: dict[str, str | int | float]
    trace_id: str
    span_id: str
    parent_id: str
    status: str
    message: str
    events: int
    resource: dict[str, str]


@dataclass
class OtlpReceiver:
    """A collector: keeps every point and every span that was exported to it."""

    endpoint: str
    points: list[Point] = field(default_factory=list)
    spans: list[SpanSeen] = field(default_factory=list)

    def last(self, name: str, **tags: str) -> Point:
        """Return the newest point of a metric that has these tags."""
        return [p for p in self.points if p.name == name and tags.items() <= p.tags.items()][-1]

    def wait_for(self, condition: Callable[[OtlpReceiver], Any]) -> None:
        """Return once the condition holds; exports come from another thread or process."""
        until(lambda: condition(self), lambda: f"received {self.points}")


@contextmanager
def otlp_receiver() -> Iterator[OtlpReceiver]:
    """Run a collector that takes OTLP over HTTP."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found = self.path in ("/v1/metrics", "/v1/traces")
            answer = ExportMetricsServiceResponse().SerializeToString()
            if self.path == "/v1/metrics":
                receiver.points += _points(ExportMetricsServiceRequest.FromString(body))
            elif self.path == "/v1/traces":
                receiver.spans += _spans(ExportTraceServiceRequest.FromString(body))
                answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver = OtlpReceiver(f"http://127.0.0.1:{server.server_port}")
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield receiver
        server.shutdown()


def _points(request: ExportMetricsServiceRequest) -> list[Point]:
    return [
        Point(
            name=metric.name,
            tags=_texts(point.attributes),
            value=getattr(point, str(point.WhichOneof("value"))),
            kind=str(metric.WhichOneof("data")),
            temporality=AggregationTemporality.Name(metric.sum.aggregation_temporality),
            resource=_texts(resource_metrics.resource.attributes),
        )
        for resource_metrics in request.resource_metrics
        for scope_metrics in resource_metrics.scope_metrics
        for metric in scope_metrics.metrics
        for point in [*metric.sum.data_points, *metric.gauge.data_points]
    ]


def _spans(request: ExportTraceServiceRequest) -> list[SpanSeen]:
    return [
        SpanSeen(
            name=span.name,
            attributes={a.key: getattr(a.value, str(a.value.WhichOneof("value"))) for a in span.attributes},
            trace_id=span.trace_id.hex(),
            span_id=span.span_id.hex(),
            parent_id=span.parent_span_id.hex(),
            status=Status.StatusCode.Name(span.status.code),
            message=span.status.message,
            events=len(span.events),
            resource=_texts(resource_spans.resource.attributes),
        )
        for resource_spans in request.resource_spans
        for scope_spans in resource_spans.scope_spans
        for span in scope_spans.spans
    ]


def _texts(attributes: Any) -> dict[str, str]:
    return {attribute.key: attribute.value.string_value for attribute in attributes}
