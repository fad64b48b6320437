"""Archives the classes that a Spark job loads: a JVM that maps the archive begins in half the time.

Usage: python tools/archive_spark.py <archive>

The tests start some hundred JVMs, each for seconds. An archive belongs to one Java and one Spark; with others a JVM
passes over it without a word.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def main(archive: Path) -> None:
    """Run a small job that does what jobs do, and leave the archive."""
    from pyspark.sql import SparkSession

    partial = archive.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    options = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ArchiveClassesAtExit={partial} -Xlog:disable"
    builder = SparkSession.builder.master("local[2]").config("spark.driver.extraJavaOptions", options)
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    with tempfile.TemporaryDirectory() as folder:
        written = f"{folder}/written"
        spark.range(0, 1000, 1, 2).mapInArrow(_same, "id long").write.parquet(written)
        read = spark.read.parquet(written).selectExpr("id % 7 AS key", "cast(id AS string) AS text")
        read.groupBy("key").count().orderBy("key").collect()
        read.selectExpr("from_json(concat('{\"a\":', text, '}'), 'a long') AS row").where("row.a > 3").count()
    process: Any = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    spark.stop()
    process.stdin.close()  # it ends with its input
    process.wait()
    partial.replace(archive)


def _same(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
