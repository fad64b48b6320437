"""Reads Parquet datasets with Spark alone: each line of JSON requests one, and one line returns its records.

What Spark is configured with comes as JSON as well. A path that cannot be read ends it.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

if __name__ == "__main__":
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    for name, value in json.loads(sys.argv[1]).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for line in sys.stdin:
        records = spark.read.parquet(json.loads(line))
        rows = records.selectExpr("_batch_id", "get_json_object(cast(data AS STRING), '$.id')").collect()
        sys.stdout.write(f"{json.dumps([list(row) for row in rows])}\n")
        sys.stdout.flush()
