"""Spans of a job: what it did when, for a trace that may start in the Airflow task.

If no collector is configured, a span costs one call that does nothing. Spans contain names and counts, never records.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.spark.otlp import FLUSH_SECONDS, TRACES, make_sender, resource_of

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

log = logging.getLogger(__name__)

Value = str | int | float


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
    """The spans of one job; an implementation of `Spans`. Close it when the job ends, however it ends.

    :param owner: the job's owner.
    :param source: the job's source.
    :param traceparent: the parent of all spans, in the form of W3C Trace Context; None to start a new trace.
    """

    def __init__(self, owner: str, source: str, traceparent: str | None = None) -> None:
        sender = make_sender(TRACES, lambda exporter: OtlpSpans(_provider(owner, exporter), owner, source, traceparent))
        self._spans: Spans = sender or NoSpans()
        self._sender = sender

    @override
    def span(self, name: str, **attributes: Value) -> AbstractContextManager[Span]:
        return self._spans.span(name, **attributes)

    def close(self) -> None:
        """Send the remaining spans; wait a few seconds at most."""
        if self._sender is not None:
            self._sender.close()


class OtlpSpans(Spans):
    """Sends spans to an OpenTelemetry collector, from a thread of OpenTelemetry.

    :param provider: makes the tracer; `close` shuts it down.
    :param owner: see `JobSpans`; set on every span, as is `source`.
    """

    def __init__(self, provider: TracerProvider, owner: str, source: str, traceparent: str | None = None) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("airflow_provider_coordination")
        self._everywhere = {"source": source, "owner": owner}
        carrier = {} if traceparent is None else {"traceparent": traceparent}
        self._parent = TraceContextTextMapPropagator().extract(carrier)

    @contextmanager
    @override
    def span(self, name: str, **attributes: Value) -> Iterator[Span]:
        from opentelemetry import trace

        parent = None if trace.get_current_span().get_span_context().is_valid else self._parent
        with self._tracer.start_as_current_span(
            f"coordination.{name}",
            context=parent,
            attributes=_named({**self._everywhere, **attributes}),
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


def _provider(owner: str, exporter: Any) -> TracerProvider:
    """Return a provider for this job only: a transform that uses OpenTelemetry's global provider is not affected."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=resource_of(owner), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider
