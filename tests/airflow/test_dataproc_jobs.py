"""Jobs of Dataproc, as Google's client and Dataproc's own message types understand them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.operators.prepared_jobs import PreparedJob, dataproc_batch, dataproc_job
from tests.airflow.conftest import REPOSITORY
from tests.support.airflow_dags import DagBag
from tests.support.dataproc_server import DataprocServer, dataproc_server

PROPERTIES = {"spark.executor.cores": "2", "spark.driver.extraJavaOptions": "-Da=b -Dc='d e'"}


@pytest.fixture
def job() -> PreparedJob:
    return PreparedJob(
        source="clicks",
        owner="vm:dag:run+00:task:-1:1:ab",
        task="dag/run/task/3",
        coordination_conn_id="coordination_default",
        application="gs://lake/coordination/packages/1/ingest.py",
        py_files="gs://lake/own.py,gs://lake/coordination/packages/2/airflow_provider_coordination.zip",
        arguments=(f"gs://lake/coordination/settings/3#{'k' * 43}", "vm:dag:run+00:task:-1:1:ab"),
        conf={"spark.yarn.maxAppAttempts": "1", **PROPERTIES},
    )


@pytest.fixture
def dataproc(monkeypatch: pytest.MonkeyPatch) -> Iterator[DataprocServer]:
    with dataproc_server(monkeypatch) as server:
        yield server


def submit_by_example(name: str, request: dict[str, Any]) -> str:
    """Run the task that submits, of an example."""
    task = DagBag(str(REPOSITORY / "dags" / f"{name}.py")).dags[name].get_task("submit")
    return str(task.python_callable(request, params={"project": "shop", "region": "europe-west1"}))


def test_dataproc_cluster_understands_the_submitted_job(job: PreparedJob, dataproc: DataprocServer) -> None:
    assert submit_by_example("dataproc_ingestion", dataproc_job(job, cluster="ingestion")) == "job-1"
    [request] = dataproc.jobs
    assert (request.project_id, request.region) == ("shop", "europe-west1")
    understood = request.job
    assert understood.placement.cluster_name == "ingestion"
    assert understood.pyspark_job.main_python_file_uri == job.application
    assert list(understood.pyspark_job.args) == list(job.arguments)
    assert ",".join(understood.pyspark_job.python_file_uris) == job.py_files
    assert dict(understood.pyspark_job.properties) == job.conf
    assert understood.scheduling.max_failures_per_hour == 0, "a second driver would be refused"


def test_dataproc_serverless_understands_the_created_batch(job: PreparedJob, dataproc: DataprocServer) -> None:
    name = submit_by_example("dataproc_serverless_ingestion", dataproc_batch(job, version="3.0"))
    assert name == "projects/shop/locations/europe-west1/batches/1"
    [request] = dataproc.batches
    assert request.parent == "projects/shop/locations/europe-west1"
    batch = request.batch
    assert batch.pyspark_batch.main_python_file_uri == job.application
    assert list(batch.pyspark_batch.args) == list(job.arguments)
    assert ",".join(batch.pyspark_batch.python_file_uris) == job.py_files
    assert (batch.runtime_config.version, dict(batch.runtime_config.properties)) == ("3.0", PROPERTIES)


def test_dataproc_requests_without_options_leave_them_to_dataproc(job: PreparedJob) -> None:
    assert "placement" not in dataproc_job(job)
    assert "version" not in dataproc_batch(job)["runtime_config"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"conf": {"spark.yarn.queue": "q"}},
            "conf 'spark.yarn.queue' does not apply to Dataproc Serverless; leave it",
        ),
        ({"conf": {"spark.master": "yarn"}}, "conf 'spark.master' does not apply"),
        ({"conf": {"spark.shuffle.service.enabled": "true"}}, "conf 'spark.shuffle.service.enabled' does not apply"),
        ({"application": "s3://lake/ingest.py"}, "s3://lake/ingest.py: Dataproc Serverless only reads gs:// URIs"),
        (
            {"py_files": "/shared/a.zip"},
            "/shared/a.zip: Dataproc Serverless only reads gs:// URIs; give such a 'folder",
        ),
    ],
)
def test_job_that_dataproc_serverless_cannot_run_is_refused(
    job: PreparedJob, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        dataproc_batch(replace(job, **changes))
