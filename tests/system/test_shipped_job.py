"""Whole jobs with the package in an archive, as the operator ships it: one process forks their Python workers."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from airflow_provider_coordination.operators.packaging import write_package_archive
from airflow_provider_coordination.spark import worker_daemon
from tests.support.spark_job import Job, MakePipeline
from tests.support.waiting import until

SPARKS_OWN = "pyspark.daemon"
FRAGILE = "tests.support.transforms:fragile"
CONF = "spark.python.daemon.module"


def cmdline(process: psutil.Process) -> list[str]:
    """Return the command of a process; empty if it has ended."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:  # a zombie is one too
        return []


def daemon_of(job: Job) -> str:
    """Wait for the process that a job's Python workers are forked from; return the module that it runs."""
    job.wait_for("round 2:")
    commands = [cmdline(child) for child in psutil.Process(job.process.pid).children(recursive=True)]
    [module] = {command[2] for command in commands if command[1:2] == ["-m"]}
    return module


@pytest.fixture
def shipped(tmp_path: Path) -> dict[str, str]:
    """Spark's configuration of a job that comes with the package."""
    return {"spark.submit.pyFiles": str(write_package_archive(tmp_path))}


@pytest.mark.only_deep
def test_landing_workers_come_from_a_process_with_their_imports(
    make_pipeline: MakePipeline, shipped: dict[str, str]
) -> None:
    pipeline = make_pipeline(2)
    pipeline.send(10)
    pipeline.sync()
    job = pipeline.start(until_caught_up=False, conf=shipped)
    assert daemon_of(job) == worker_daemon.__name__
    processes = [psutil.Process(job.process.pid), *psutil.Process(job.process.pid).children(recursive=True)]
    job.driver().terminate()
    assert job.wait() == 0, job.output
    assert job.summary["records_delivered"] == 100
    assert "Spark could not be stopped" not in job.output
    pipeline.assert_exactly_once()
    until(lambda: not any(process.is_running() for process in processes), lambda: processes)


@pytest.mark.only_deep
@pytest.mark.parametrize(
    ("conf", "transform"), [({CONF: SPARKS_OWN}, None), ({}, FRAGILE)], ids=["of the user's choice", "transforms"]
)
def test_other_workers_come_from_the_process_of_spark_or_user(
    make_pipeline: MakePipeline, shipped: dict[str, str], conf: dict[str, str], transform: str | None
) -> None:
    pipeline = make_pipeline(1)
    pipeline.send(10)
    pipeline.sync()
    job = pipeline.start(until_caught_up=False, conf=shipped | conf, transform=transform)
    assert daemon_of(job) == SPARKS_OWN
    job.driver().terminate()
    assert job.wait() == 0, job.output
    pipeline.assert_exactly_once()
