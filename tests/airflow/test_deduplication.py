"""Intervals beside live ingestion leave to the live source what it delivers, and deliver the rest."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.airflow_names import AirflowFailException
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.coordination.source_claim import SourceClaim, claim
from airflow_provider_coordination.coordination.supplier import Page
from airflow_provider_coordination.operators.create_partitions import CreatePartitionsOperator
from airflow_provider_coordination.operators.shard_sync import ShardSyncOperator
from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator
from airflow_provider_coordination.sources.connections import ConnectionResolver
from airflow_provider_coordination.sources.items import PartitionProgress
from airflow_provider_coordination.sources.jdbc.kind import JdbcTable
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.sources.reads import Reads
from airflow_provider_coordination.sources.s3.kind import S3Objects
from airflow_provider_coordination.spark.writes import ParquetDataset
from tests.airflow.conftest import SECRET, FakeKinesis, StubSpark
from tests.airflow.weather import weather
from tests.support.ingestions import with_ingestion

HOUR = timedelta(hours=1)
START = datetime.now(UTC).replace(microsecond=0) - 3 * HOUR
INTERVAL = f"{START.isoformat()}/PT1H"
HALF_PAST = START + HOUR / 2
SHARED = {"interval": INTERVAL, "deduplicate_against": "clicks"}


@pytest.fixture(autouse=True)
def services(connect: Any, kinesis: FakeKinesis, coordination: SourceCoordinator) -> None:
    extra = {"region_name": "eu-west-1", "endpoint_url": kinesis.url}
    connect("aws_default", "aws", login="AKIA", password=SECRET, extra=extra)
    kinesis.streams["clicks"] = ["s0", "s1"]
    kinesis.streams["views"] = ["s0"]


def source_of(coordination: SourceCoordinator, name: str) -> SourceCoordinator:
    source = SourceCoordinator(coordination.store, name, "test")
    source.initialize()
    return source


# Streams


def sync(**arguments: Any) -> ShardSyncOperator:
    return ShardSyncOperator(**{"task_id": "sync", "reads": KinesisStreams("clicks")} | arguments)


def ingest(spark: StubSpark, folder: Any, **arguments: Any) -> CoordinatedSparkSubmitOperator:
    given = {"task_id": "ingest", "writes": ParquetDataset(str(folder)), "env_vars": {"PATH": spark.path}}
    return CoordinatedSparkSubmitOperator(
        **with_ingestion(given | {"reads": KinesisStreams("clicks")} | SHARED | arguments)
    )


@pytest.mark.parametrize(
    ("live_begins", "stops"),
    [(HALF_PAST, HALF_PAST), (START + 2 * HOUR, START + HOUR)],
    ids=["within", "after it"],
)
def test_interval_of_a_stream_ends_where_live_ingestion_begins(
    spark: StubSpark, context: Any, tmp_path: Any, live_begins: datetime, stops: datetime
) -> None:
    sync(reads=KinesisStreams("clicks", initial_position=live_begins)).execute(context)
    sync(**SHARED).execute(context)
    ingest(spark, tmp_path).execute(context)
    [call] = spark.calls
    assert datetime.fromisoformat(call["settings"]["reads"]["settings"]["bounds"]["end"]) == stops


@pytest.mark.parametrize(
    "live_begins", ["TRIM_HORIZON", START, START - HOUR], ids=["with all there is", "with it", "before it"]
)
def test_interval_covered_by_live_ingestion_starts_no_job(
    spark: StubSpark, context: Any, tmp_path: Any, coordination: SourceCoordinator, live_begins: Any
) -> None:
    sync(reads=KinesisStreams("clicks", initial_position=live_begins)).execute(context)
    summary = sync(**SHARED).execute(context)
    assert summary["skipped"] == "source 'clicks' delivers the whole interval"
    assert list(source_of(coordination, summary["source"]).view.partitions()) == []
    result = ingest(spark, tmp_path).execute(context)
    assert (spark.calls, result["stopped_because"]) == ([], "nothing is left to do")


def test_stream_without_live_ingestion_is_refused(context: Any) -> None:
    sync().execute(context)
    both = {"reads": KinesisStreams(["clicks", "views"]), "source": "both"}
    with pytest.raises(AirflowFailException, match="source 'clicks' has not started stream 'views'"):
        sync(**both, **SHARED).execute(context)


def test_streams_with_different_live_starts_are_refused(context: Any) -> None:
    """One end for both would leave out records of the one, or repeat records of the other."""
    both = {"reads": KinesisStreams(["clicks", "views"]), "source": "both"}
    sync(source="both", reads=KinesisStreams("clicks", initial_position=HALF_PAST)).execute(context)
    sync(source="both", reads=KinesisStreams(["clicks", "views"], initial_position=HALF_PAST + HOUR)).execute(context)
    with pytest.raises(
        AirflowFailException, match=r"did not start the streams at one instant, but 'clicks' at .*'views'"
    ):
        sync(**both, interval=INTERVAL, deduplicate_against="both").execute(context)


# Objects


def files(folder: Path, *names: str) -> S3Objects:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text(name)
        os.utime(folder / name, times=(HALF_PAST.timestamp(),) * 2)
    return S3Objects(paths=str(folder), source="clicks", format="text", aws_conn_id=None)


def create(reads: Any, context: Any, **arguments: Any) -> dict[str, Any]:
    return CreatePartitionsOperator(task_id="create", reads=reads, **arguments).execute(context)


def objects_of(source: SourceCoordinator) -> set[str]:
    items = (item for p in source.view.partitions() for item in PartitionProgress.from_mapping(p.progress).items)
    return {str(item["uri"]).rpartition("/")[2] for item in items}


def test_interval_and_live_ingestion_share_no_object(
    context: Any, tmp_path: Path, coordination: SourceCoordinator
) -> None:
    create(files(tmp_path / "in", "a", "b"), context)
    summary = create(files(tmp_path / "in", "c"), context, **SHARED)
    create(files(tmp_path / "in", "d"), context)
    create(files(tmp_path / "in"), context, interval=f"{(START - HOUR).isoformat()}/PT9H", deduplicate_against="clicks")
    assert objects_of(source_of(coordination, summary["source"])) == {"c"}
    assert objects_of(coordination) == {"a", "b", "d"}


def test_interval_scanned_before_cannot_share_with_live_ingestion(context: Any, tmp_path: Path) -> None:
    reads = files(tmp_path / "in", "a")
    create(reads, context, interval=INTERVAL)
    create(reads, context)
    with pytest.raises(AirflowFailException, match=r"already has its own claims, .* 'clicks'"):
        create(reads, context, **SHARED)


# Rows


def orders(connect: Any, **changes: Any) -> JdbcTable:
    connect("orders", "sqlite", host="/nowhere/orders.db")
    return JdbcTable(**{"table": "orders", "column": "placed_at", "jdbc_conn_id": "orders"} | changes)


def live_rows(coordination: SourceCoordinator, **state: Any) -> None:
    """Leave the state that the supplier of live ingestion leaves."""
    reads = {"table": "orders", "query": None, "column": "placed_at", "incremental": True} | state.pop("reads", {})
    coordination.supply(lambda _: [Page({}, {"reads": reads, "mark": "2026-06-01 00:00:00"} | state)])


@pytest.mark.parametrize(
    ("began", "end"),
    [
        (HALF_PAST.isoformat(), HALF_PAST),
        (HALF_PAST.replace(tzinfo=None).isoformat(), HALF_PAST),
        ((START + 5 * HOUR).isoformat(), START + HOUR),
    ],
    ids=["within", "without a zone", "after it"],
)
def test_interval_of_rows_ends_where_live_ingestion_begins(
    connect: Any, coordination: SourceCoordinator, began: str, end: datetime
) -> None:
    live_rows(coordination, began=began)
    left = orders(connect).beside(coordination, coordination, START, START + HOUR)
    assert left is not None and (left.start, left.end) == (START.isoformat(), end.isoformat())


@pytest.mark.parametrize(
    "began", [None, START.isoformat(), "2020-01-01"], ids=["with all there is", "with it", "before it"]
)
def test_rows_of_live_ingestion_are_left_to_it(
    connect: Any, context: Any, coordination: SourceCoordinator, began: str | None
) -> None:
    live_rows(coordination, began=began)
    claim(coordination.view, SourceClaim(dag_id="live", task_id="t", claimed_at=START, kind="jdbc"))
    summary = create(orders(connect), context, source="orders", **SHARED)
    assert (summary["created"], summary["available"]) == (0, False)


@pytest.mark.parametrize(
    ("state", "error"),
    [
        ({"mark": None}, "has read no row yet"),
        ({"reads": {"column": "id"}}, "reads something else: 'column' 'id' there and 'placed_at' here"),
        ({"reads": {"incremental": False}}, "is not incremental, but reads its bounds once"),
        ({"began": "17"}, "starts at '17', which is not a time"),
    ],
    ids=["nothing yet", "another column", "once", "a number"],
)
def test_live_source_of_rows_without_a_known_start_is_refused(
    connect: Any, coordination: SourceCoordinator, state: dict[str, Any], error: str
) -> None:
    live_rows(coordination, **state)
    with pytest.raises(Exception, match=error):
        orders(connect).beside(coordination, coordination, START, START + HOUR)


# Bad input


def test_live_source_that_was_never_read_is_refused(context: Any, tmp_path: Path) -> None:
    """It may be a slip of the pen, and everything would be delivered twice."""
    with pytest.raises(AirflowFailException, match="'clicks', but no DAG has read a source of that name"):
        create(files(tmp_path / "in", "a"), context, **SHARED)


def test_live_source_of_another_kind_is_refused(context: Any, tmp_path: Path) -> None:
    sync().execute(context)
    with pytest.raises(AirflowFailException, match="of kind 'kinesis', but this task reads 's3'"):
        create(files(tmp_path / "in", "a"), context, **SHARED)


def test_deduplication_without_an_interval_is_refused(context: Any, tmp_path: Path, spark: StubSpark) -> None:
    sync().execute(context)
    for task in (sync(deduplicate_against="clicks"), ingest(spark, tmp_path, interval=None)):
        with pytest.raises(
            AirflowFailException,
            match=r"'deduplicate_against' is 'clicks', but field 'interval' is missing.*it replaces 'bounds'",
        ):
            task.execute(context)


def test_kind_without_deduplication_support_is_refused(context: Any, coordination: SourceCoordinator) -> None:
    class DatedSource(Reads):
        """A source of one's own that can be cut by time."""

        template_fields = ()
        default_source = "weather"
        kind = weather().kind

        def connect(self, connections: ConnectionResolver) -> Any:
            return weather().connect(connections)

        def within(self, start: datetime, end: datetime) -> Any:
            return self

    claim(coordination.view, SourceClaim(dag_id="live", task_id="t", claimed_at=START, kind="weather"))
    with pytest.raises(AirflowFailException, match="implement the method 'beside' of 'reads'"):
        create(DatedSource(), context, **SHARED)
    assert coordination.view.count_by_status()[PartitionStatus.UNASSIGNED] == 0
