"""Operators with an interval have separate leases and exact bounds, and skip a delivered interval."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_coordination.airflow_names import AirflowFailException
from airflow_provider_coordination.coordination.administration import Administration
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.coordination.source_view import GLOBAL_STATE_KEY
from airflow_provider_coordination.operators.create_partitions import CreatePartitionsOperator
from airflow_provider_coordination.operators.shard_sync import ShardSyncOperator
from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.sources.s3.kind import S3Objects
from airflow_provider_coordination.spark.writes import ParquetDataset
from tests.airflow.conftest import SECRET, FakeKinesis, StubSpark
from tests.airflow.weather import weather
from tests.support.ingestions import with_ingestion

HOUR = timedelta(hours=1)
START = datetime.now(UTC).replace(microsecond=0) - 3 * HOUR
INTERVAL = f"{START.isoformat()}/PT1H"
NAME = f"clicks@{START:%Y-%m-%dT%H:%M:%SZ}--{START + HOUR:%Y-%m-%dT%H:%M:%SZ}"


@pytest.fixture(autouse=True)
def services(connect: Any, kinesis: FakeKinesis, coordination: SourceCoordinator) -> None:
    extra = {"region_name": "eu-west-1", "endpoint_url": kinesis.url}
    connect("aws_default", "aws", login="AKIA", password=SECRET, extra=extra)
    kinesis.streams["clicks"] = ["s0", "s1"]


def source_of(coordination: SourceCoordinator, name: str = NAME) -> SourceCoordinator:
    source = SourceCoordinator(coordination.store, name, "test")
    source.initialize()
    return source


def sync(**arguments: Any) -> ShardSyncOperator:
    return ShardSyncOperator(**{"task_id": "sync", "reads": KinesisStreams("clicks"), "interval": INTERVAL} | arguments)


def ingest(spark: StubSpark, folder: Any, **arguments: Any) -> CoordinatedSparkSubmitOperator:
    given = {
        "task_id": "ingest",
        "writes": ParquetDataset(str(folder)),
        "env_vars": {"PATH": spark.path},
        "interval": INTERVAL,
    }
    return CoordinatedSparkSubmitOperator(**with_ingestion(given | arguments))


def test_shards_are_read_from_the_start_of_the_interval(coordination: SourceCoordinator, context: Any) -> None:
    summary = sync().execute(context)
    assert summary["source"] == NAME
    shards = list(source_of(coordination).view.partitions())
    expected = f"AT_TIMESTAMP:{START:%Y-%m-%dT%H:%M:%S}"
    assert [shard.progress["checkpoint"].startswith(expected) for shard in shards] == [True, True]
    assert list(coordination.view.partitions()) == []


def test_shards_of_an_interval_are_synced_once(coordination: SourceCoordinator, context: Any) -> None:
    sync().execute(context)
    assert sync().execute(context)["skipped"] == "the shards within the bounds are known"


def test_interval_beyond_retention_is_refused_with_the_loss(context: Any) -> None:
    old = f"{(START - 48 * HOUR).isoformat()}/{START.isoformat()}"
    with pytest.raises(
        AirflowFailException, match="stream 'clicks' keeps records for 24 hours: the records that arrived from"
    ):
        sync(interval=old).execute(context)


def test_interval_partly_beyond_retention_is_read_on_request(
    coordination: SourceCoordinator, context: Any, caplog: pytest.LogCaptureFixture
) -> None:
    old = f"{(START - 48 * HOUR).isoformat()}/{START.isoformat()}"
    summary = sync(interval=old, reads=KinesisStreams("clicks", on_data_loss="earliest")).execute(context)
    assert "data loss: stream 'clicks' keeps records for 24 hours" in caplog.text
    assert len(list(source_of(coordination, summary["source"]).view.partitions())) == 2


def test_initial_position_beside_an_interval_is_refused(context: Any) -> None:
    with pytest.raises(
        AirflowFailException, match="field 'initial_position' is 'LATEST', but field 'interval' already bounds"
    ):
        sync(reads=KinesisStreams("clicks", initial_position="LATEST")).execute(context)


def test_job_stops_at_the_end_of_the_interval(
    coordination: SourceCoordinator, spark: StubSpark, context: Any, tmp_path: Any
) -> None:
    sync().execute(context)
    ingest(spark, tmp_path, reads=KinesisStreams("clicks")).execute(context)
    [call] = spark.calls
    settings, streams = call["settings"], call["settings"]["reads"]["settings"]
    assert (settings["source"], streams["stop_at"]) == (NAME, None)
    assert [datetime.fromisoformat(streams["bounds"][end]) for end in ("start", "end")] == [START, START + HOUR]
    assert KinesisStreams.from_mapping(streams).syncs_every is None


def test_delivered_interval_starts_no_job(
    coordination: SourceCoordinator, spark: StubSpark, context: Any, tmp_path: Any
) -> None:
    sync().execute(context)
    source = source_of(coordination)
    for partition in source.leases.acquire(2):
        source.leases.complete(partition.partition_key)
    result = ingest(spark, tmp_path, reads=KinesisStreams("clicks")).execute(context)
    assert (spark.calls, result["stopped_because"]) == ([], "nothing is left to do")
    assert source.view.count_by_status()[PartitionStatus.COMPLETED] == 2


def test_stop_at_beside_an_interval_is_refused(spark: StubSpark, context: Any, tmp_path: Any) -> None:
    with pytest.raises(AirflowFailException, match="field 'stop_at' is 'start', but field 'interval' already bounds"):
        ingest(spark, tmp_path, reads=KinesisStreams("clicks", stop_at="start")).execute(context)


def test_objects_are_selected_by_modification_time(tmp_path: Any) -> None:
    bounded = S3Objects(paths=str(tmp_path)).within(START, START + HOUR)
    settings = bounded.resolved()
    assert (settings.start_time, settings.end_time) == (START, START + HOUR)


def test_interval_scanned_after_its_end_is_not_scanned_again(
    coordination: SourceCoordinator, context: Any, tmp_path: Any
) -> None:
    objects = tmp_path / "objects"
    objects.mkdir()
    file = objects / "a.json"
    file.write_text("{}")
    os.utime(file, (START.timestamp(), START.timestamp()))
    reads = S3Objects(paths=f"{objects}/", source="clicks")
    source = source_of(coordination)

    def create(interval: str = INTERVAL) -> dict[str, Any]:
        return CreatePartitionsOperator(task_id="create", reads=reads, interval=interval).execute(context)

    assert (create()["supplier"], create()["supplier"]) == ("ran", "had found everything before")
    state = source.store.get(source.view.family("GLOBAL_STATE"), GLOBAL_STATE_KEY)
    again = create()
    assert (again["created"], again["available"], again["partitions"]["UNASSIGNED"]) == (0, True, 1)
    stored = source.store.get(source.view.family("GLOBAL_STATE"), GLOBAL_STATE_KEY)
    assert stored == state, "not even its lease is written"
    [partition] = source.view.partitions()
    Administration(source.store, source.view.source_identifier).delete(partition.partition_key)
    assert create()["created"] == 1, "what was deleted is found again"


def test_interval_that_is_not_over_is_scanned_again(
    coordination: SourceCoordinator, context: Any, tmp_path: Any
) -> None:
    today = f"{START.isoformat()}/P1D"
    for number in range(2):
        (tmp_path / f"{number}.json").write_text("{}")
        create = CreatePartitionsOperator(
            task_id="create", reads=S3Objects(paths=f"{tmp_path}/", include="*.json"), interval=today
        )
        summary = create.execute(context)
        assert (summary["supplier"], summary["created"]) == ("ran", 1)


def test_own_bounds_beside_an_interval_are_refused(context: Any, coordination: Any, tmp_path: Any) -> None:
    objects = S3Objects(paths=str(tmp_path), source="orders", start_time=START)
    with pytest.raises(AirflowFailException, match="'start_time' and the operator's 'interval' are both given"):
        CreatePartitionsOperator(task_id="create", reads=objects, interval=INTERVAL).execute(context)


def test_kind_without_time_is_refused(context: Any, coordination: Any) -> None:
    with pytest.raises(AirflowFailException, match="cannot be read by time; remove the field"):
        CreatePartitionsOperator(task_id="create", reads=weather(), interval=INTERVAL).execute(context)
