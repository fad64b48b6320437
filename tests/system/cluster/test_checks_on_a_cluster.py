"""A job names workers that differ from others, and drivers that executors cannot reach."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_provider_coordination.spark.outcome import EXIT_CONFIGURATION
from tests.support.cluster_job import ONE_EXECUTOR, ClusterPipeline
from tests.support.executor_python import WITHOUT, pythons_of_other_minors
from tests.support.spark_cluster import SparkCluster

NOWHERE = "192.0.2.1"
"""An address of a network that there is only in documents."""


def counted_attempts(pipeline: ClusterPipeline) -> list[int]:
    """Return how often working on each partition has failed."""
    return [partition.attempts for partition in pipeline.coordinator().view.partitions()]


@pytest.mark.only_deep
def test_jobs_without_executors_name_the_reason(on_cluster: Callable[..., ClusterPipeline]) -> None:
    """Both at the same time: each waits long before it is sure."""
    unreachable, without_room = (on_cluster(ClusterPipeline, source=source) for source in ("clicks", "taps"))
    nowhere = {"spark.driver.host": NOWHERE, "spark.driver.bindAddress": "127.0.0.1"}
    ends = unreachable.start(conf={**ONE_EXECUTOR, **nowhere})
    waits = without_room.start(conf={"spark.executor.memory": "100g"})
    waits.wait_for("the cluster has no free cores or memory for this job, which waits for them")
    assert ends.wait() == EXIT_CONFIGURATION
    assert f"They connect to 'spark.driver.host' '{NOWHERE}', port " in ends.output
    assert not any(counted_attempts(unreachable))
    assert waits.process.poll() is None


@pytest.mark.parametrize(
    "which", [pytest.param(0, id="oldest", marks=pytest.mark.only_deep), pytest.param(-1, id="newest")]
)
def test_executors_of_another_python_are_refused_before_leases(
    on_cluster: Callable[..., ClusterPipeline], which: int
) -> None:
    pipeline = on_cluster(ClusterPipeline)
    pipeline.send(2)
    job = pipeline.start(env={"PYSPARK_PYTHON": pythons_of_other_minors()[which]})
    assert job.wait() == EXIT_CONFIGURATION, job.output
    assert re.search(
        r"configuration error: executors run Python (3\.\d+) and the driver runs Python (?!\1;)3\.\d+; install Python "
        r".* or name another Python in 'spark.pyspark.python' of the task's conf, or in PYSPARK_PYTHON of",
        job.output,
    ), job.output
    assert "round 1" not in job.output
    assert not any(counted_attempts(pipeline))


@pytest.mark.only_deep
def test_joining_worker_with_missing_requirements_is_named(
    cluster: SparkCluster, on_cluster: Callable[..., ClusterPipeline], tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(WITHOUT.format(module="pyarrow"))
    pipeline = on_cluster(ClusterPipeline)
    pipeline.send(2)
    job = pipeline.start(until_caught_up=False, max_duration=200)
    pipeline.wait_until_delivered(job)
    others = cluster.workers[:]
    joined = cluster.add_worker(environment={"PYTHONPATH": str(tmp_path)})
    try:
        for worker in others:
            cluster.kill(worker)
        assert job.wait() == EXIT_CONFIGURATION
    finally:
        cluster.kill(joined)
    assert "No module named 'pyarrow'; install it there, or name another Python" in job.output
    assert not any(counted_attempts(pipeline))
