"""The trace context of a task, which it passes to the job that it starts."""

from __future__ import annotations


def traceparent_of_task() -> str | None:
    """Return the span of the running task in W3C Trace Context format; None if Airflow records no spans."""
    try:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    except ImportError:
        return None
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent")
