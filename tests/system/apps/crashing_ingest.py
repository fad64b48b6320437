"""The ingestion application, which kills itself with SIGKILL, or stands still by SIGSTOP, when it passes a phase.

CRASH_AT and STOP_AT name the phases, each with which time that is, such as `recorded:1,delivered:2`. Beside those of a
job there are `committing SINK` and `committed SINK`, before and after what a delivery brings goes into that sink, and
`publishing` and `published`, before and after one request gives a file of a bucket its name in a dataset.

With SPECULATE Spark may run a task twice at the same time, which jobs do not let it do.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Sequence

from airflow_provider_coordination.spark.application import main
from airflow_provider_coordination.spark.delivery import Attempt
from airflow_provider_coordination.spark.files import Claim
from airflow_provider_coordination.spark.job_spark import SPARK_CONF
from airflow_provider_coordination.spark.s3_objects import BucketFiles
from airflow_provider_coordination.spark.transformed_delivery import TransformedDelivery

SIGNALS = {"CRASH_AT": signal.SIGKILL, "STOP_AT": signal.SIGSTOP}
lock, passed = threading.Lock(), Counter[str]()
commit, publish = TransformedDelivery.commit, BucketFiles.publish


def strike(phase: str) -> None:
    with lock:
        passed[phase] += 1
        for name, what in SIGNALS.items():
            if f"{phase}:{passed[phase]}" in os.environ.get(name, "").split(","):
                os.kill(os.getpid(), what)


def commit_observed(delivery: TransformedDelivery, sink: str, attempts: Sequence[Attempt]) -> None:
    strike(f"committing {sink}")
    commit(delivery, sink, attempts)
    strike(f"committed {sink}")


def publish_observed(files: BucketFiles, path: str, target: str, *, size: int | None, claim: Claim | None) -> bool:
    if claim is None:
        return publish(files, path, target, size=size, claim=claim)
    strike("publishing")
    is_first = publish(files, path, target, size=size, claim=claim)
    strike("published")
    return is_first


if __name__ == "__main__":
    TransformedDelivery.commit = commit_observed  # type: ignore[method-assign]
    BucketFiles.publish = publish_observed  # type: ignore[method-assign]
    if "SPECULATE" in os.environ:
        SPARK_CONF["spark.speculation"] = "true"
    sys.exit(main(observer=strike))
