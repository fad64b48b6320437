"""A job's spans: their export, their content, and their cost without a collector."""

from __future__ import annotations

import contextvars
import logging
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from airflow_provider_coordination.spark.telemetry import JobSpans
from tests.support.fleet import FakeStream, Fleet
from tests.support.metric_receivers import OtlpReceiver, SpanSeen, otlp_receiver

TRACE, TASK = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{TASK}-01"


@pytest.fixture(autouse=True)
def no_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ENDPOINT", "TRACES_ENDPOINT", "PROTOCOL", "TRACES_PROTOCOL"):
        monkeypatch.delenv(f"OTEL_EXPORTER_OTLP_{name}", raising=False)
    monkeypatch.delenv("OTEL_TRACES_EXPORTER", raising=False)


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpReceiver]:
    with otlp_receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        yield receiver


def by_name(collector: OtlpReceiver) -> dict[str, SpanSeen]:
    return {span.name.removeprefix("coordination."): span for span in collector.spans}


def test_nested_spans_are_children_across_threads(
    collector: OtlpReceiver,
) -> None:
    def deliver() -> None:
        with spans.span("batch", records=3):
            pass

    with closing(JobSpans("me", "clicks", TRACEPARENT)) as spans, spans.span("round", round=1) as made:
        with spans.span("land"), ThreadPoolExecutor(1) as pool:
            pool.submit(contextvars.copy_context().run, deliver).result()
        made.note(records=3)
    seen = by_name(collector)
    assert {span.trace_id for span in seen.values()} == {TRACE}
    assert seen["round"].parent_id == TASK
    assert seen["land"].parent_id == seen["round"].span_id
    assert seen["batch"].parent_id == seen["land"].span_id
    assert seen["round"].attributes == {
        "coordination.source": "clicks",
        "coordination.owner": "me",
        "coordination.round": 1,
        "coordination.records": 3,
    }
    assert (
        seen["batch"].resource.items() >= {"service.name": "coordination-ingest", "service.instance.id": "me"}.items()
    )


def test_job_without_a_traced_task_begins_a_trace(collector: OtlpReceiver) -> None:
    with closing(JobSpans("me", "clicks")) as spans, spans.span("job"):
        pass
    [job] = collector.spans
    assert (job.parent_id, len(job.trace_id)) == ("", 32)


def test_failed_span_names_the_error_without_its_text(collector: OtlpReceiver) -> None:
    spans = JobSpans("me", "clicks")
    with pytest.raises(ValueError, match="of a record"), spans.span("deliver"):
        raise ValueError("the text of a record")
    spans.close()
    [failed] = collector.spans
    assert (failed.status, failed.message, failed.events) == ("STATUS_CODE_ERROR", "ValueError", 0)


@pytest.mark.parametrize("variable", [("OTEL_TRACES_EXPORTER", "none"), ("OTEL_SDK_DISABLED", "true")])
def test_spans_can_be_turned_off(
    collector: OtlpReceiver, monkeypatch: pytest.MonkeyPatch, variable: tuple[str, str]
) -> None:
    monkeypatch.setenv(*variable)
    with closing(JobSpans("me", "clicks")) as spans, spans.span("job") as made:
        made.note(records=1)
    assert collector.spans == []


def test_missing_endpoint_imports_no_opentelemetry_and_shares_one_span(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.startswith("opentelemetry")]:
        monkeypatch.delitem(sys.modules, name)
    with closing(JobSpans("me", "clicks", TRACEPARENT)) as spans:
        with spans.span("round") as made:
            made.note(records=1)
        assert spans.span("a") is spans.span("b"), "a span without a collector makes no objects"
    assert not any(name.startswith("opentelemetry") for name in sys.modules)


def test_missing_packages_cause_one_warning_naming_the_extra(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with closing(JobSpans("me", "clicks")) as spans, spans.span("job"):
        pass
    [warning] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.startswith("spans are not exported: OTEL_EXPORTER_OTLP_ENDPOINT is set, but OpenTelemetry is not")


def test_job_with_an_unclosed_trace_ends(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    hangs = threading.Event()
    monkeypatch.setattr("airflow_provider_coordination.spark.telemetry.FLUSH_SECONDS", 0.05)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("opentelemetry.sdk.trace.TracerProvider.shutdown", lambda provider: hangs.wait(10))
    spans = JobSpans("me", "clicks")
    try:
        spans.close()
        assert "the last spans may not have been exported" in caplog.text
    finally:
        hangs.set()


def test_round_has_spans_of_its_phases_with_counts(tmp_path: Path, collector: OtlpReceiver) -> None:
    fleet = Fleet(FakeStream(2), tmp_path)
    fleet.stream.send(5)
    with closing(JobSpans("me", "clicks")) as spans:
        fleet.run(spans=spans, max_idle_rounds=1, until_caught_up=False)
    rounds = {s.attributes["coordination.round"]: s for s in collector.spans if "coordination.round" in s.attributes}
    first, second = ({s.name: s for s in collector.spans if s.parent_id == rounds[n].span_id} for n in (1, 2))
    assert set(first) == {f"coordination.{phase}" for phase in ("acquire", "land", "record")}
    assert set(second) == {*first, "coordination.deliver"}, "what a round landed is delivered in the next"
    assert first["coordination.acquire"].attributes["coordination.partitions"] == 2
    for phase in ("land", "record"):
        assert first[f"coordination.{phase}"].attributes["coordination.records"] == 5
    assert rounds[1].attributes.items() >= {"coordination.landed": 5, "coordination.records": 0}.items()
    assert rounds[2].attributes.items() >= {"coordination.landed": 0, "coordination.records": 5}.items()
    [delivery] = [s for s in collector.spans if s.parent_id == second["coordination.deliver"].span_id]
    assert delivery.attributes.items() >= {"coordination.batches": 2, "coordination.records": 5}.items()
    parts = [s for s in collector.spans if s.parent_id == delivery.span_id]
    assert sum(int(s.attributes["coordination.records"]) for s in parts if s.name == "coordination.batch") == 5
    [released] = [s for s in parts if s.name == "coordination.acknowledge"]
    assert released.attributes.items() >= {"coordination.batches": 2, "coordination.sinks": 1}.items()
