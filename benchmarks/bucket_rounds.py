"""The cost of a round that lands and delivers in a bucket: requests a batch, and the time with slow requests.

A job over shards with ten small records each lands all of them in one round and finds nothing in the next one. Its sink
is a Parquet dataset in a bucket of SeaweedFS on the same machine. The files are delivered as landed, or with a
predicate, which Spark evaluates. All requests of the driver and its workers go through a proxy, which counts them and
delays them by some milliseconds.

Usage: python -m benchmarks.bucket_rounds [--quick]
"""

from __future__ import annotations

import argparse
import json
import re
import secrets
import tempfile
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_coordination.aws import aws_client
from airflow_provider_coordination.stores.sql import SqlStore
from benchmarks.landing import session
from benchmarks.reading import rounds
from tests.support.faulty_s3 import FaultyS3
from tests.support.job_settings import parquet
from tests.support.s3_server import S3Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAST_MS, SLOW_MS = 2, 200
STEPS = ("acquire", "land", "record", "finish")


def measured(spark: SparkSession, network: FaultyS3, shards: int, where: str | None) -> dict[str, Any]:
    """Return the seconds of a job's first round, and the requests that the job made."""
    bucket = f"lake-{secrets.token_hex(4)}"
    aws_client(network.settings, "s3").create_bucket(Bucket=bucket)
    sink = replace(parquet(f"s3://{bucket}/clicks", where=where), aws=network.settings)
    before = len(network.requests)
    with tempfile.TemporaryDirectory() as folder:
        store = SqlStore(f"sqlite:///{folder}/leases.db", table="leases")
        seconds = rounds(spark, shards, store, sink, f"s3://{bucket}/_landing")
        store.close()
    requests = Counter(map(kind_of, network.requests[before:]))
    return {
        "requests a batch": round(requests.total() / shards, 2),
        "requests": {kind: round(count / shards, 2) for kind, count in requests.most_common()},
        "seconds": round(sum(seconds[step] for step in STEPS), 2),
        **{step: round(seconds[step], 2) for step in STEPS},
    }


def kind_of(request: str) -> str:
    """Return the kind of a request: its method and folder."""
    method, _, path = request.partition(" ")
    if method == "GET" and ("list-type" in path or "prefix=" in path):
        return "LIST"
    folder = re.search(r"/(_landing|_staging|_probe|clicks)/", path)
    return f"{method} {folder[1] if folder else 'bucket'}"


def main() -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="8 shards instead of 64")
    shards = 8 if parser.parse_args().quick else 64
    figures: dict[str, Any] = {}
    spark = session()
    try:
        with S3Server() as server, FaultyS3(server.settings) as network:
            for name, where in (("as landed", None), ("with a predicate", "length(data) > 0")):
                measured(spark, network, shards, where)  # warms up
                for milliseconds in (FAST_MS, SLOW_MS):
                    network.seconds = milliseconds / 1000
                    figures[f"{name}, {milliseconds} ms"] = found = measured(spark, network, shards, where)
                    print(f"{name}, {milliseconds} ms: {found}", flush=True)
                network.seconds = 0.0
                slow, fast = (figures[f"{name}, {ms} ms"]["seconds"] for ms in (SLOW_MS, FAST_MS))
                figures[f"{name}, seconds more"] = round(slow - fast, 2)
    finally:
        spark.stop()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
