"""A Python worker of an executor dies while it lands: its shards are landed by another one."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq

from airflow_provider_coordination.spark.kinesis.landed_shard import ShardLandingOptions
from airflow_provider_coordination.spark.kinesis.landing import land
from tests.support.ailing_kinesis import FIRST, ailing_kinesis
from tests.support.read_plans import read_plans
from tests.support.waiting import PATIENCE_SECONDS

SHARDS = 6


def workers() -> list[psutil.Process]:
    """Return the Python workers of the session's executor."""
    daemons = [
        process
        for process in psutil.Process().children(recursive=True)
        if "pyspark.daemon" in " ".join(process.as_dict(["cmdline"], ad_value=None)["cmdline"] or ())
    ]
    parents = {process.pid for process in daemons}
    return [process for process in daemons if process.ppid() in parents]


def test_shards_of_a_killed_worker_are_landed_by_another(spark: Any, tmp_path: Path) -> None:
    asked = threading.Event()
    with ailing_kinesis() as server:

        def waits(handler: Any, body: bytes) -> None:
            asked.set()
            server.ended.wait()

        server.ill = waits
        options = ShardLandingOptions(
            kinesis=server.settings, root=str(tmp_path), seconds=5, max_bytes=2**30, slot_memory_bytes=2**29
        )
        with ThreadPoolExecutor(1) as pool:
            landing = pool.submit(land, spark.sparkContext, read_plans(SHARDS), options)
            assert asked.wait(PATIENCE_SECONDS)
            server.ill = None
            killed = workers()
            for worker in killed:
                worker.kill()
            rows = landing.result(PATIENCE_SECONDS)

    assert killed
    assert [(row.error, row.records, row.end) for row in rows] == [(None, 2, str(FIRST + 2))] * SHARDS
    assert [pq.read_metadata(row.file).num_rows for row in rows] == [2] * SHARDS
