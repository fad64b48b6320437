"""Jobs on a cluster write to a sink of each kind while executors, workers and drivers die, come and go."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

import psutil
import pytest

from tests.support.bucket_readers import Watch
from tests.support.cluster_job import KINDS, LEASE, ONE_EXECUTOR, EverySink, assert_died, assert_taken_over
from tests.support.depth import at_depth
from tests.support.seed import seeded
from tests.support.spark_cluster import ClusterWorker, SparkCluster
from tests.support.spark_job import CRASHING
from tests.support.waiting import until

pytestmark = [pytest.mark.deep, pytest.mark.timeout(at_depth(short=1200, deep=3600))]
SPECULATING = {
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "1s",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.task.duration.threshold": "10s",
}
"""A task that takes longer than half of the others, or is alone and takes long, is run again on another worker."""
STOPPED_SECONDS = 30
"""How long Python stands still on a worker: longer than it takes until a task is run again."""
WATCHED = ("parquet", "delta")
RECORDS = at_depth(short=8, deep=20)
"""Sent at a time."""
DEATHS = at_depth(short=(), deep=("recorded:1", "delivering:1", *(f"committed {sink}:1" for sink in KINDS)))
"""Where drivers are killed, one after the other: in the short form one stands still, and none is killed."""


def busy_worker(cluster: SparkCluster) -> ClusterWorker:
    """Return a worker that runs an executor, as soon as there is one."""
    return until(lambda: next((worker for worker in cluster.workers if worker.executors()), None))


def kill_executor(cluster: SparkCluster) -> None:
    busy_worker(cluster).executors()[0].kill()


def kill_worker(cluster: SparkCluster) -> None:
    cluster.kill(busy_worker(cluster))
    joined = cluster.add_worker()
    until(lambda: joined if joined.executors() else None)


def take_worker_away(cluster: SparkCluster) -> None:
    """Announce a worker's end, let its executors finish what they do, and kill it.

    Spark asks an executor to leave only once it is registered with the driver. One that is just starting gets no
    request, and works until it is killed.
    """
    leaving = until(lambda: next((worker for worker in cluster.workers if worker.registered_executors()), None))
    asked = leaving.registered_executors()
    leaving.decommission()
    cluster.add_worker()
    until(lambda: None if asked & set(leaving.executors()) else leaving)
    cluster.kill(leaving)


def stop_python(cluster: SparkCluster) -> None:
    """Let what lands on one worker stand still for a while: another one does its work as well.

    Not for good: Spark repeats no task on a host that has tried it. Where a task has failed on one of two hosts, and
    stands still on the other, none is left.
    """
    worker = until(lambda: next((worker for worker in cluster.workers if worker.python_workers()), None))
    stopped = worker.python_workers()
    for process in stopped:
        process.suspend()
    going_on = threading.Timer(STOPPED_SECONDS, resume, [stopped])
    going_on.daemon = True
    going_on.start()


def resume(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.resume()


HARMS = (kill_executor, kill_worker, take_worker_away, stop_python)


def harms() -> list[Callable[[SparkCluster], None]]:
    """Return what is done to the cluster, in its order."""
    chosen = [*HARMS] * 6
    seeded("harms").shuffle(chosen)
    return at_depth(short=chosen[:1], deep=chosen)


def test_sinks_hold_each_record_once_after_failures(
    on_cluster: Callable[..., EverySink], cluster: SparkCluster, postgres_url: str
) -> None:
    sinks = on_cluster(EverySink, postgres=postgres_url)
    for death in DEATHS:
        sinks.send(RECORDS)
        crashed = sinks.crash(death)
        assert_died(crashed)
        sinks.coordinator().give_up_owner(crashed.settings.owner)  # what the operator does at once

    sinks.send(RECORDS)
    former = sinks.stop("committing iceberg:1", conf=ONE_EXECUTOR, **LEASE)
    job = sinks.start(
        CRASHING,
        env={"SPECULATE": "1"},
        conf=SPECULATING,
        until_caught_up=False,
        **LEASE,
    )
    sinks.wait_until_delivered(job, KINDS[-1])
    with Watch({"reader": sinks.batches}, WATCHED, pause_seconds=1) as watch:
        assert_taken_over(former)
        for harm in harms():
            sinks.send(RECORDS)
            harm(cluster)
            sinks.wait_until_delivered(job)
        sinks.wait_until_delivered(job, KINDS[-1])
        job.driver().terminate()
        assert job.wait() == 0, job.output
        for sink in KINDS:
            sinks.assert_each_once(sink)
        watch.wait_until_seen(sinks.sent)
    watch.assert_whole_batches(sinks.sent)
