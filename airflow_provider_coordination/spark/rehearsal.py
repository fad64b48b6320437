"""A short job that loads the same classes as ingestion jobs, so that they can be archived; see `class_archive`."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REHEARSED = "coordination-rehearsed"
"""The line that the job prints once it has done everything."""


@dataclass(frozen=True)
class RehearsedRow:
    """The row that a slot returns.

    :param slot: its number.
    """

    slot: int


def main() -> int:
    """Land, read, transform and write, as jobs do; return the exit code."""
    from airflow_provider_coordination.spark.job_spark import JobSpark
    from airflow_provider_coordination.spark.slots import land_in_slots
    from airflow_provider_coordination.spark.worker_daemon import import_compiled_pyspark

    import_compiled_pyspark()
    job_spark = JobSpark("rehearsal")
    try:
        rows = land_in_slots(job_spark.context, [[0], [1]], _land, RehearsedRow)
        assert [row.slot for row in rows] == [0, 1]
        spark = job_spark.session
        with tempfile.TemporaryDirectory(prefix="coordination-") as folder:
            written = str(Path(folder, "written"))
            spark.range(0, 1000, 1, 2).mapInArrow(_same, "id long").write.parquet(written)
            read = spark.read.parquet(written).selectExpr("id % 7 AS key", "cast(id AS string) AS text")
            read.groupBy("key").count().orderBy("key").collect()
            parsed = read.selectExpr("from_json(concat('{\"a\":', text, '}'), 'a long') AS row").where("row.a > 3")
            parsed.write.mode("append").parquet(str(Path(folder, "parsed")))
            parsed.createOrReplaceTempView("parsed")
            spark.sql("SELECT count(DISTINCT row.a) FROM parsed").collect()
    finally:
        job_spark.stop()
    sys.stdout.write(f"{REHEARSED}\n")
    sys.stdout.flush()
    return 0


def _land(slots: Iterable[int]) -> list[RehearsedRow]:
    return [RehearsedRow(slot) for slot in slots]


def _same(batches: Iterable[Any]) -> Iterator[Any]:
    yield from batches
