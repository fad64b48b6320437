"""A job on the oldest common Spark 4 behaves the same."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from tests.support.spark_job import REPOSITORY, MakePipeline
from tests.support.table_readers import other_spark

SCHEMA = "id STRING NOT NULL, at TIMESTAMP, local TIMESTAMP_NTZ, number BIGINT"
ROW = {"id": "a", "at": "2024-05-06T07:08:09.123456Z", "local": "2024-05-06T07:08:09.123456", "number": 21}


@pytest.mark.only_deep(daily=False)
def test_schema_and_transform_give_equal_values_on_spark_4_1(make_pipeline: MakePipeline) -> None:
    spark = other_spark()
    pipeline = make_pipeline(1)
    pipeline.client.put_record(StreamName=pipeline.stream, PartitionKey="a", Data=json.dumps(ROW).encode())
    pipeline.sync()

    job = pipeline.start(
        schema=SCHEMA,
        transform="tests.support.transforms:converted",
        env={"SPARK_HOME": str(spark / "pyspark"), "PYTHONPATH": f"{spark}:{REPOSITORY}"},
    )

    assert job.wait() == 0, job.output
    assert "Spark 4.1.4" in job.output
    delivered = ds.dataset(pipeline.output, format="parquet").to_table()
    instant = datetime(2024, 5, 6, 7, 8, 9, 123456)
    assert delivered.drop_columns("_batch_id").to_pylist() == [
        {
            "id": "a",
            "at": instant.replace(tzinfo=UTC),
            "local": instant,
            "later": instant.replace(microsecond=123457),
            "doubled": 42,
        }
    ]
    assert delivered.schema.field("at").type == pa.timestamp("us", "UTC")
    assert delivered.schema.field("local").type == pa.timestamp("us")
