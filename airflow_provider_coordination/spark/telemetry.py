"""A job's metrics and spans, sent to the OpenTelemetry collector that the driver's environment configures, if any.

The variables are those of OpenTelemetry's specification, for one signal or for all. Its packages are imported only if a
collector is configured. A problem is reported in one warning: telemetry never fails a job. An unavailable collector
does not delay rounds, and delays the end of the job by a few seconds. Spans contain names and counts, never records.
"""

from __future__ import annotations

import importlib
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from airflow_provider_coordination.coordination.metrics import Metrics, MetricTotals
from airflow_provider_coordination.coordination.override import override

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider

log = logging.getLogger(__name__)


FLUSH_SECONDS = 3.0
"""How long the end of a job waits, at most, for a collector to accept the remaining metrics or spans."""
SERVICE_NAME = "coordination-ingest"
INSTRUMENTED = "airflow_provider_coordination"
PROTOCOLS = {
    "http/protobuf": "opentelemetry.exporter.otlp.proto.http",
    "grpc": "opentelemetry.exporter.otlp.proto.grpc",
}

T = TypeVar("T")
Value = str | int | float


@dataclass(frozen=True)
class Signal:
    """One kind of telemetry.

    :param name: its name in environment variables.
    :param label: its name in messages.
    :param exporter: `module:class` of its exporter, below the package of a protocol.
    """

    name: str
    label: str
    exporter: str

    @property
    def endpoints(self) -> tuple[str, str]:
        """The variables that name its collector; the first one that is set wins."""
        return f"OTEL_EXPORTER_OTLP_{self.name}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"

    @property
    def protocols(self) -> tuple[str, str]:
        """The variables that name the protocol; the first one that is set wins."""
        return f"OTEL_EXPORTER_OTLP_{self.name}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"

    @property
    def switch(self) -> str:
        """The variable that disables it, with the value `none`."""
        return f"OTEL_{self.name}_EXPORTER"


METRICS = Signal("METRICS", "metrics", "metric_exporter:OTLPMetricExporter")
TRACES = Signal("TRACES", "spans", "trace_exporter:OTLPSpanExporter")


def make_sender(signal: Signal, make: Callable[[Any], T]) -> T | None:
    """Return the sender of a signal to its collector; None if the environment configures none, or it cannot work.

    :param make: makes the sender from OpenTelemetry's exporter.
    """
    endpoint = next((name for name in signal.endpoints if os.environ.get(name)), None)
    if endpoint is None or os.environ.get(signal.switch, "otlp").strip() == "none":
        return None
    protocol = next((value for name in signal.protocols if (value := os.environ.get(name))), "http/protobuf")
    if protocol not in PROTOCOLS:
        log.warning(
            "%s are not exported: protocol %r of OpenTelemetry is not supported; set %s to one of %s",
            signal.label, protocol, signal.protocols[-1], ", ".join(PROTOCOLS),
        )  # fmt: skip
        return None
    module, _, name = signal.exporter.partition(":")
    try:
        return make(getattr(importlib.import_module(f"{PROTOCOLS[protocol]}.{module}"), name)())
    except ImportError as error:
        log.warning(
            "%s are not exported: %s is set, but OpenTelemetry is not installed (%s); install "
            "airflow-provider-coordination[otlp] where the Spark driver runs, or unset it",
            signal.label, endpoint, error,
        )  # fmt: skip
    except Exception as error:
        log.warning("%s are not exported: %s: %s; check the OTEL_ variables", signal.label, type(error).__name__, error)
    return None


