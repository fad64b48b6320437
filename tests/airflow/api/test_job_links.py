"""Links from a task to the Spark UI and the log of its job: alive while the job runs, and to a history afterwards."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.jobs import JobRecord, Jobs
from airflow_provider_coordination.links import JobLogLink, JobUrls, SparkUiLink, application_url, running_job_ui
from airflow_provider_coordination.operators.job_results import JobOutput
from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.outcome import APPLICATION_MARK
from airflow_provider_coordination.spark.writes import ParquetDataset

OWNER = "host:dag:manual__2026-01-01T00:00:00+00:00:a task:-1:1:abcd"


@pytest.fixture
def job(coordination: SourceCoordinator) -> JobRecord:
    """A job that runs."""
    Jobs(coordination.view).submit(OWNER, task="t", digest="", start_by=datetime.now(UTC) + timedelta(hours=1))
    owner = SourceCoordinator(coordination.store, "clicks", OWNER)
    owner.initialize()
    record = JobRecord(owner)
    record.begin()
    record.note_reading()
    return record


@pytest.fixture
def op(as_role: Any) -> TestClient:
    client: TestClient = as_role("op", follow_redirects=False)
    return client


def test_links_return_the_urls_of_the_operator() -> None:
    operator = CoordinatedSparkSubmitOperator(
        task_id="t", ingestion=Ingestion(reads=KinesisStreams("clicks"), writes=ParquetDataset("/out"))
    )
    links = [SparkUiLink(), JobLogLink()]
    assert {type(link) for link in links} <= {type(link) for link in operator.operator_extra_links}
    assert [link.get_link(operator, ti_key=None) for link in links] == ["", ""]
    operator.job_urls = JobUrls(spark_ui="http://ui", log="http://log")
    assert [link.get_link(operator, ti_key=None) for link in links] == ["http://ui", "http://log"]
    assert SparkUiLink().get_link(object(), ti_key=None) == ""


def test_template_gives_a_url_once_the_application_is_known() -> None:
    template = "https://history/{application_id}/jobs/"
    assert application_url(template, "app-1/2") == "https://history/app-1%2F2/jobs/"
    assert application_url(template, None) == application_url(None, "app-1") == ""


def test_application_is_found_in_the_output_of_the_job() -> None:
    output = JobOutput()
    line = f"2026-01-31 12:00:00,000 INFO x: {APPLICATION_MARK}local-1769860800000 ui=http://driver:4040\n"
    assert list(output.observe([line])) == [line]
    assert output.application_id == "local-1769860800000"


@pytest.mark.integration  # needs no server, but Airflow's API, and so seconds
def test_spark_ui_link_redirects_until_the_job_ends(job: JobRecord, op: TestClient) -> None:
    place = running_job_ui("coordination_default", "clicks", OWNER)
    path = place[place.index("/coordination/") :]
    assert op.get(path).json()["detail"].endswith("has no Spark UI yet")
    job.note(ui_url="http://driver:4040")
    answer: Any = op.get(path)
    assert (answer.status_code, answer.headers["location"]) == (307, "http://driver:4040")
    job.note(ui_url="javascript:alert(1)")
    assert op.get(path).status_code == 404
    job.end({"exit_code": 0})
    assert (op.get(path).status_code, op.get(path).json()["detail"]) == (
        404,
        f"job {OWNER!r} has ended, so its Spark UI is gone",
    )
    op.headers.pop("Authorization")
    assert op.get(path).status_code == 401
