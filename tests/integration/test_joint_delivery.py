"""Many batches in a constant number of Spark jobs: each is delivered as if it were alone."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession, functions

from airflow_provider_coordination.sources.landed import EventTimeBounds
from airflow_provider_coordination.spark.bad_records import BadRecords
from airflow_provider_coordination.spark.delivery import Attempt, DeliveryError, Prepared, Transform
from airflow_provider_coordination.spark.ingestion import IngestionOptions
from airflow_provider_coordination.spark.kinesis.shard_format import RECORD_SCHEMA, SHARD_RECORDS
from airflow_provider_coordination.spark.layout import ITEM_RECORDS, RecordLayout
from airflow_provider_coordination.spark.parquet_files import write_table
from airflow_provider_coordination.spark.payload import JsonPayload
from airflow_provider_coordination.spark.sinks import routed_sinks
from airflow_provider_coordination.spark.sinks.parquet import ParquetSink
from airflow_provider_coordination.spark.spark_errors import ExecutorPythonError
from airflow_provider_coordination.spark.storage import files_below
from airflow_provider_coordination.spark.transformation import Transformation
from airflow_provider_coordination.spark.transformed_delivery import TransformedDelivery
from tests.support.executor_python import executors_running, python_without
from tests.support.sinks import an_attempt

pytestmark = pytest.mark.share(0.3)


NOW = datetime(2026, 1, 1, tzinfo=UTC)
PAYLOAD = "n BIGINT NOT NULL, at TIMESTAMP"


@dataclass
class JointDeliveries:
    """Landed batches, and the sinks that are to take them."""

    spark: SparkSession
    folder: Path
    found: BadRecords = field(default_factory=lambda: BadRecords(saved=3))

    def land(self, batch_id: str, *payloads: Any, bounds: EventTimeBounds | None = None) -> Attempt:
        """Land a batch of JSON objects, or of bytes as they are."""
        rows = [
            {
                "stream": "clicks",
                "shard_id": f"shard-{batch_id}",
                "sequence_number": str(10**50 + n),
                "sub_sequence_number": 0,
                "partition_key": "k",
                "approximate_arrival_timestamp": NOW,
                "data": payload if isinstance(payload, bytes) else json.dumps(payload, default=str).encode(),
                "_batch_id": batch_id,
            }
            for n, payload in enumerate(payloads)
        ]
        return self.landed(batch_id, pa.Table.from_pylist(rows, RECORD_SCHEMA), bounds)

    def landed(self, batch_id: str, table: pa.Table, bounds: EventTimeBounds | None = None) -> Attempt:
        file = str(self.folder / "_landing" / f"{batch_id}.parquet")
        size = write_table(table, file)
        return an_attempt(batch_id, file=file, file_bytes=size, records=table.num_rows, bounds=bounds)

    def sink(self, name: str, where: str | None = None) -> ParquetSink:
        return ParquetSink(name=name, path=str(self.folder / name), where=where)

    def delivery(
        self,
        *more: ParquetSink,
        transform: Transform | None = None,
        per_batch: bool = False,
        dead: bool = True,
        schema: str | None = PAYLOAD,
        layout: RecordLayout = SHARD_RECORDS,
        is_final: bool = True,
    ) -> TransformedDelivery:
        sinks = [*([self.sink("dead_letter")] if dead else []), self.sink("main"), *more]
        payload = None if schema is None else JsonPayload(schema, layout)
        transformation = Transformation(
            self.spark,
            routed_sinks(sinks),
            layout=layout,
            transform=transform,
            options=IngestionOptions(per_batch=per_batch),
            payload=payload,
        )
        return TransformedDelivery(transformation, sinks, source="clicks", bad_records=self.found, is_final=is_final)

    def deliver(self, delivery: TransformedDelivery, attempts: Sequence[Attempt]) -> Mapping[str, Prepared | Exception]:
        """Deliver what can be delivered of some batches."""
        prepared = delivery.prepare(attempts, delivery.sinks)
        going = [
            replace(attempt, shared_file=made.shared_file)
            for attempt in attempts
            if isinstance(made := prepared[attempt.batch_id], Prepared)
        ]
        for sink in delivery.sinks:
            delivery.commit(sink, going)
        delivery.discard([*attempts, *going])
        assert [file for file in files_below(str(self.folder)) if "_staging" in file] == [], "something is left over"
        return prepared

    def files(self, sink: str = "main") -> list[Path]:
        return list((self.folder / sink).glob("*.parquet"))

    def rows(self, sink: str = "main") -> dict[str, list[dict[str, Any]]]:
        """Return the rows of each batch; of those that have an empty file of their own, none."""
        found: dict[str, list[dict[str, Any]]] = {}
        for file in self.files(sink):
            rows = pq.read_table(file).to_pylist()
            for batch_id in [row["_batch_id"] for row in rows] or [file.stem]:
                found[batch_id] = []
            for row in rows:
                found[row["_batch_id"]].append(row)
        return found

    def values(self, column: str = "n", sink: str = "main") -> dict[str, list[Any]]:
        return {batch_id: [row[column] for row in rows] for batch_id, rows in self.rows(sink).items()}


@pytest.fixture
def deliveries(spark: SparkSession, tmp_path: Path) -> JointDeliveries:
    return JointDeliveries(spark, tmp_path)


def numbers(*values: int) -> list[dict[str, int]]:
    return [{"n": value} for value in values]


def counting(records: DataFrame) -> DataFrame:
    """Say with each record how many the transform got."""
    return records.withColumn("of", functions.expr("count(*) OVER ()"))


def dropping(records: DataFrame) -> DataFrame:
    return counting(records).drop("_batch_id")


def fragile(records: DataFrame) -> DataFrame:
    """Raise on a negative number."""

    def root(n):
        if n < 0:
            raise ValueError(f"{n} is negative")
        return n**0.5

    return records.withColumn("root", functions.udf(root, "double")("n"))


@pytest.mark.parametrize(("is_final", "files"), [(True, 1), (False, 8)])
def test_batches_share_a_file_unless_later_rejection_is_possible(
    deliveries: JointDeliveries, is_final: bool, files: int
) -> None:
    attempts = [deliveries.land(f"b-{n}", *numbers(*range(n))) for n in range(1, 9)]
    prepared = deliveries.deliver(deliveries.delivery(transform=counting, is_final=is_final), attempts)
    assert len(deliveries.files()) == files
    assert deliveries.values() == {f"b-{n}": list(range(n)) for n in range(1, 9)}
    assert deliveries.values("_batch_id") == {f"b-{n}": [f"b-{n}"] * n for n in range(1, 9)}
    assert set(deliveries.values("of")["b-1"]) == {36}, "the transform ran over all of them"
    assert [made.records for made in prepared.values() if isinstance(made, Prepared)] == [
        {"dead_letter": 0, "main": n} for n in range(1, 9)
    ]
    names = pq.read_schema(deliveries.files()[0]).names
    assert names == [*RECORD_SCHEMA.names, "n", "at", "of"], "nothing of ours is left in it"


def test_shared_file_stays_within_its_target_with_whole_batches(deliveries: JointDeliveries) -> None:
    attempts = [deliveries.land(f"b-{n}", *numbers(*range(n))) for n in range(1, 9)]
    target = 3 * max(attempt.batch.file_bytes for attempt in attempts)
    main = replace(deliveries.sink("main"), target_file_bytes=target)
    transformation = Transformation(deliveries.spark, [main], layout=SHARD_RECORDS)
    deliveries.deliver(TransformedDelivery(transformation, [main], source="clicks"), attempts)
    held = [set(pq.read_table(file)["_batch_id"].to_pylist()) for file in deliveries.files()]
    assert sorted(batch_id for batches in held for batch_id in batches) == [f"b-{n}" for n in range(1, 9)]
    sizes = {attempt.batch_id: attempt.batch.file_bytes for attempt in attempts}
    assert [batches for batches in held if sum(sizes[each] for each in batches) > target] == []
    assert 3 <= len(held) <= 4


def test_number_of_spark_jobs_is_independent_of_batches(deliveries: JointDeliveries) -> None:
    def jobs(*batch_ids: str) -> int:
        deliveries.spark.sparkContext.setJobGroup(batch_ids[0], "")
        attempts = [deliveries.land(batch_id, *numbers(1, 2)) for batch_id in batch_ids]
        deliveries.deliver(deliveries.delivery(deliveries.sink("copy", "n > 1"), transform=fragile), attempts)
        return len(deliveries.spark.sparkContext.statusTracker().getJobIdsForGroup(batch_ids[0]))

    assert jobs(*(f"many-{n}" for n in range(12))) <= jobs("two-1", "two-2")
    assert len(deliveries.rows("copy")) == 14


@pytest.mark.parametrize(("transform", "per_batch"), [(dropping, False), (counting, True)])
def test_transform_without_the_batch_column_gets_single_batches(
    deliveries: JointDeliveries, transform: Transform, per_batch: bool, caplog: pytest.LogCaptureFixture
) -> None:
    attempts = [deliveries.land(f"b-{n}", *numbers(*range(n))) for n in range(1, 4)]
    delivery = deliveries.delivery(transform=transform, per_batch=per_batch)
    with caplog.at_level(logging.WARNING):
        deliveries.deliver(delivery, attempts)
        deliveries.deliver(delivery, [replace(a, batch=replace(a.batch, redeliver=True)) for a in attempts])
    assert deliveries.values("of") == {"b-1": [1], "b-2": [2, 2], "b-3": [3, 3, 3]}
    assert deliveries.values("_batch_id")["b-2"] == ["b-2", "b-2"]
    assert caplog.text.count("batches are transformed one after the other, in one Spark job each") == 1


def test_transform_that_changes_the_batch_of_a_row_fails(deliveries: JointDeliveries) -> None:
    def mixing(records: DataFrame) -> DataFrame:
        return records.withColumn("_batch_id", functions.lit("other"))

    prepared = deliveries.deliver(
        deliveries.delivery(transform=mixing), [deliveries.land("a", {"n": 1}), deliveries.land("b", {"n": 2})]
    )
    assert {str(error).partition(";")[0] for error in prepared.values()} == {
        "the transform changed '_batch_id', which names a row's batch, to 'other'"
    }
    assert deliveries.rows() == {}


def test_batches_are_filtered_by_their_own_bounds(deliveries: JointDeliveries) -> None:
    times = [{"n": n, "at": NOW + timedelta(hours=n)} for n in range(4)]

    def since(hours: int) -> EventTimeBounds:
        return EventTimeBounds(column="at", type="timestamp", earliest=NOW + timedelta(hours=hours), latest=None)

    attempts = [
        deliveries.land("from-1", *times, bounds=since(1)),
        deliveries.land("from-3", *times, bounds=since(3)),
        deliveries.land("all", *times, b"no JSON"),
    ]
    prepared = deliveries.deliver(deliveries.delivery(), attempts)
    assert deliveries.values() == {"from-1": [1, 2, 3], "from-3": [3], "all": [0, 1, 2, 3]}
    assert {name: made.left_out for name, made in prepared.items() if isinstance(made, Prepared)} == {
        "from-1": {"time": 1},
        "from-3": {"time": 3},
        "all": {"schema": 1},
    }


def test_bad_records_are_set_aside_per_batch(deliveries: JointDeliveries) -> None:
    def marking(records: DataFrame) -> DataFrame:
        return records.withColumn("_error", functions.expr("CASE WHEN n > 100 THEN 'too much' END"))

    attempts = [
        deliveries.land("a", {"n": 1}, b"no JSON"),
        deliveries.land("b", {"n": 500}, {"n": 2}),
        deliveries.land("c", {"n": 3}, {"n": -1}),
        deliveries.land("d", {"n": 4}),
    ]
    prepared = deliveries.deliver(deliveries.delivery(transform=lambda records: marking(fragile(records))), attempts)
    assert deliveries.values() == {"a": [1], "b": [2], "c": [3], "d": [4]}
    assert deliveries.values("error", "dead_letter") == {
        "a": ["the payload is not JSON"],
        "b": ["too much"],
        "c": ["ValueError: -1 is negative"],
    }
    assert deliveries.values("_batch_id", "dead_letter") == {name: [name] for name in "abc"}
    assert {name: made.left_out for name, made in prepared.items() if isinstance(made, Prepared)} == {
        "a": {"schema": 1},
        "b": {"transform": 1},
        "c": {"transform": 1},
        "d": {},
    }
    assert deliveries.found.total == 3 and len(deliveries.found.samples) == 3


@pytest.mark.parametrize("bad", [b"no JSON", {"n": -1}], ids=["unfit", "raising"])
def test_batch_refused_for_bad_records_stops_no_other(deliveries: JointDeliveries, bad: Any) -> None:
    attempts = [deliveries.land(f"b-{n}", {"n": n}, *([bad] if n == 2 else [])) for n in range(5)]
    prepared = deliveries.deliver(deliveries.delivery(transform=fragile, dead=False), attempts)
    assert sorted(deliveries.rows()) == ["b-0", "b-1", "b-3", "b-4"]
    refused = prepared["b-2"]
    assert isinstance(refused, DeliveryError) and "batch b-2: " in str(refused) and "records are bad" in str(refused)


def test_budget_of_bad_records_is_spent_per_batch(deliveries: JointDeliveries) -> None:
    deliveries.found = BadRecords(1)
    attempts = [deliveries.land(name, {"n": 1}, *[b"no JSON"] * bad) for name, bad in (("a", 1), ("b", 1), ("c", 0))]
    prepared = deliveries.deliver(deliveries.delivery(), attempts)
    assert sorted(deliveries.rows()) == ["a", "c"] and sorted(deliveries.rows("dead_letter")) == ["a"]
    assert "1 bad records make 2 in this run, more than 'max_parse_exceptions' = 1" in str(prepared["b"])


@pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_bytes(b"x" * file.stat().st_size)])
def test_missing_or_damaged_landed_file_fails_its_batch_only(deliveries: JointDeliveries, damage: Any) -> None:
    attempts = [deliveries.land(f"b-{n}", {"n": n}) for n in range(5)]
    damage(Path(attempts[3].file))
    prepared = deliveries.deliver(deliveries.delivery(transform=fragile), attempts)
    assert sorted(deliveries.rows()) == ["b-0", "b-1", "b-2", "b-4"]
    assert isinstance(prepared["b-3"], DeliveryError)


def test_each_sink_takes_the_rows_of_its_predicate(deliveries: JointDeliveries) -> None:
    attempts = [
        deliveries.land("a", *numbers(1, 20)),
        deliveries.land("b", *numbers(300)),
        deliveries.land("c", *numbers(2)),
    ]
    large, none = deliveries.sink("large", "n >= 20"), deliveries.sink("none", "n > 1000")
    prepared = deliveries.deliver(deliveries.delivery(large, none, transform=fragile), attempts)
    assert deliveries.values() == {"a": [1, 20], "b": [300], "c": [2]}
    assert deliveries.values(sink="large") == {"a": [20], "b": [300]} and deliveries.rows("none") == {}
    assert [made.records for made in prepared.values() if isinstance(made, Prepared)] == [
        {"dead_letter": 0, "main": 2, "large": 1, "none": 0},
        {"dead_letter": 0, "main": 1, "large": 1, "none": 0},
        {"dead_letter": 0, "main": 1, "large": 0, "none": 0},
    ]


def test_sink_receives_only_batches_that_it_lacks(deliveries: JointDeliveries) -> None:
    attempts = [deliveries.land("a", *numbers(1)), deliveries.land("b", *numbers(2)), deliveries.land("c", *numbers(3))]
    deliveries.deliver(deliveries.delivery(), attempts[:1])
    again = deliveries.delivery(
        deliveries.sink("copy"), transform=lambda records: records.withColumn("n", functions.expr("-n"))
    )
    prepared = deliveries.deliver(again, attempts)
    assert deliveries.values() == {"a": [1], "b": [-2], "c": [-3]}
    assert deliveries.values(sink="copy") == {"a": [-1], "b": [-2], "c": [-3]}
    assert isinstance(made := prepared["a"], Prepared) and "main" not in made.records


def test_delivery_of_no_remaining_rows_empties_its_batches(deliveries: JointDeliveries) -> None:
    attempts = [deliveries.land("a", *numbers(1)), deliveries.land("b", *numbers(2))]
    deliveries.deliver(deliveries.delivery(is_final=False), attempts)
    again = [replace(a, batch=replace(a.batch, redeliver=True)) for a in attempts]
    deliveries.deliver(deliveries.delivery(transform=lambda records: records.where("false")), again)
    assert deliveries.values() == {"a": [], "b": []}


def test_items_with_different_columns_keep_their_own(deliveries: JointDeliveries) -> None:
    def landed(batch_id: str, **columns: Any) -> Attempt:
        rows = len(next(iter(columns.values())))
        ours = {"_origin": ["s3://b/k"] * rows, "_row": pa.array(range(rows), pa.int64())}
        return deliveries.landed(batch_id, pa.table({**columns, **ours, "_batch_id": [batch_id] * rows}))

    attempts = [landed("one", a=[1]), landed("two", b=["x"]), landed("three", a=[2, 3]), landed("four", a=["text"])]
    deliveries.deliver(deliveries.delivery(transform=counting, schema=None, layout=ITEM_RECORDS), attempts)
    ours = {"_origin", "_row", "_batch_id", "of"}
    assert {name: rows[0].keys() - ours for name, rows in deliveries.rows().items()} == {
        "one": {"a"},
        "two": {"b"},
        "three": {"a"},
        "four": {"a"},
    }
    assert deliveries.values("of") == {"one": [3], "two": [1], "three": [3, 3], "four": [1]}


def test_executor_without_a_module_fails_the_delivery_and_no_batch(deliveries: JointDeliveries) -> None:
    attempts = [deliveries.land("a", *numbers(1)), deliveries.land("b", *numbers(2))]
    delivery = deliveries.delivery()
    python = python_without("pyarrow", deliveries.folder)
    with (
        executors_running(deliveries.spark.sparkContext, python),
        pytest.raises(ExecutorPythonError, match=r"pyarrow.*; install it there, or name another Python in 'spark\."),
    ):
        delivery.prepare(attempts, delivery.sinks)
    deliveries.deliver(deliveries.delivery(), attempts)
    assert deliveries.values() == {"a": [1], "b": [2]}
