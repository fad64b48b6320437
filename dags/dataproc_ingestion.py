"""Ingest the files of a bucket on a Dataproc cluster: Google's client submits it, and the store reports its result.

`prepare` writes the files that the cluster needs to a folder of the bucket: the program, this package and the job's
settings. The settings are encrypted, and the driver deletes them. `submit` adds the job to the cluster. `follow` waits
in the triggerer until the job ends.

It needs the connection `coordination_default` (type coordination), the package `google-cloud-dataproc`, which Google's
provider for Airflow has, and Google's default credentials. Set the cluster and the locations as params.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from airflow.sdk import DAG, Param, task

from airflow_provider_coordination.operators.create_partitions import CreatePartitionsOperator
from airflow_provider_coordination.operators.prepared_jobs import FollowJobOperator, dataproc_job, prepare_job
from airflow_provider_coordination.sources.s3.kind import S3Objects
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.writes import ParquetDataset

with DAG(
    dag_id="dataproc_ingestion",
    description="Ingest the files of a bucket into Parquet on a Dataproc cluster, each once",
    schedule="*/30 * * * *",
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001 - Airflow reads it in its own time zone
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["coordination", "files", "dataproc"],
    params={
        "path": Param("gs://lake/in/", type="string", minLength=1, description="The location of the files."),
        "project": Param("my-project", type="string", minLength=1, description="The project of Google Cloud."),
        "region": Param("europe-west1", type="string", minLength=1, description="The region of the cluster."),
        "cluster": Param("ingestion", type="string", minLength=1, description="The cluster's name."),
        "folder": Param(
            "gs://lake/coordination",
            type="string",
            minLength=1,
            description="Where the cluster finds the files of its jobs.",
        ),
        "output_path": Param("gs://lake/events", type="string", minLength=1, description="The dataset."),
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
        return {"job": job.to_mapping(), "dataproc": dataproc_job(job, cluster=params["cluster"])}

    @task
    def submit(job: dict[str, Any], params: dict[str, Any]) -> str:
        """Submit the job; return its id."""
        from google.cloud.dataproc_v1 import JobControllerClient

        region = params["region"]
        client = JobControllerClient(client_options={"api_endpoint": f"{region}-dataproc.googleapis.com:443"})
        submitted = client.submit_job(project_id=params["project"], region=region, job=job)
        return str(submitted.reference.job_id)

    prepared = prepare()  # type: ignore[call-arg]
    follow = FollowJobOperator(task_id="follow", job=prepared["job"])

    find >> prepared >> submit(prepared["dataproc"]) >> follow  # type: ignore[call-arg]
