"""Spark's data source reads the records that a job would land, from a Kinesis API in another process."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import TaskContext
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.sources.kinesis.batch_reading import BatchStart
from airflow_provider_coordination.sources.kinesis.shards import list_shards
from airflow_provider_coordination.spark.kinesis.landed_shard import ShardLandingOptions, ShardReadPlan
from airflow_provider_coordination.spark.kinesis.landing import land
from tests.support.aggregation import aggregate

pytestmark = pytest.mark.share(0.3)


SECRET, TOKEN = "hush-hush-hush", "token-token-token"
MIDDLE = str(2**127)
FIRST = "shardId-000000000000"

Create = Callable[[int], str]
Read = Callable[..., DataFrame]


@pytest.fixture
def aws(kinesis: Any) -> Any:
    """A plain client, for what producers and operators of a stream do."""
    return kinesis.client()


@pytest.fixture
def access(kinesis: Any) -> dict[str, str]:
    return {
        "region": "us-east-1",
        "endpointUrl": kinesis.endpoint_url,
        "awsAccessKey": "test",
        "awsSecretKey": SECRET,
        "awsSessionToken": TOKEN,
    }


@pytest.fixture
def read(spark: SparkSession, access: dict[str, str]) -> Read:
    """Return a frame of the data source, which nobody has registered."""

    def load(stream: str, **options: str) -> DataFrame:
        given = {"streamName": stream, **access, **options}
        return spark.read.format("coordinated_kinesis").options(**given).load()

    return load


def put(aws: Any, stream: str, *events: bytes, hash_key: str = "0") -> list[str]:
    where = {"StreamName": stream, "PartitionKey": "key", "ExplicitHashKey": hash_key}
    return [aws.put_record(Data=event, **where)["SequenceNumber"] for event in events]


def split(aws: Any, stream: str, shard_id: str) -> None:
    aws.split_shard(StreamName=stream, ShardToSplit=shard_id, NewStartingHashKey=MIDDLE)
    aws.get_waiter("stream_exists").wait(StreamName=stream, WaiterConfig={"Delay": 0.1, "MaxAttempts": 100})


def data(frame: DataFrame) -> list[bytes]:
    return [bytes(row["data"]) for row in frame.select("data").collect()]


def landed(spark: SparkSession, kinesis: Any, aws: Any, stream: str, folder: Path) -> list[tuple[Any, ...]]:
    """Return what a job lands of a stream, as rows of the data source."""
    settings = AwsSettings(
        region="us-east-1", endpoint_url=kinesis.endpoint_url, access_key_id="test", secret_access_key="test"
    )
    plans = [
        ShardReadPlan(
            source_identifier="s|PARTITION",
            partition_key=f"{stream}:1:{shard.shard_id}",
            fencing_token=1,
            stream=stream,
            shard_id=shard.shard_id,
            start=BatchStart(position="TRIM_HORIZON"),
            hash_keys=shard.hash_keys,
        )
        for shard in list_shards(aws, stream)
    ]
    options = ShardLandingOptions(
        kinesis=settings, root=str(folder), seconds=10, max_bytes=2**30, slot_memory_bytes=2**29
    )
    files = [row.file for row in land(spark.sparkContext, plans, options) if row.file]
    table = pa.concat_tables([pq.read_table(file) for file in files])
    columns = [
        "partition_key",
        "data",
        "stream",
        "shard_id",
        "sequence_number",
        "approximate_arrival_timestamp",
        "sub_sequence_number",
    ]
    return [tuple(row[name] for name in columns) for row in table.to_pylist()]


def test_stream_is_read_as_a_job_lands_it(
    spark: SparkSession, kinesis: Any, aws: Any, kinesis_stream: Create, read: Read, tmp_path: Path
) -> None:
    stream = kinesis_stream(1)
    put(aws, stream, b"1", aggregate([("a", b"2"), ("b", b"3")]), b"4")
    split(aws, stream, FIRST)
    put(aws, stream, b"5", aggregate([("a", b"6"), ("b", b"7")]))
    put(aws, stream, b"8", hash_key=MIDDLE)
    spark.conf.set("spark.sql.session.timeZone", "UTC")

    rows = [
        (*row[:1], bytes(row["data"]), *row[2:5], row["approximateArrivalTimestamp"].replace(tzinfo=UTC), row[6])
        for row in read(stream).collect()
    ]

    wanted = landed(spark, kinesis, aws, stream, tmp_path)
    assert len(rows) == 7
    for shard in {row[3] for row in wanted}:
        assert [row for row in rows if row[3] == shard] == [row for row in wanted if row[3] == shard]
    assert sorted(rows) == sorted(wanted)


def test_windows_and_ranges_of_streams_end_exactly(aws: Any, kinesis_stream: Create, read: Read) -> None:
    clicks, taps = kinesis_stream(1), kinesis_stream(2)
    numbers = put(aws, clicks, b"1", b"2", b"3")
    put(aws, taps, b"4")
    time.sleep(0.01)
    between = datetime.now(UTC).isoformat()
    time.sleep(0.01)
    put(aws, taps, b"5")
    put(aws, taps, b"6", hash_key=MIDDLE)

    assert data(read(clicks, shardRanges=json.dumps({FIRST: {"start": numbers[1], "end": numbers[1]}}))) == [b"2"]
    both = f"{clicks},{taps}"
    assert sorted(data(read(both, endingTimestamp=between))) == [b"1", b"2", b"3", b"4"]
    assert sorted(data(read(both, **{"kinesis.startingPosition": f"AT_TIMESTAMP {between}"}))) == [b"5", b"6"]


def test_every_query_on_a_frame_reads_the_same(aws: Any, kinesis_stream: Create, read: Read) -> None:
    stream = kinesis_stream(1)
    put(aws, stream, b"1", b"2")
    frame = read(stream)
    time.sleep(1.1)  # a read includes the second in which it was planned, since the server's times are whole seconds
    put(aws, stream, b"3")

    assert frame.count() == frame.where("data IS NOT NULL").count() == 2
    assert sorted(data(read(stream))) == [b"1", b"2", b"3"]


def test_retried_task_reads_the_same(aws: Any, kinesis_stream: Create, read: Read) -> None:
    stream = kinesis_stream(2)
    put(aws, stream, b"1", b"2")
    put(aws, stream, b"3", hash_key=MIDDLE)

    def fails_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            context = TaskContext.get()
            assert context is not None
            if context.attemptNumber() == 0:
                raise RuntimeError("the first try fails after it gave records")

    frame = read(stream, shardsPerTask="1").select("data").mapInArrow(fails_once, "data BINARY")

    assert sorted(data(frame)) == [b"1", b"2", b"3"]


def test_sql_reads_the_source_as_a_view(
    spark: SparkSession, aws: Any, kinesis_stream: Create, access: dict[str, str]
) -> None:
    stream = kinesis_stream(1)
    put(aws, stream, b"1", b"2")
    options = ", ".join(f"{name} '{value}'" for name, value in {"streamName": stream, **access}.items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW clicks USING coordinated_kinesis OPTIONS ({options})")

    assert spark.sql("SELECT count(*) FROM clicks").first() == (2,)
    assert_hidden(spark)


def shown(spark: SparkSession) -> Iterator[str]:
    """Yield what the SQL page of Spark's UI shows of all queries."""
    session: Any = spark
    session.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    executions = session._jsparkSession.sharedState().statusStore().executionsList().iterator()
    while executions.hasNext():
        execution = executions.next()
        yield from (execution.toString(), execution.physicalPlanDescription(), execution.details())


