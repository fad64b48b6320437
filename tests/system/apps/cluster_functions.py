"""A user's module that is shipped to a cluster: a transform, and a function of `ForeachBatch`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark import TaskContext
from pyspark.sql import DataFrame, functions


@functions.udf("string")
def _id_of(data: bytes) -> str:
    task = TaskContext.get()
    if task is not None and (task.partitionId(), task.attemptNumber()) == (0, 0):
        raise RuntimeError("the first task of an action fails once")
    return str(json.loads(data)["id"])


def identified(records: DataFrame) -> DataFrame:
    """Take the id out of each payload, in the Python of an executor."""
    return records.withColumn("id", _id_of("data"))


def into_bucket(rows: DataFrame, batch_ids: Sequence[str]) -> None:
    """Write each batch to an object of its own, in place of what is there: exactly once, however often it comes.

    The bucket, and how it is reached, is in the driver's environment.
    """
    place = json.loads(os.environ["PUBLISHED"])
    files = fs.S3FileSystem(**place["access"])
    for batch_id in batch_ids:
        found = rows.where(rows["_batch_id"] == batch_id).select("_batch_id", "id").collect()
        table = pa.table({"_batch_id": [row[0] for row in found], "id": [row[1] for row in found]})
        with files.open_output_stream(f"{place['path']}/{batch_id}.parquet") as stream:
            pq.write_table(table, stream)
