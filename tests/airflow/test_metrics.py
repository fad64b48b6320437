"""Counts reach StatsD and OpenTelemetry through Airflow, with their tags."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.metrics import CoordinationMetric
from airflow_provider_coordination.hooks.coordination import AirflowMetrics, CoordinationHook
from airflow_provider_coordination.sensors.partitions import PartitionsCompletedSensor
from tests.airflow.conftest import REPOSITORY
from tests.support.airflow_stats import influxdb_stats, set_no_stats, set_stats
from tests.support.metric_receivers import StatsdReceiver, otlp_receiver
from tests.support.waiting import PATIENCE_SECONDS

CREATED = CoordinationMetric.PARTITIONS_CREATED
TAGS = {"source": "clicks", "store": "sqlite"}

DAG_FILE = """
from contextlib import closing

from airflow.sdk import DAG

from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.sensors.partitions import PartitionsCompletedSensor


class CreateAndLook(PartitionsCompletedSensor):
    def poke(self, context):
        coordinator = CoordinationHook().coordinator("clicks", "somebody")
        with closing(coordinator.store):
            coordinator.create_partitions({"a": {}, "b": {}})
        super().poke(context)
        return True


with DAG(dag_id="metrics", schedule=None):
    CreateAndLook(task_id="create_and_look", source="clicks")
"""


@pytest.fixture
def statsd() -> Iterator[StatsdReceiver]:
    receiver = StatsdReceiver()
    yield receiver
    receiver.close()


@pytest.fixture
def stats(statsd: StatsdReceiver) -> Iterator[StatsdReceiver]:
    """Sets Airflow's stats of this process up as a task's are, to StatsD in the format of InfluxDB."""
    set_stats(lambda: influxdb_stats(statsd.port))
    yield statsd
    set_no_stats()


@pytest.fixture
def run_task(tmp_path: Path, store_url: str) -> Any:
    """Runs the task in processes of its own, with metrics set up in their environment; returns what they logged."""
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "metrics.py").write_text(DAG_FILE)

    def run(**environment: str) -> str:
        connection = {"conn_type": "coordination", "extra": {"url": store_url}}
        script = Path(__file__).with_name("task_process.py")
        done = subprocess.run(
            [sys.executable, str(script), "metrics.py", "metrics", "create_and_look"],
            env={
                **os.environ,
                "PYTHONPATH": str(REPOSITORY),
                "AIRFLOW_HOME": str(tmp_path / "airflow"),
                "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{tmp_path}/airflow.db",
                "AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path / "dags"),
                "AIRFLOW_CONN_COORDINATION_DEFAULT": json.dumps(connection),
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    return run


@pytest.mark.integration  # needs no server, but whole processes, and so seconds
def test_task_sends_counts_to_statsd(run_task: Any, statsd: StatsdReceiver) -> None:
    run_task(
        AIRFLOW__METRICS__STATSD_ON="True",
        AIRFLOW__METRICS__STATSD_HOST="127.0.0.1",
        AIRFLOW__METRICS__STATSD_PORT=str(statsd.port),
        AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED="True",
    )
    ours = {line for line in statsd.received() if "coordination." in line}
    assert ours >= {
        "airflow.coordination.partitions_created,source=clicks,store=sqlite:2|c",
        "airflow.coordination.partitions,source=clicks,store=sqlite,status=UNASSIGNED:2|g",
        "airflow.coordination.partitions,source=clicks,store=sqlite,status=COMPLETED:0|g",
    }


@pytest.mark.integration  # needs no server, but whole processes, and so seconds
def test_task_sends_counts_to_opentelemetry_before_it_ends(run_task: Any) -> None:
    with otlp_receiver() as collector:
        run_task(
            AIRFLOW__METRICS__OTEL_ON="True",
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint,
            OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
            OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE="delta",
        )
    created = collector.last("airflow.coordination.partitions_created")
    assert (created.value, created.tags, created.kind) == (2, TAGS, "sum")
    assert created.temporality == "AGGREGATION_TEMPORALITY_DELTA"
    waiting = collector.last("airflow.coordination.partitions", status="UNASSIGNED")
    assert (waiting.value, waiting.tags, waiting.kind) == (2, {**TAGS, "status": "UNASSIGNED"}, "gauge")


def test_coordinator_of_the_hook_counts_by_airflow_stats(
    coordination: SourceCoordinator, stats: StatsdReceiver
) -> None:
    coordinator = CoordinationHook().coordinator("clicks", "somebody")
    coordinator.create_partitions({"a": {}})
    coordinator.store.close()
    assert "airflow.coordination.partitions_created,source=clicks,store=sqlite:1|c" in stats.received()


def test_poke_records_the_partition_count_of_each_status(
    coordination: SourceCoordinator, stats: StatsdReceiver, context: Any
) -> None:
    sensor = PartitionsCompletedSensor(task_id="wait", source="clicks")
    name = "airflow.coordination.partitions,source=clicks,store=sqlite,status="
    statuses = ("UNASSIGNED", "ASSIGNED", "CLOSED", "COMPLETED")
    sensor.poke(context)
    assert [line for line in stats.received() if name in line] == [f"{name}{status}:0|g" for status in statuses]
    coordination.create_partitions({"a": {}, "b": {}})
    coordination.leases.acquire(1)
    sensor.poke(context)
    assert [line for line in stats.received() if name in line] == [
        f"{name}{status}:{count}|g" for status, count in zip(statuses, (1, 1, 0, 0), strict=True)
    ]


def test_count_of_several_is_sent_as_one(stats: StatsdReceiver) -> None:
    AirflowMetrics().count(CREATED, TAGS, 7)
    assert stats.received() == ["airflow.coordination.partitions_created,source=clicks,store=sqlite:7|c"]


@pytest.mark.parametrize("source", ["a b", "a,b", "a=b", "a/b", "aéb"])
def test_source_name_is_sanitized_for_statsd(stats: StatsdReceiver, source: str) -> None:
    AirflowMetrics().count(CREATED, {"source": source})
    assert stats.received() == ["airflow.coordination.partitions_created,source=a_b:1|c"]


def test_failed_stats_setup_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Any:
        raise ValueError("no such port: 'http'")

    set_stats(broken)
    try:
        metrics = AirflowMetrics()
        metrics.count(CREATED, TAGS)
        metrics.gauge("coordination.partitions", 1, TAGS)
    finally:
        set_no_stats()
    assert [record.getMessage() for record in caplog.records] == [
        "Airflow's stats failed; this task reports no metrics: ValueError: no such port: 'http'"
    ]


def test_missing_backend_sends_nothing_and_fails_nothing(statsd: StatsdReceiver) -> None:
    AirflowMetrics().count(CREATED, TAGS)
    AirflowMetrics().gauge("coordination.partitions", 1, TAGS)
    assert statsd.received() == []