def assert_hidden(spark: SparkSession) -> None:
    texts = list(shown(spark))
    assert any("coordinated_kinesis" in text for text in texts)
    assert not [text for text in texts if SECRET in text or TOKEN in text]


def test_secrets_are_hidden_in_plans_and_the_spark_ui(
    spark: SparkSession, aws: Any, kinesis_stream: Create, read: Read, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = kinesis_stream(1)
    put(aws, stream, b"1")
    frame = read(stream)

    frame.explain("extended")
    frame.limit(1).collect()

    plan = capsys.readouterr().out
    assert "BatchScan coordinated_kinesis" in plan
    assert SECRET not in plan and TOKEN not in plan
    assert_hidden(spark)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingPositon": "LATEST"}, "option 'startingpositon' is unknown; the nearest is 'startingPosition'"),
        ({"roleExternalId": "ours"}, "option 'roleExternalId' ('ours') needs roleArn"),
        ({"shardIds": "shardId-9"}, "option 'shardIds' names shard 'shardId-9'"),
    ],
)
def test_wrong_option_is_refused_before_a_task_runs(
    spark: SparkSession, kinesis_stream: Create, read: Read, options: dict[str, str], message: str
) -> None:
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(None)

    with pytest.raises(AnalysisException) as error:
        read(kinesis_stream(1), **options).collect()

    assert message in str(error.value)
    assert SECRET not in str(error.value) and TOKEN not in str(error.value)
    assert spark.sparkContext.statusTracker().getJobIdsForGroup(None) == jobs


def test_unknown_columns_are_refused(spark: SparkSession, kinesis_stream: Create, access: dict[str, str]) -> None:
    reader = spark.read.format("coordinated_kinesis").options(streamName=kinesis_stream(1), **access)

    with pytest.raises(AnalysisException, match=r"schema \(value\) differs from the data source's"):
        reader.schema("value BINARY").load().collect()