def resource_of(owner: str) -> Resource:
    """Return the OpenTelemetry resource: the service, with the job as its instance."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    ours = Resource.create({"service.name": SERVICE_NAME, "service.instance.id": owner})
    return ours.merge(OTELResourceDetector().detect())  # the environment's values win


class JobMetrics(Metrics):
    """The metrics of one job: their totals, and what goes to the collector. Close it when the job ends.

    :param owner: the job's owner, which distinguishes its series from those of other jobs: `service.instance.id`.
    """

    def __init__(self, owner: str) -> None:
        self._totals = MetricTotals()
        self._provider = make_sender(METRICS, lambda exporter: _meter_provider(owner, exporter))
        self._instruments: dict[str, Any] = {}
        self._lock = threading.Lock()

    @override
    def count(self, name: str, tags: Mapping[str, str], by: int = 1) -> None:
        self._totals.count(name, tags, by)
        if self._provider is not None:
            self._instrument(self._provider, "create_counter", name).add(by, dict(tags))

    @override
    def gauge(self, name: str, value: float, tags: Mapping[str, str]) -> None:
        self._totals.gauge(name, value, tags)
        if self._provider is not None:
            self._instrument(self._provider, "create_gauge", name).set(value, dict(tags))

    @property
    def totals(self) -> dict[str, float]:
        """The totals so far that are not zero, by name, sorted."""
        return {str(name): value for name, value in self._totals.totals.items() if value}

    def close(self) -> None:
        """Log the totals, if there are any, and send the last counts, waiting a few seconds at most."""
        if self.totals:
            log.info("metrics: %s", " ".join(f"{name}={value}" for name, value in self.totals.items()))
        if self._provider is not None:
            try:
                self._provider.shutdown(timeout_millis=FLUSH_SECONDS * 1000)
            except Exception as error:
                log.warning("the last metrics may not have been exported: %s", error)

    def _instrument(self, provider: MeterProvider, create: str, name: str) -> Any:
        with self._lock:
            if name not in self._instruments:
                self._instruments[name] = getattr(provider.get_meter(INSTRUMENTED), create)(str(name))
            return self._instruments[name]


def _meter_provider(owner: str, exporter: Any) -> MeterProvider:
    """Return a provider for this job only: a transform that uses OpenTelemetry's global provider is not affected."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    return MeterProvider(
        metric_readers=[PeriodicExportingMetricReader(exporter)],
        resource=resource_of(owner),
        shutdown_on_exit=False,  # it waits for half a minute
    )


class Span(Protocol):
    """One operation of a trace."""

    def note(self, **attributes: Value) -> None:
        """Add attributes; their names get the prefix `coordination.`."""
        ...


class Spans(Protocol):
    """Makes spans. A span that is made within another span, in the same thread, is its child."""

    def span(self, name: str, **attributes: Value) -> AbstractContextManager[Span]:
        """Return the span of the block; an error that leaves the block is noted.

        :param name: the operation; gets the prefix `coordination.`, as the attributes do.
        """
        ...


class NoSpan:
    """A span that is not recorded."""

    def note(self, **attributes: Value) -> None:
        """Do nothing."""


NOTHING: AbstractContextManager[Span] = nullcontext(NoSpan())


class NoSpans:
    """Makes no spans."""

    def span(self, name: str, **attributes: Value) -> AbstractContextManager[Span]:
        """Return a span that does nothing."""
        return NOTHING


class JobSpans(Spans):
    """The spans of one job, which go to the collector. Close it when the job ends, however it ends.

    :param owner: the job's owner; set on every span, as is `source`.
    :param source: the job's source.
    :param traceparent: the parent of all spans, in the form of W3C Trace Context; None to start a new trace.
    """

    def __init__(self, owner: str, source: str, traceparent: str | None = None) -> None:
        self._provider = make_sender(TRACES, lambda exporter: _tracer_provider(owner, exporter))
        self._everywhere = {"source": source, "owner": owner}
        self._carrier = {} if traceparent is None else {"traceparent": traceparent}

    @override
    def span(self, name: str, **attributes: Value) -> AbstractContextManager[Span]:
        if self._provider is None:
            return NOTHING
        return self._recorded(self._provider, name, {**self._everywhere, **attributes})

    @contextmanager
    def _recorded(self, provider: TracerProvider, name: str, attributes: Mapping[str, Value]) -> Iterator[Span]:
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        is_within = trace.get_current_span().get_span_context().is_valid
        with provider.get_tracer(INSTRUMENTED).start_as_current_span(
            f"coordination.{name}",
            context=None if is_within else TraceContextTextMapPropagator().extract(self._carrier),
            attributes=_named(attributes),
            record_exception=False,  # its text may quote records
            set_status_on_exception=False,
        ) as otlp_span:
            try:
                yield _OtlpSpan(otlp_span)
            except BaseException as error:
                otlp_span.set_status(trace.Status(trace.StatusCode.ERROR, type(error).__name__))
                raise

    def close(self) -> None:
        """Send the remaining spans; wait a few seconds at most."""
        if self._provider is None:
            return
        # The SDK itself has no limit for this.
        closing = threading.Thread(target=self._provider.shutdown, name="spans", daemon=True)
        closing.start()
        closing.join(FLUSH_SECONDS)
        if closing.is_alive():
            log.warning("the last spans may not have been exported: the collector did not respond")


class _OtlpSpan:
    def __init__(self, span: Any) -> None:
        self._span = span

    def note(self, **attributes: Value) -> None:
        self._span.set_attributes(_named(attributes))


def _named(attributes: Mapping[str, Value]) -> dict[str, Value]:
    return {f"coordination.{name}": value for name, value in attributes.items()}


def _tracer_provider(owner: str, exporter: Any) -> TracerProvider:
    """Return a provider for this job only: a transform that uses OpenTelemetry's global provider is not affected."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=resource_of(owner), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider
