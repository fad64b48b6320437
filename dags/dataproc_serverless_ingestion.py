"""Ingest the files of a bucket on Dataproc Serverless: Google's client submits it, and the store reports its result.

`prepare` writes the files that the batch needs to a folder of the bucket: the program, this package and the job's
settings. The settings are encrypted, and the driver deletes them. `submit` creates the batch. `follow` waits in the
triggerer until it ends.

It needs the connection `coordination_default` (type coordination), the package `google-cloud-dataproc`, which Google's
provider for Airflow has, and Google's default credentials. Set the region and the locations as params.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from airflow.sdk import DAG, Param, task

from airflow_provider_coordination.operators.create_partitions import CreatePartitionsOperator
from airflow_provider_coordination.operators.prepared_jobs import FollowJobOperator, dataproc_batch, prepare_job
from airflow_provider_coordination.sources.s3.kind import S3Objects
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.writes import ParquetDataset

with DAG(
    dag_id="dataproc_serverless_ingestion",
    description="Ingest the files of a bucket into Parquet on Dataproc Serverless, each once",
    schedule="*/30 * * * *",
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001 - Airflow reads it in its own time zone
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["coordination", "files", "dataproc"],
    params={
        "path": Param("gs://lake/in/", type="string", minLength=1, description="The location of the files."),
        "project": Param("my-project", type="string", minLength=1, description="The project of Google Cloud."),
        "region": Param("europe-west1", type="string", minLength=1, description="The region of the batch."),
        "version": Param("3.0", type="string", minLength=1, description="The version of the Spark runtime."),
        "folder": Param(
            "gs://lake/coordination",
            type="string",
            minLength=1,
            description="Where the batch finds its files.",
        ),
        "output_path": Param("gs://lake/events", type="string", minLength=1, description="The dataset."),
    },
) as dag:
    find = CreatePartitionsOperator(
        task_id="find_files", reads=S3Objects(paths="{{ params.path }}", source="events", format="json")
    )

    @task(multiple_outputs=True)
    def prepare(params: dict[str, Any]) -> dict[str, Any]:
        """Write the files of the batch."""
        job = prepare_job(
            folder=params["folder"],
            ingestion=Ingestion(
                reads=S3Objects(paths=params["path"], source="events", format="json"),
                writes=ParquetDataset(params["output_path"]),
            ),
        )
        return {"job": job.to_mapping(), "batch": dataproc_batch(job, version=params["version"])}

    @task
    def submit(batch: dict[str, Any], params: dict[str, Any]) -> str:
        """Create the batch; return its name."""
        from google.cloud.dataproc_v1 import BatchControllerClient

        project, region = params["project"], params["region"]
        client = BatchControllerClient(client_options={"api_endpoint": f"{region}-dataproc.googleapis.com:443"})
        created = client.create_batch(parent=f"projects/{project}/locations/{region}", batch=batch)
        return str(created.metadata.batch)

    prepared = prepare()  # type: ignore[call-arg]
    follow = FollowJobOperator(task_id="follow", job=prepared["job"])

    find >> prepared >> submit(prepared["batch"]) >> follow  # type: ignore[call-arg]
