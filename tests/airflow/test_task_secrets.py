"""What a task reports to Airflow holds no secret: log, templates, XComs, asset events, checkpoints, lineage."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_provider_coordination.spark.outcome import SUMMARY_MARK
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
    "ranges": {
        "clicks:1767268800:shardId-000000000000": {"from": "1", "to": "2", "records": 7, "last_arrival": None},
    },
}


def test_airflow_receives_the_results_and_no_secret(spark: StubSpark, tmp_path: Path, postgres_url: str) -> None:
    import sqlalchemy as sa

    url = sa.make_url(postgres_url)
    url = url.set(query={**url.query, "user": str(url.username)}, username=None)
    spark.will(lines=["working", SUMMARY_MARK + json.dumps(SUMMARY)])
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "ingestion.py").write_text(DAG_FILE % spark.path)
    requests, events = tmp_path / "requests.jsonl", tmp_path / "lineage.jsonl"
    connections = {
        "COORDINATION_DEFAULT": {
            "conn_type": "coordination", "login": "postgres", "password": STORE,
            "extra": {"url": url.render_as_string(hide_password=False), "max_attempts": 7, "max_closed_count": 1},
        },
        "AWS_DEFAULT": {
            "conn_type": "aws", "login": "AKIAEXAMPLE", "password": KEY,
            "extra": {"region_name": "eu-west-1", "aws_session_token": TOKEN},
        },
        "SPARK_DEFAULT": {"conn_type": "spark", "host": "local[1]", "extra": {"deploy-mode": "client"}},
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("task_process.py")), "ingestion.py", "ingestion", "ingest"],
        env={
            **os.environ,
            **{f"AIRFLOW_CONN_{name}": json.dumps(connection) for name, connection in connections.items()},
            "PYTHONPATH": str(REPOSITORY),
            "AIRFLOW_HOME": str(tmp_path / "airflow"),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{tmp_path}/airflow.db",
            "AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path / "dags"),
            "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(
                {"type": "file", "log_file_path": str(events), "append": True}
            ),
            "TASK_REQUESTS": str(requests),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )
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
    assert json.loads(xcom)["records_delivered"] == 7 if isinstance(xcom, str) else xcom["records_delivered"] == 7
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
    assert complete["run"]["facets"]["coordination"]["source"] == "clicks"
