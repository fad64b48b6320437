"""Jobs on a cluster publish landed files in a slow and failing bucket while drivers die or stop."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.support.bucket_readers import Watch
from tests.support.cluster_job import (
    LEASE,
    ONE_EXECUTOR,
    ClusterPipeline,
    assert_died,
    assert_taken_over,
)
from tests.support.faulty_s3 import Fault, FaultyS3
from tests.support.spark_job import CRASHING, Job
from tests.support.waiting import PATIENCE_SECONDS

REQUEST_SECONDS = 0.05
LANDED = "PUT .*/_landing/(?!_probe)"
PUBLISHED = r"PUT /[^/]+/parquet/[^/]+\.parquet"
FIRST = ((LANDED, Fault.UNAVAILABLE), (LANDED, Fault.LOST), (PUBLISHED, Fault.CUT), (PUBLISHED, Fault.OVERDUE))
THEN = ((LANDED, Fault.CUT), (LANDED, Fault.OVERDUE), (PUBLISHED, Fault.UNAVAILABLE), (PUBLISHED, Fault.LOST))
"""What goes wrong, once each: a 503, an upload that is cut off, an answer that is lost or comes too late."""
DEATHS = ("recorded:1", "publishing:1", "published:1", "publishing:2", "published:2")
"""Where drivers are killed: among others between what publishes a landed file and what deletes it."""


def crash_while_sending(pipeline: ClusterPipeline, at: str) -> Job:
    """Send records until a job has died of them; one batch may hold all that were sent before."""
    pipeline.send(20)
    job = pipeline.start(CRASHING, until_caught_up=False, env={"CRASH_AT": at})
    deadline = time.monotonic() + PATIENCE_SECONDS
    while job.process.poll() is None:
        assert time.monotonic() < deadline, f"the job does not die; its log:\n{job.output}"
        with suppress(subprocess.TimeoutExpired):
            job.process.wait(5)
        pipeline.send(2)
    return job


@pytest.mark.only_deep
def test_records_are_published_once_despite_failing_bucket_and_drivers(
    on_cluster: Callable[..., ClusterPipeline], network: FaultyS3
) -> None:
    network.seconds = REQUEST_SECONDS
    pipeline = on_cluster(ClusterPipeline)
    for death in DEATHS:
        for what, fault in FIRST:
            network.make(what, fault)
        crashed = crash_while_sending(pipeline, death)
        assert_died(crashed)
        pipeline.coordinator().give_up_owner(crashed.settings.owner)

    pipeline.send(20)
    former = pipeline.stop("publishing:1", conf=ONE_EXECUTOR, **LEASE)
    job = pipeline.start(until_caught_up=False, **LEASE)
    pipeline.wait_until_delivered(job)
    with Watch({"reader": pipeline.batches}, ["parquet"], pause_seconds=0.2) as watch:
        assert_taken_over(former)
        troubles = [network.make(what, fault) for what, fault in THEN]
        pipeline.send(20)
        pipeline.wait_until_delivered(job)
        job.driver().terminate()
        assert job.wait() == 0, job.output
        watch.wait_until_seen(pipeline.sent)
    watch.assert_whole_batches(pipeline.sent)
    assert [trouble for trouble in troubles if trouble.left] == []
