"""The counts of a job are kept for its end, and exported to the collector of OpenTelemetry's variables."""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Iterator

import pytest

from airflow_provider_coordination.coordination.freshness import Ages
from airflow_provider_coordination.coordination.metrics import CoordinationMetric
from airflow_provider_coordination.spark.job_reporting import IngestionMetric, RoundCounts
from airflow_provider_coordination.spark.outcome import Summary
from airflow_provider_coordination.spark.reading import RoundRead
from airflow_provider_coordination.spark.telemetry import JobMetrics
from tests.support.metric_receivers import OtlpReceiver, otlp_receiver

ACQUIRED = CoordinationMetric.PARTITIONS_ACQUIRED
TAGS = {"source": "clicks", "store": "sqlite"}


@pytest.fixture(autouse=True)
def no_collector(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("ENDPOINT", "METRICS_ENDPOINT", "PROTOCOL", "METRICS_PROTOCOL"):
        monkeypatch.delenv(f"OTEL_EXPORTER_OTLP_{name}", raising=False)
    caplog.set_level(logging.INFO, logger="airflow_provider_coordination")


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpReceiver]:
    with otlp_receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        yield receiver


def ours(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name.startswith("airflow_provider_coordination")]


def test_end_logs_every_nonzero_total(caplog: pytest.LogCaptureFixture) -> None:
    metrics = JobMetrics("owner")
    metrics.count(ACQUIRED, TAGS, 2)
    metrics.count(ACQUIRED, TAGS)
    metrics.count(CoordinationMetric.PARTITIONS_CLOSED, TAGS, 0)
    metrics.gauge(IngestionMetric.MILLIS_BEHIND_LATEST, 1_234_567, TAGS)
    metrics.close()
    assert metrics.totals == {"coordination.millis_behind_latest": 1_234_567, "coordination.partitions_acquired": 3}
    assert ours(caplog) == ["metrics: coordination.millis_behind_latest=1234567 coordination.partitions_acquired=3"]


def test_job_without_counts_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    JobMetrics("owner").close()
    assert ours(caplog) == []


def test_round_lag_is_the_lag_of_its_furthest_partition() -> None:
    metrics = JobMetrics("owner")
    counts = RoundCounts(metrics, TAGS)
    lags = {"a": 0, "b": None, "c": 700, "d": 20}
    counts.note(Summary(records_landed=5, records_delivered=3), RoundRead(behind_ms=lags), {})
    counts.note(Summary(records_landed=6, records_delivered=6), RoundRead(), {})
    assert metrics.totals == {
        "coordination.millis_behind_latest": 700,
        "coordination.records_delivered": 6,
        "coordination.records_landed": 6,
    }


def test_round_counts_items_and_omits_unknown_lag() -> None:
    metrics = JobMetrics("owner")
    RoundCounts(metrics, TAGS).note(Summary(), RoundRead(items=9, gone=2, set_aside=1), {})
    assert metrics.totals == {
        "coordination.items_gone": 2,
        "coordination.items_read": 9,
        "coordination.items_set_aside": 1,
    }


def test_total_freshness_belongs_to_the_slowest_sink() -> None:
    metrics = JobMetrics("owner")
    ages = {"slow": Ages.between(50, 50, 10), "fast": Ages.between(1, 1, 10)}
    RoundCounts(metrics, TAGS).note(Summary(), RoundRead(), ages)
    assert metrics.totals == {"coordination.freshness_seconds": ages["slow"].quantile(0.95)}


def test_counts_reach_the_collector_before_the_job_ends(collector: OtlpReceiver) -> None:
    metrics = JobMetrics("host:dag:run:task")
    metrics.count(ACQUIRED, TAGS, 2)
    metrics.count(ACQUIRED, TAGS)
    metrics.gauge(IngestionMetric.MILLIS_BEHIND_LATEST, 700, TAGS)
    metrics.close()
    acquired = collector.last("coordination.partitions_acquired")
    assert (acquired.value, acquired.tags, acquired.kind) == (3, TAGS, "sum")
    assert (
        acquired.resource.items()
        >= {
            "service.name": "coordination-ingest",
            "service.instance.id": "host:dag:run:task",
        }.items()
    )
    behind = collector.last("coordination.millis_behind_latest")
    assert (behind.value, behind.tags, behind.kind) == (700, TAGS, "gauge")


def test_running_job_exports_at_the_configured_interval(
    collector: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
    metrics = JobMetrics("owner")
    for total in (1, 2):
        metrics.count(ACQUIRED, TAGS)
        collector.wait_for(lambda c, total=total: c.points and c.last(ACQUIRED).value == total)
    metrics.close()


def test_environment_names_the_service(collector: OtlpReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "clicks-ingestion")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=staging")
    metrics = JobMetrics("owner")
    metrics.count(ACQUIRED, TAGS)
    metrics.close()
    resource = collector.last(ACQUIRED).resource
    assert resource["service.name"] == "clicks-ingestion"
    assert resource["service.instance.id"] == "owner"
    assert resource["deployment.environment.name"] == "staging"


def test_metrics_endpoint_wins(collector: OtlpReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", f"{collector.endpoint}/v1/metrics")
    metrics = JobMetrics("owner")
    metrics.count(ACQUIRED, TAGS)
    metrics.close()
    assert collector.last(ACQUIRED).value == 1


@pytest.mark.parametrize("variable", [("OTEL_METRICS_EXPORTER", "none"), ("OTEL_SDK_DISABLED", "true")])
def test_export_can_be_turned_off(
    collector: OtlpReceiver, monkeypatch: pytest.MonkeyPatch, variable: tuple[str, str]
) -> None:
    monkeypatch.setenv(*variable)
    metrics = JobMetrics("owner")
    metrics.count(ACQUIRED, TAGS)
    metrics.close()
    assert collector.points == []
    assert metrics.totals == {"coordination.partitions_acquired": 1}


def test_opentelemetry_is_not_imported_without_an_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("opentelemetry")]:
        monkeypatch.delitem(sys.modules, name)
    JobMetrics("owner").close()
    assert not any(name.startswith("opentelemetry") for name in sys.modules)


def test_missing_packages_cause_one_warning_naming_the_extra(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.metrics", None)
    metrics = JobMetrics("owner")
    metrics.count(ACQUIRED, TAGS)
    [warning] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.startswith("metrics are not exported: OTEL_EXPORTER_OTLP_ENDPOINT is set, but OpenTelemetry is not")
    assert "install airflow-provider-coordination[otlp] where the Spark driver runs" in warning
    assert metrics.totals == {"coordination.partitions_acquired": 1}


@pytest.mark.parametrize(
    ("name", "value", "reported"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "protocol 'http/json' of OpenTelemetry is not supported"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "0", "interval value 0.0 is invalid"),
    ],
)
def test_invalid_variables_are_reported_without_stopping(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str, value: str, reported: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv(name, value)
    JobMetrics("owner").close()
    [warning] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.startswith("metrics are not exported: ") and reported in warning


@pytest.mark.integration  # needs no server, but whole processes, and so seconds
@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
@pytest.mark.parametrize("listening", [False, True], ids=["refuses", "never answers"])
def test_end_does_not_wait_for_an_unreachable_collector(
    monkeypatch: pytest.MonkeyPatch, protocol: str, listening: bool
) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if listening:
            server.listen()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "3600")  # seconds, more than this test may take
        metrics = JobMetrics("owner")
        metrics.count(ACQUIRED, TAGS)
        metrics.close()
