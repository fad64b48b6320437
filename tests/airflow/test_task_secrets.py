"""What a task reports to Airflow holds no secret: log, templates, XComs, asset events, checkpoints, lineage."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_provider_coordination.spark.outcome import EXIT_FAILED, SUMMARY_MARK
from tests.airflow.conftest import REPOSITORY, StubSpark

pytestmark = pytest.mark.integration  # needs no server, but whole processes, and so seconds

STORE, KEY, TOKEN = "store-passw0rd-of-ours", "aws-secret-key-of-ours", "aws-session-token-of-ours"

DAG_FILE = """
from airflow.sdk import DAG, Asset

from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.writes import ParquetDataset

with DAG(dag_id="ingestion", schedule=None):
    CoordinatedSparkSubmitOperator(
        task_id="ingest",
        ingestion=Ingestion(reads=KinesisStreams("clicks"), writes=ParquetDataset("/tmp/lake/clicks")),
        outlets=[Asset("s3://lake/clicks")],
        env_vars={"PATH": "%s"},
    )
"""
SUMMARY = {
    "records_delivered": 7,
    "partitions_delivered": 1,
    "batches_delivered": 1,
    "records_by_sink": {"main": 7},
    "columns": {"id": "string"},
    "column_lineage": {"columns": {"id": {"id": ["IDENTITY"]}}, "rows": {}},
    "ranges": {
        "clicks:1767268800:shardId-000000000000": {"from": "1", "to": "2", "records": 7, "last_arrival": None},
    },
}


def run_task(spark: StubSpark, folder: Path, url: str) -> subprocess.CompletedProcess[str]:
    """Run the task in a process, with what it sends to Airflow and OpenLineage in files of a folder.

    :param url: the URL of the store.
    """
    (folder / "dags").mkdir()
    (folder / "dags" / "ingestion.py").write_text(DAG_FILE % spark.path)
    connections = {
        "COORDINATION_DEFAULT": {
            "conn_type": "coordination", "login": "postgres", "password": STORE,
            "extra": {"url": url, "max_attempts": 7, "max_closed_count": 1},
        },
        "AWS_DEFAULT": {
            "conn_type": "aws", "login": "AKIAEXAMPLE", "password": KEY,
            "extra": {"region_name": "eu-west-1", "aws_session_token": TOKEN},
        },
        "SPARK_DEFAULT": {"conn_type": "spark", "host": "local[1]", "extra": {"deploy-mode": "client"}},
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, str(Path(__file__).with_name("task_process.py")), "ingestion.py", "ingestion", "ingest"],
        env={
            **os.environ,
            **{f"AIRFLOW_CONN_{name}": json.dumps(connection) for name, connection in connections.items()},
            "PYTHONPATH": str(REPOSITORY),
            "AIRFLOW_HOME": str(folder / "airflow"),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder}/airflow.db",
            "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
            "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(
                {"type": "file", "log_file_path": str(folder / "lineage.jsonl"), "append": True}
            ),
            "TASK_REQUESTS": str(folder / "requests.jsonl"),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )


def test_failed_task_reports_its_job_and_no_secret(spark: StubSpark, tmp_path: Path, postgres_url: str) -> None:
    import sqlalchemy as sa

    url = sa.make_url(postgres_url)
    url = url.set(query={**url.query, "user": str(url.username)}, username=None)
    error = f" ERROR airflow_provider_coordination.spark.application: failed: partition=s: {KEY} is refused"
    spark.will(lines=[SUMMARY_MARK + json.dumps(SUMMARY), error], exit=EXIT_FAILED)
    done = run_task(spark, tmp_path, url.render_as_string(hide_password=False))

    lineage = (tmp_path / "lineage.jsonl").read_text()
    failed = [json.loads(line) for line in lineage.splitlines()][-1]
    facets = failed["run"]["facets"]
    assert (failed["eventType"], facets["coordination"]["records"]) == ("FAIL", 7), done.stdout
    assert "*** is refused" in facets["errorMessage"]["message"]
    assert [each["name"] for each in (*failed["inputs"], *failed["outputs"])] == ["clicks", "/tmp/lake/clicks"]
    assert failed["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 7
    for secret in (STORE, KEY, TOKEN):
        assert secret not in lineage and secret not in done.stdout


def test_airflow_receives_the_results_and_no_secret(spark: StubSpark, tmp_path: Path, postgres_url: str) -> None:
    import sqlalchemy as sa

    url = sa.make_url(postgres_url)
    url = url.set(query={**url.query, "user": str(url.username)}, username=None)
    spark.will(lines=["working", SUMMARY_MARK + json.dumps(SUMMARY)])
    done = run_task(spark, tmp_path, url.render_as_string(hide_password=False))
    requests, events = tmp_path / "requests.jsonl", tmp_path / "lineage.jsonl"
    assert done.returncode == 0, done.stdout
    api_requests, lineage = requests.read_text(), events.read_text()
    policy = spark.calls[0]["settings"]["retry_policy"]
    assert (policy["max_attempts"], policy["max_closed_count"]) == (7, 1), "the connection's retry policy is the job's"
    assert spark.calls[0]["settings"]["reads"]["settings"]["aws"]["secret_access_key"] == KEY
    assert STORE in spark.calls[0]["settings"]["store"]["settings"]["url"], "only the job gets the store's password"
    for place, text in {"log": done.stdout, "API": api_requests, "lineage": lineage}.items():
        for secret in (STORE, KEY, TOKEN):
            assert secret not in text, f"{place} holds a secret"

    calls = [json.loads(line) for line in api_requests.splitlines()]
    assert any("rtif" in call["path"] for call in calls), "templates were rendered"
    [xcom] = [call["body"] for call in calls if call["path"].endswith("/return_value")]
    result = json.loads(xcom) if isinstance(xcom, str) else xcom
    assert result["records_delivered"] == 7 and "column_lineage" not in result
    [succeeded] = [call["body"] for call in calls if isinstance(call["body"], dict) and "outlet_events" in call["body"]]
    [event] = succeeded["outlet_events"]
    assert (event["extra"]["source"], event["extra"]["records"]) == ("clicks", 7)
    [mirrored] = [call for call in calls if "store/asset" in call["path"]]
    assert (mirrored["query"]["key"], mirrored["body"]["value"]["checkpoint"]) == (next(iter(SUMMARY["ranges"])), "2")

    complete = [json.loads(line) for line in lineage.splitlines()][-1]
    assert complete["eventType"] == "COMPLETE"
    [read], [wrote] = complete["inputs"], complete["outputs"]
    assert (read["namespace"], read["name"]) == ("kinesis://kinesis.eu-west-1.amazonaws.com", "clicks")
    assert (wrote["namespace"], wrote["name"]) == ("file", "/tmp/lake/clicks")
    assert wrote["outputFacets"]["outputStatistics"]["rowCount"] == 7
    assert wrote["facets"]["schema"]["fields"][0]["name"] == "id"
    assert wrote["facets"]["columnLineage"]["fields"]["id"]["inputFields"][0]["field"] == "id"
    assert complete["run"]["facets"]["coordination"]["source"] == "clicks"
