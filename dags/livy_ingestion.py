"""Ingest the files of a folder by Livy: an HTTP request submits the job, and the store reports its result.

`prepare` writes the files that the cluster needs to a folder that Airflow and the cluster share: the program, this
package and the job's settings. The settings are encrypted, and the driver deletes them. `submit` requests a batch from
Livy. `follow` waits in the triggerer until the job ends.

It runs unchanged with two connections: `coordination_default` (type coordination), and `livy_default` (type http) with
the URL of Livy. Set the paths as params.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from airflow.providers.http.operators.http import HttpOperator
from airflow.sdk import DAG, Param, task

from airflow_provider_coordination.operators.create_partitions import CreatePartitionsOperator
from airflow_provider_coordination.operators.prepared_jobs import FollowJobOperator, livy_batch, prepare_job
from airflow_provider_coordination.sources.s3.kind import S3Objects
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.writes import ParquetDataset

with DAG(
    dag_id="livy_ingestion",
    description="Ingest the files of a folder into Parquet by Livy, each once",
    schedule="*/30 * * * *",
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001 - Airflow reads it in its own time zone
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["coordination", "s3", "livy"],
    params={
        "path": Param("/data/in", type="string", minLength=1, description="The folder of the files."),
        "folder": Param(
            "/data/coordination",
            type="string",
            minLength=1,
            description="Where the cluster finds the files of its jobs.",
        ),
        "output_path": Param("/data/events", type="string", minLength=1, description="The dataset."),
    },
) as dag:
    find = CreatePartitionsOperator(
        task_id="find_files", reads=S3Objects(paths="{{ params.path }}", source="events", format="json")
    )

    @task(multiple_outputs=True)
    def prepare(params: dict[str, Any]) -> dict[str, Any]:
        """Write the files of the job."""
        job = prepare_job(
            folder=params["folder"],
            ingestion=Ingestion(
                reads=S3Objects(paths=params["path"], source="events", format="json"),
                writes=ParquetDataset(params["output_path"]),
            ),
        )
        return {"job": job.to_mapping(), "batch": json.dumps(livy_batch(job))}

    prepared = prepare()  # type: ignore[call-arg]
    submit = HttpOperator(
        task_id="submit",
        http_conn_id="livy_default",
        endpoint="batches",
        data=prepared["batch"],
        headers={"Content-Type": "application/json", "X-Requested-By": "airflow"},
    )
    follow = FollowJobOperator(task_id="follow", job=prepared["job"])

    find >> prepared >> submit >> follow
