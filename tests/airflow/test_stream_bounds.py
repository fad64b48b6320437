"""Bounded reads of streams: how bounds are set, their separate source, and invalid bounds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_provider_coordination.airflow_names import AirflowFailException
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.operators.interval import Interval
from airflow_provider_coordination.operators.shard_sync import ShardSyncOperator
from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator
from airflow_provider_coordination.sources.kinesis.bounds import Bounds, ShardBounds, bounds_value
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.writes import ParquetDataset
from airflow_provider_coordination.task_groups.ingestion import coordinated_ingestion
from tests.airflow.conftest import SECRET, FakeKinesis, StubSpark

START = datetime(2026, 1, 1, tzinfo=UTC)
END = START + timedelta(days=1)
INSTANTS = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"}
POSITIONS = {"start": {"s0": "5", "s1": 7}, "end": {"s1": "9", "s0": "5"}}


def source_of(coordination: SourceCoordinator, name: str) -> SourceCoordinator:
    source = SourceCoordinator(coordination.store, name, "test")
    source.initialize()
    return source


# How they are given


@pytest.mark.parametrize(
    ("given", "bounds"),
    [
        (None, None),
        ("", None),
        (INSTANTS, Bounds(start=START, end=END)),
        ({"start": START, "end": END}, Bounds(start=START, end=END)),
        ({"start": "TRIM_HORIZON", "end": END}, Bounds(end=END)),
        (
            POSITIONS,
            Bounds(
                shards=(ShardBounds(shard_id="s0", start="5", end="5"), ShardBounds(shard_id="s1", start="7", end="9"))
            ),
        ),
    ],
    ids=str,
)
def test_bounds_are_instants_or_sequence_numbers_by_shard(given: Any, bounds: Bounds | None) -> None:
    assert bounds_value(given) == bounds


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"start": START}, "must have 'start' and 'end', such as"),
        ({**INSTANTS, "until": END}, "must have 'start' and 'end', such as"),
        ("2026-01-01/2026-01-02", "must have 'start' and 'end'.*got '2026-01-01/2026-01-02'"),
        (
            {"start": "yesterday", "end": END},
            "'bounds.start' must be an instant with a time zone.*or 'TRIM_HORIZON'; got",
        ),
        ({"start": START, "end": "2026-01-02T00:00:00"}, "'bounds.end' must be an instant with a time zone"),
        ({"start": END, "end": START}, "'bounds.start' must be before 'end'.*exchange the two"),
        ({"start": START, "end": START}, "'bounds.start' must be before 'end'"),
        (
            {"start": START, "end": {"s0": "5"}},
            "must have an instant both as 'start' and as 'end', or sequence numbers by shard in both",
        ),
        (
            {"start": {"s0": "1"}, "end": {"s1": "1"}},
            "must name the same shards in 'start' and 'end', but only 'start' names 's0'",
        ),
        ({"start": {}, "end": {}}, "must name at least one shard"),
        (
            {"start": {"s0": "LATEST"}, "end": {"s0": "5"}},
            "'bounds.start' must have a sequence number .* for shard 's0'; got 'LATEST'",
        ),
        (
            {"start": {"s0": 1.0}, "end": {"s0": "5"}},
            "must have a sequence number in decimal digits for shard 's0'; got 1.0",
        ),
    ],
    ids=str,
)
def test_invalid_bounds_are_refused_with_the_remedy(given: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        bounds_value(given)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"bounds": {"start": {"s0": "5"}, "end": {"s0": "4"}}},
            "'bounds' starts shard 's0' at 5, after its end 4; exchange the two",
        ),
        (
            {"streams": ["a", "b"], "source": "web", "bounds": POSITIONS},
            "which belong to one stream, but field 'streams'",
        ),
        (
            {"bounds": INSTANTS, "stop_at": "start"},
            "field 'stop_at' is .*but field 'bounds' also sets where reading ends",
        ),
        (
            {"bounds": INSTANTS, "on_data_loss": "latest"},
            "field 'on_data_loss' must be 'fail' or 'earliest' with 'bounds', which end in the past; got 'latest'",
        ),
    ],
    ids=str,
)
def test_unsuitable_bounds_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        KinesisStreams(**{"streams": "clicks", "aws_conn_id": None, **arguments}).check()


def test_initial_position_beside_bounds_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match="field 'initial_position' is 'LATEST', but field 'bounds' also sets where"
    ):
        KinesisStreams("clicks", bounds=INSTANTS, initial_position="LATEST").check()


def test_interval_beside_bounds_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match=r"field 'bounds' is .* but field 'interval' already bounds what is read"
    ):
        KinesisStreams("clicks", bounds=INSTANTS).within(START, END)


# A source of its own


def test_part_of_a_stream_is_its_own_source() -> None:
    assert KinesisStreams("clicks", bounds=INSTANTS).default_source == Interval(START, END).source_name("clicks")
    from_earliest = KinesisStreams("clicks", bounds={"start": "TRIM_HORIZON", "end": END})
    assert from_earliest.default_source == "clicks@TRIM_HORIZON--2026-01-02T00:00:00Z"
    assert KinesisStreams("clicks", bounds=INSTANTS, source="backfill").default_source == "backfill"


def test_equal_positions_in_any_format_are_one_source() -> None:
    other = {"start": {"s1": "07", "s0": 5}, "end": {"s0": "5", "s1": "9"}}
    name = KinesisStreams("clicks", bounds=POSITIONS).default_source
    assert name.startswith("clicks@positions-")
    assert KinesisStreams("clicks", bounds=other).default_source == name
    assert KinesisStreams("clicks", bounds={**POSITIONS, "start": {"s0": 5, "s1": 8}}).default_source != name


def test_tasks_of_a_group_work_on_the_same_part() -> None:
    with DAG("backfill", schedule=None) as dag:
        coordinated_ingestion(Ingestion(reads=KinesisStreams("clicks", bounds=INSTANTS), writes=ParquetDataset("/out")))
    sync, ingest = dag.get_task("ingestion.create_partitions"), dag.get_task("ingestion.ingest")
    assert sync.reads.default_source == ingest.partial_kwargs["ingestion"].reads.default_source


# In tasks


@pytest.fixture
def services(connect: Any, kinesis: FakeKinesis, coordination: SourceCoordinator) -> None:
    extra = {"region_name": "eu-west-1", "endpoint_url": kinesis.url}
    connect("aws_default", "aws", login="AKIA", password=SECRET, extra=extra)
    kinesis.streams["clicks"] = ["s0", "s1"]


@pytest.mark.usefixtures("services")
def test_sync_within_bounds_creates_partitions_with_an_end(coordination: SourceCoordinator, context: Any) -> None:
    end = datetime.now(UTC).replace(microsecond=0)
    reads = KinesisStreams("clicks", bounds={"start": end - timedelta(hours=1), "end": end})
    summary = ShardSyncOperator(task_id="sync", reads=reads).execute(context)
    assert summary["source"] == reads.default_source
    ends = [p.progress["end"] for p in source_of(coordination, summary["source"]).view.partitions()]
    assert ends == [f"AT_TIMESTAMP:{end:%Y-%m-%dT%H:%M:%S}.000000Z"] * 2
    assert list(coordination.view.partitions()) == [], "live ingestion has leases of its own"


@pytest.mark.usefixtures("services")
def test_missing_shard_fails_the_task_without_a_retry(context: Any) -> None:
    reads = KinesisStreams("clicks", bounds={"start": {"s9": "1"}, "end": {"s9": "2"}})
    with pytest.raises(AirflowFailException, match="stream 'clicks' has no shard 's9'"):
        ShardSyncOperator(task_id="sync", reads=reads).execute(context)


@pytest.mark.usefixtures("services")
def test_job_within_bounds_does_no_shard_sync(
    coordination: SourceCoordinator, spark: StubSpark, context: Any, tmp_path: Any
) -> None:
    end = datetime.now(UTC).replace(microsecond=0)
    reads = KinesisStreams("clicks", bounds={"start": end - timedelta(hours=1), "end": end})
    ShardSyncOperator(task_id="sync", reads=reads).execute(context)
    ingest = CoordinatedSparkSubmitOperator(
        task_id="ingest",
        ingestion=Ingestion(reads=reads, writes=ParquetDataset(str(tmp_path))),
        env_vars={"PATH": spark.path},
    )
    ingest.execute(context)
    [call] = spark.calls
    streams = call["settings"]["reads"]["settings"]
    assert call["settings"]["source"] == reads.default_source
    assert datetime.fromisoformat(streams["bounds"]["end"]) == end
    assert KinesisStreams.from_mapping(streams).syncs_every is None
