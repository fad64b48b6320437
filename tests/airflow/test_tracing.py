"""A job's trace is a child of its task's trace."""

from __future__ import annotations

import sys

import pytest
from opentelemetry.sdk.trace import TracerProvider

from airflow_provider_coordination.operators.claims import traceparent_of_task


def test_span_of_the_task_is_passed_on() -> None:
    with TracerProvider(shutdown_on_exit=False).get_tracer("task").start_as_current_span("task") as span:
        context = span.get_span_context()
        assert traceparent_of_task() == f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def test_untraced_task_passes_on_nothing() -> None:
    assert traceparent_of_task() is None


def test_airflow_without_opentelemetry_passes_on_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace.propagation.tracecontext", None)
    assert traceparent_of_task() is None
