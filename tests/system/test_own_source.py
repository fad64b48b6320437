"""The example of a custom source runs unchanged, with real Spark jobs and its own reader."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from tests.airflow.conftest import REPOSITORY, run_dag
from tests.support.airflow_dags import DagBag

USERS, EVENTS = 6, 50


def connection(monkeypatch: pytest.MonkeyPatch, conn_id: str, conn_type: str, **fields: Any) -> None:
    monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps({"conn_type": conn_type, **fields}))


def test_example_scales_its_jobs_and_delivers_each_event_once(
    java: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.utils.db import initdb

    initdb()
    extra = {"store": "sql", "url": f"sqlite:///{tmp_path}/coordination.db"}
    connection(monkeypatch, "coordination_default", "coordination", extra=extra)
    connection(monkeypatch, "spark_default", "spark", host="local[1]", extra={"deploy-mode": "client"})
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    folder, output = tmp_path / "events", tmp_path / "out"
    folder.mkdir()
    for user in range(USERS):
        lines = [json.dumps({"user": f"user-{user}", "action": f"{number}"}) for number in range(EVENTS)]
        (folder / f"{user}.jsonl").write_text("\n".join(lines) + "\n")
    dag = DagBag(str(REPOSITORY / "dags" / "own_source.py")).dags["own_source"]

    done = run_dag(dag, folder=str(folder), output_path=str(output), source="own")

    assert done.state == "success"
    [summary] = [
        ti.xcom_pull(task_ids=ti.task_id) for ti in done.get_task_instances() if ti.task_id == "ingestion.summarize"
    ]
    assert summary["jobs"] == {"planned": 2, "success": 2}
    assert (summary["records_delivered"], summary["completed"]) == (USERS * EVENTS, USERS)
    assert summary["partitions"] == {"UNASSIGNED": 0, "ASSIGNED": 0, "CLOSED": 0, "COMPLETED": USERS}
    rows = ds.dataset(output, format="parquet").to_table().to_pylist()
    delivered = Counter((row["user"], row["action"]) for row in rows)
    assert delivered == Counter((f"user-{user}", f"{number}") for user in range(USERS) for number in range(EVENTS))
    assert {Path(row["_origin"]).name for row in rows} == {f"{user}.jsonl" for user in range(USERS)}
