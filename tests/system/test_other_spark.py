"""A job on another Spark behaves the same; each day takes another version.

`make test-matrix` runs more on all of them.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.dataset as ds

from tests.support.spark_home import todays_spark
from tests.support.spark_job import REPOSITORY, MakePipeline

SCHEMA = "id STRING NOT NULL, at TIMESTAMP, local TIMESTAMP_NTZ, number BIGINT"
ROW = {"id": "a", "at": "2024-05-06T07:08:09.123456Z", "local": "2024-05-06T07:08:09.123456", "number": 21}


def test_schema_and_transform_give_equal_values_on_another_spark(make_pipeline: MakePipeline) -> None:
    minor, spark = todays_spark()
    pipeline = make_pipeline(1)
    pipeline.client.put_record(StreamName=pipeline.stream, PartitionKey="a", Data=json.dumps(ROW).encode())
    pipeline.sync()

    job = pipeline.start(
        schema=SCHEMA,
        transform="tests.support.transforms:converted",
        env={"SPARK_HOME": str(spark / "pyspark"), "PYTHONPATH": f"{spark}:{REPOSITORY}"},
    )

    assert job.wait() == 0, job.output
    delivered = ds.dataset(pipeline.output, format="parquet").to_table()
    instant = datetime(2024, 5, 6, 7, 8, 9, 123456)
    [spark_of_job] = delivered["spark"].to_pylist()
    assert spark_of_job.startswith(f"{minor}.")
    assert delivered.drop_columns(["_batch_id", "spark"]).to_pylist() == [
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
