"""The cost of exact payloads: a transformed delivery whose schema may need the payload's texts, beside plain Spark.

Both ways do the work of a delivery in two Spark jobs: count the records that do not fit, then write the others as
Parquet. Plain Spark parses with `from_json` of the same schema and options, which changes values. Both run in turn.

- `text`: texts and whole numbers alone; no payload is parsed again.
- `times`: TIMESTAMP and DATE, which are converted from their text.
- `decimals`: a DECIMAL with a fraction in each payload, so that each is parsed again.
- `nested`: an array of floats and a map of times, so that each payload is parsed again.

Usage: python -m benchmarks.payloads [--quick]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession, functions

from airflow_provider_coordination.spark.kinesis.shard_format import SHARD_RECORDS
from airflow_provider_coordination.spark.payload import JsonPayload
from airflow_provider_coordination.spark.payload_column import STRICT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMAS: Mapping[str, tuple[str, str]] = {
    "text": ("id STRING, name STRING, n BIGINT", '"id": "%1$d", "name": "click", "n": %1$d'),
    "times": (
        "id STRING, at TIMESTAMP, day DATE",
        '"id": "%1$d", "at": "2026-01-31T07:08:09.123456Z", "day": "2026-01-31"',
    ),
    "decimals": ("id STRING, price DECIMAL(18,4), tax DECIMAL(10,2)", '"id": "%1$d", "price": %1$d.25, "tax": 1.5'),
    "nested": (
        "id STRING, xs ARRAY<DOUBLE>, ats MAP<STRING, TIMESTAMP>",
        '"id": "%1$d", "xs": [1.5, %1$d, 0.1], "ats": {"a": "2026-01-31T07:08:09Z"}',
    ),
}
"""By name, a schema and the fields of a payload, as Java formats the number of the record into them."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few records and repetitions")
    options = parser.parse_args(arguments)
    records, repetitions = (20_000, 2) if options.quick else (200_000, 3)
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    figures: dict[str, dict[str, float]] = {}
    print(f"\n{records:,} records, medians of {repetitions} runs:\n")
    print("| schema | ours | to text | plain Spark | to plain Spark |\n|---|--:|--:|--:|--:|")
    for name, (schema, fields) in SCHEMAS.items():
        with tempfile.TemporaryDirectory(prefix="payloads-") as folder:
            figures[name] = _measured(spark, schema, fields, records, repetitions, Path(folder))
        found = figures[name]
        found["to text"] = found["ours"] / figures["text"]["ours"]
        print(
            f"| {name} | {found['ours']:.2f} s | {found['to text']:.2f} | {found['plain']:.2f} s | "
            f"{found['to plain Spark']:.2f} |"
        )
    print("\n" + json.dumps(figures))


def _measured(
    spark: SparkSession, schema: str, fields: str, records: int, repetitions: int, folder: Path
) -> dict[str, float]:
    landed = str(folder / "landed")
    payload = functions.format_string("{" + fields + "}", functions.col("id")).cast("binary")
    spark.range(records).select(payload.alias("data")).write.parquet(landed)
    ours = JsonPayload(schema, SHARD_RECORDS)
    parsed = functions.from_json(functions.col("data").cast("string"), schema, STRICT)

    def exact(rows: DataFrame) -> None:
        rows.where(~ours.fits()).count()
        ours.parsed(rows).write.mode("overwrite").parquet(str(folder / "ours"))

    def plain(rows: DataFrame) -> None:
        rows.where(parsed.isNull()).count()
        rows.select("*", parsed.alias("p")).select("data", "p.*").write.mode("overwrite").parquet(str(folder / "plain"))

    seconds: dict[str, list[float]] = {"ours": [], "plain": []}
    ways: Mapping[str, Callable[[DataFrame], None]] = {"ours": exact, "plain": plain}
    for _ in range(repetitions + 1):
        for way, run in ways.items():
            start = time.perf_counter()
            run(spark.read.parquet(landed))
            seconds[way].append(time.perf_counter() - start)
    medians = {way: statistics.median(taken[1:]) for way, taken in seconds.items()}  # the first run compiles
    return {**medians, "to plain Spark": medians["ours"] / medians["plain"]}


if __name__ == "__main__":
    main()
