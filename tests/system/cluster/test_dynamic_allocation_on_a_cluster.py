"""A job with dynamic allocation begins with one executor, and gains more for more shards."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.cluster_job import ClusterPipeline
from tests.support.waiting import PATIENCE_SECONDS

CONF = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.executor.cores": "1",
}


@pytest.mark.only_deep
def test_job_gains_an_executor_and_delivers_each_record_once(
    on_cluster: Callable[..., ClusterPipeline],
) -> None:
    pipeline = on_cluster(ClusterPipeline, shards=5)  # a new shard counts with the most it may return, four fill a slot
    pipeline.send(40)
    job: Any = pipeline.start(conf=CONF, until_caught_up=False, round_duration=4)
    job.wait_for("slots of a round: 2, executors run 1 tasks, the work needs 2")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while sum(len(worker.executors()) for worker in pipeline.cluster.workers) < 2:
        assert job.process.poll() is None and time.monotonic() < deadline, job.output
        time.sleep(0.2)
    pipeline.send(40)
    pipeline.wait_until_delivered(job)
    pipeline.assert_each_once("parquet")
