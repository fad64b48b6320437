"""Whole jobs of spark-submit: their ends, their leftovers, and bad input."""

from __future__ import annotations

import signal
from datetime import timedelta
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from airflow_provider_coordination.coordination.administration import Administration
from airflow_provider_coordination.coordination.metrics import CoordinationMetric
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.coordination.retries import RetryPolicy
from airflow_provider_coordination.spark.job_reporting import IngestionMetric
from tests.support.job_settings import parquet
from tests.support.metric_receivers import otlp_receiver
from tests.support.spark_job import MakePipeline
from tests.support.waiting import PATIENCE_SECONDS

FRAGILE = "tests.support.transforms:fragile"


@pytest.mark.only_deep
def test_stopped_job_releases_its_leases(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(2)
    pipeline.send(10)
    pipeline.sync()
    job = pipeline.start(until_caught_up=False)
    job.wait_for("round 2:")
    assert pipeline.statuses()[PartitionStatus.ASSIGNED] == 2
    job.driver().send_signal(signal.SIGTERM)
    assert job.wait() == 0, job.output
    assert job.summary["stopped_because"] == "it was stopped"
    assert job.summary["metrics"]["coordination.partitions_given_up"] == 2
    assert "coordination.records_delivered=100" in job.output
    assert pipeline.statuses()[PartitionStatus.UNASSIGNED] == 2
    pipeline.assert_exactly_once()


def test_job_with_a_killed_jvm_releases_leases_and_exports_counts(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(2)
    pipeline.send(5)
    pipeline.sync()
    with otlp_receiver() as collector:
        job = pipeline.start(
            until_caught_up=False,
            env={"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint, "OTEL_METRIC_EXPORT_INTERVAL": "500"},
        )
        job.wait_for("round 2:")
        collector.wait_for(lambda c: any(p.name == IngestionMetric.RECORDS_DELIVERED for p in c.points))
        driver = job.driver()
        job.process.kill()  # what Airflow does to spark-submit when a task is stopped
        driver.wait(PATIENCE_SECONDS)
    assert pipeline.statuses()[PartitionStatus.UNASSIGNED] == 2
    last = {name: collector.last(name) for name in {point.name for point in collector.points}}
    assert last[IngestionMetric.RECORDS_LANDED].value == last[IngestionMetric.RECORDS_DELIVERED].value == 50
    assert last[IngestionMetric.MILLIS_BEHIND_LATEST].kind == "gauge"
    assert last[CoordinationMetric.PARTITIONS_ACQUIRED].value == 2
    assert last[CoordinationMetric.PARTITIONS_GIVEN_UP].value == 2, "counted after the JVM was gone"
    for point in last.values():
        to = {"sink": "main"} if point.name in (IngestionMetric.SINK_RECORDS, IngestionMetric.FRESHNESS_SECONDS) else {}
        assert point.tags == {"source": "clicks", "store": "sqlite"} | to
        assert point.resource["service.instance.id"] == job.settings.owner

    pipeline.send(5)
    assert pipeline.run().process.returncode == 0
    pipeline.assert_exactly_once()


@pytest.mark.only_deep
def test_two_jobs_share_a_source_through_resharding(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(4)
    pipeline.send(20)
    pipeline.sync()
    jobs = [pipeline.start(workers=2, until_caught_up=False) for _ in range(2)]
    for job in jobs:
        job.wait_for("round 1:")
    split = pipeline.split_a_shard()
    pipeline.send(20)
    shards = sorted(shard["ShardId"] for shard in pipeline.client.list_shards(StreamName=pipeline.stream)["Shards"])
    pipeline.merge_shards(shards[2], shards[3])
    pipeline.send(20)
    pipeline.wait_until_delivered()
    for job in jobs:
        job.driver().send_signal(signal.SIGTERM)
    for job in jobs:
        assert job.wait() == 0, job.output
    pipeline.assert_exactly_once()
    completed = [key for job in jobs for key in job.summary["completed"]]
    assert sorted(key.rsplit(":")[-1] for key in completed) == sorted([split, shards[2], shards[3]])
    assert pipeline.statuses()[PartitionStatus.UNASSIGNED] == 4
    assert all(job.summary["records_delivered"] for job in jobs), "both had a share of the work"


@pytest.mark.only_deep
def test_bad_records_block_their_shard_until_a_dead_letter_path(make_pipeline: MakePipeline, tmp_path: Path) -> None:
    pipeline = make_pipeline(2)
    pipeline.send(20)
    pipeline.send_poison()
    pipeline.sync()
    # However busy the machine is, the next job comes while the shard rests.
    bad = pipeline.run(transform=FRAGILE, retry_policy=RetryPolicy(first_delay=timedelta(minutes=30)))
    assert bad.process.returncode == 1, bad.output
    [(partition, reason)] = bad.summary["failed"].items()
    assert "at least 1 of" in reason and "ValueError: this record is poison" in reason
    assert "set 'dead_letter_path' to keep bad records there" in reason
    assert f"failed: partition={partition}" in bad.output
    assert 0 < len(pipeline.delivered()) < len(pipeline.sent), "the other shard went on"

    early = pipeline.run(transform="tests.support.transforms:keep_data")
    assert early.process.returncode == 0 and early.summary["resting"] == [partition], early.output
    assert f"not delivered: partition {partition} waits until" in early.output
    coordinator = pipeline.coordinator()
    Administration(coordinator.store, coordinator.view.source_identifier).reopen(partition)

    pipeline.client.put_record(StreamName=pipeline.stream, PartitionKey="bad", Data=b"no JSON")
    good = pipeline.run(
        schema="id STRING NOT NULL",
        transform=FRAGILE,
        writes=(parquet(pipeline.output), parquet(tmp_path / "half", "half", "id < '8'")),
        dead_letter_path=str(tmp_path / "dead"),
        max_parse_exceptions=2,
        max_saved_parse_exceptions=5,
    )
    assert good.process.returncode == 0, good.output
    pipeline.sent.remove("poison")
    pipeline.assert_exactly_once()
    letters = ds.dataset(tmp_path / "dead").to_table().to_pylist()
    assert {letter["stage"]: letter["data"] for letter in letters} == {
        "transform": b'{"id": "poison"}',
        "schema": b"no JSON",
    }
    half = ds.dataset(tmp_path / "half").to_table()["id"].to_pylist()
    delivered = good.summary["records_by_sink"]["main"]
    assert half and max(half) < "8" and len(half) == len(set(half)) == good.summary["records_by_sink"]["half"]
    assert good.summary["records_delivered"] == delivered + 2 and good.summary["unrouted"] == 0
    assert (good.summary["dead_letters"], good.summary["parse_exceptions"]) == (2, 2)
    assert {saved["data"] for saved in good.summary["saved_parse_exceptions"]} == {'{"id": "poison"}', "no JSON"}
    metrics = good.summary["metrics"]
    assert metrics["coordination.parse_exceptions"] == 2
    assert metrics["coordination.sink_records"] == delivered + 2 + len(half)
