"""Batches that are landed, and deliveries that Spark makes of them into files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession, functions

from airflow_provider_coordination.sources.landed import LandedBatch
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS
from airflow_provider_coordination.spark.bad_records import BadRecords
from airflow_provider_coordination.spark.decoded_payload import payload_of
from airflow_provider_coordination.spark.delivery import (
    Attempt,
    Prepared,
    Transform,
)
from airflow_provider_coordination.spark.ingestion import IngestionOptions
from airflow_provider_coordination.spark.kinesis.shard_format import RECORD_SCHEMA, SHARD_RECORDS
from airflow_provider_coordination.spark.layout import ITEM_RECORDS, RecordLayout
from airflow_provider_coordination.spark.parquet_files import write_table
from airflow_provider_coordination.spark.payload_settings import Payload
from airflow_provider_coordination.spark.sinks import Sink, routed_sinks
from airflow_provider_coordination.spark.sinks.parquet import ParquetSink
from airflow_provider_coordination.spark.storage import files_below
from airflow_provider_coordination.spark.transformation import Transformation
from airflow_provider_coordination.spark.transformed_delivery import TransformedDelivery

FOLDER = "clicks/shard"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
PAYLOAD = "id STRING NOT NULL, amount DOUBLE"


def click(amount: float, name: str = "click") -> bytes:
    return json.dumps({"id": f"{name}-{amount:g}", "amount": amount}).encode()


@dataclass
class LandedBatches:
    """A batch that is landed, and the sinks that are to take it."""

    spark: SparkSession
    folder: Path
    batch: LandedBatch = field(init=False)
    found: BadRecords = field(default_factory=lambda: BadRecords(saved=2))

    def land(self, *payloads: bytes) -> None:
        rows = [
            {
                "stream": "clicks",
                "shard_id": "shard-1",
                "sequence_number": str(10**50 + n),
                "sub_sequence_number": 0,
                "partition_key": "k",
                "approximate_arrival_timestamp": NOW,
                "data": payload,
                "_batch_id": "batch-1",
            }
            for n, payload in enumerate(payloads)
        ]
        file = str(self.folder / "landed.parquet")
        size = write_table(pa.Table.from_pylist(rows, RECORD_SCHEMA), file)
        self.batch = LandedBatch(
            batch_id="batch-1",
            start="TRIM_HORIZON",
            end=str(10**50 + len(rows)),
            file=file,
            file_bytes=size,
            records=len(rows),
            bytes=1,
            is_last=False,
            read_until=None,
            fencing_token=1,
        )

    def sink(self, name: str, where: str | None = None) -> ParquetSink:
        return ParquetSink(name=name, path=str(self.folder / name), where=where)

    def delivery(
        self,
        *more: Sink,
        where: str | None = None,
        dead: bool = True,
        schema: str | None = None,
        transform: Transform | None = None,
        layout: RecordLayout = SHARD_RECORDS,
        keeps_rejected: bool = False,
        payload: Payload | None = None,
        time_formats: Mapping[str, str] | None = None,
        options: IngestionOptions | None = None,
    ) -> TransformedDelivery:
        sinks: list[Sink] = [*([self.sink("dead_letter")] if dead else []), self.sink("main", where), *more]
        transformation = Transformation(
            self.spark,
            routed_sinks(sinks),
            layout=layout,
            transform=transform,
            options=options,
            payload=payload_of(payload or Payload(), schema, layout, time_formats, DEFAULT_ACCESS),
        )
        return TransformedDelivery(
            transformation, sinks, source="clicks", bad_records=self.found, keeps_rejected=keeps_rejected
        )

    def deliver(self, delivery: TransformedDelivery) -> Prepared:
        attempt = self.attempt()
        prepared = delivery.prepare([attempt], delivery.sinks)[attempt.batch_id]
        if isinstance(prepared, Exception):
            delivery.discard([attempt])
            raise prepared
        for sink in delivery.sinks:
            delivery.commit(sink, [attempt])
        delivery.discard([attempt])
        return prepared

    def attempt(self, fencing_token: int = 1) -> Attempt:
        return Attempt(
            batch=self.batch, file=self.batch.file, folder=FOLDER, set_id="set-1", fencing_token=fencing_token,
            source="clicks", partition_key="shard-1", owner="job",
        )  # fmt: skip

    def rows(self, sink: str) -> list[dict[str, Any]]:
        file = self.folder / sink / "batch-1.parquet"
        return pq.read_table(file).to_pylist() if file.exists() else []

    def amounts(self, sink: str) -> list[float]:
        return [row["amount"] for row in self.rows(sink)]

    @property
    def unfinished(self) -> list[str]:
        return [file for file in files_below(str(self.folder)) if "_staging" in file]


def fragile(records: DataFrame) -> DataFrame:
    """Raise on poison."""

    def length(data):
        if b"poison" in bytes(data):
            raise ValueError("this record is poison")
        return len(data)

    return records.withColumn("length", functions.udf(length, "long")("data"))


def marking(records: DataFrame) -> DataFrame:
    """Mark what is too much."""
    return records.withColumn("_error", functions.expr("CASE WHEN amount > 100 THEN 'too much: ' || amount END"))


def marking_nothing(records: DataFrame) -> DataFrame:
    return records.withColumn("_error", functions.lit(None))


def raising(error: type[BaseException]) -> Transform:
    def transform(records: DataFrame) -> DataFrame:
        def fail(data):
            raise error("away")

        return records.withColumn("length", functions.udf(fail, "long")("data"))

    return transform


def land_items(batches: LandedBatches, batch_id: str = "batch-1", **columns: Any) -> None:
    rows = len(next(iter(columns.values())))
    ours = {
        "_origin": ["s3://b/k"] * rows,
        "_row": pa.array(range(rows), pa.int64()),
        "_batch_id": [batch_id] * rows,
    }
    batches.land(*[b""] * rows)
    batches.batch = replace(batches.batch, batch_id=batch_id, file=str(batches.folder / f"{batch_id}.parquet"))
    size = write_table(pa.table({**columns, **ours}), batches.batch.file)
    batches.batch = replace(batches.batch, file_bytes=size)


def of_items(batches: LandedBatches, *more: Sink, **options: Any) -> TransformedDelivery:
    return batches.delivery(*more, layout=ITEM_RECORDS, **options)
