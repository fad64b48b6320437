"""Runs one task as a worker does: Airflow's supervisor forks a process for it. Only the API server is faked.

Called with the DAG file, the DAG's id, the task's id and perhaps the number of the try. What the API server is asked is
added to the file that the environment names as `TASK_REQUESTS`, if it does.
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
from airflow.sdk.api.client import Client
from airflow.sdk.api.datamodels._generated import BundleInfo, DagRun, TaskInstance
from airflow.sdk.execution_time import supervisor


def note(request: httpx.Request) -> None:
    """Note what is asked, a JSON object a line."""
    if path := os.environ.get("TASK_REQUESTS"):
        body = request.content.decode()
        with suppress(ValueError):
            body = json.loads(body)
        with Path(path).open("a") as file:
            asked = {"path": request.url.path, "query": dict(request.url.params), "body": body}
            file.write(json.dumps(asked) + "\n")


def main(dag_file: str, dag_id: str, task_id: str, try_number: str = "1") -> int:
    dag_run: dict[str, Any] = {
        "dag_id": dag_id,
        "run_id": "run",
        "run_type": "manual",
        "state": "running",
        "logical_date": None,
        "data_interval_start": None,
        "data_interval_end": None,
        "run_after": "2026-01-31T00:00:00Z",
        "start_date": "2026-01-31T00:00:00Z",
        "end_date": None,
        "consumed_asset_events": [],
    }
    if "partition_key" in DagRun.model_fields:  # since 3.2
        dag_run["partition_key"] = None

    def answer(request: httpx.Request) -> httpx.Response:
        note(request)
        starts = request.url.path.endswith("/run")
        return httpx.Response(200, json={"dag_run": dag_run, "max_tries": 0, "should_retry": False} if starts else {})

    supervise = getattr(supervisor, "supervise_task", None) or supervisor.supervise  # its name before 3.3
    return supervise(
        ti=TaskInstance(
            id=uuid.uuid4(),
            task_id=task_id,
            dag_id=dag_id,
            run_id="run",
            try_number=int(try_number),
            dag_version_id=uuid.uuid4(),
        ),
        bundle_info=BundleInfo(name="dags-folder"),
        dag_rel_path=dag_file,
        token="",
        client=Client(base_url="http://api.invalid", token="", transport=httpx.MockTransport(answer)),
        subprocess_logs_to_stdout=True,
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
