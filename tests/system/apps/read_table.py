"""Reads tables with Spark alone: configuration and queries arrive as JSON, and each row leaves as a line."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

if __name__ == "__main__":
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    for name, value in json.loads(sys.argv[1]).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for number, query in enumerate(sys.argv[2:]):
        for row in spark.sql(query).collect():
            sys.stdout.write(f"{json.dumps([number, *row])}\n")
