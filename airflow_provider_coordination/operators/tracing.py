"""The trace that a task is part of, handed on to the job that it starts."""

from __future__ import annotations


def traceparent_of_task() -> str | None:
    """Return the span in which a task runs, in the form of W3C Trace Context; None if Airflow makes no spans."""
    try:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    except ImportError:
        return None
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent")
