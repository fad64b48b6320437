"""A real Apache Livy runs the batches of prepared jobs: the example, and a batch that a user deletes.

It runs them on the Spark of SPARK_HOME, or of this Python: `--deep` with a Spark 3.5 tries Scala 2.12.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pyarrow.dataset as ds
import pytest
from airflow.sdk import DAG, task

from airflow_provider_coordination.operators.create_partitions import CreatePartitionsOperator
from airflow_provider_coordination.operators.prepared_jobs import FollowJobOperator, livy_batch, prepare_job
from airflow_provider_coordination.sources.s3.kind import S3Objects
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.job_settings import LeaseSettings
from airflow_provider_coordination.spark.writes import ParquetDataset
from tests.airflow.conftest import REPOSITORY, run_dag
from tests.support.airflow_dags import DagBag
from tests.support.livy_server import LivyServer, LivyServerError
from tests.support.servers import available
from tests.support.waiting import until
from tests.system.test_own_source import connection

pytestmark = [pytest.mark.only_deep(daily=False), pytest.mark.timeout(300)]
PASSWORD = "store-passw0rd-of-ours"
FILES = 20


@pytest.fixture
def livy(java: str) -> Iterator[LivyServer]:
    with available(LivyServer, LivyServerError, "Livy", shared=False) as server:
        yield server


@pytest.fixture
def folders(tmp_path: Path, livy: LivyServer, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The params of the example, whose connections are defined; the source has a file for each record."""
    from airflow.utils.db import initdb

    initdb()
    extra = {
        "store": "sql",
        "url": f"sqlite:///{tmp_path}/coordination.db",
        "ownership_timeout": 15,
        "safety_margin": 3,
    }
    connection(monkeypatch, "coordination_default", "coordination", extra=extra)
    aws = {"login": "AKIAEXAMPLE", "password": PASSWORD, "extra": {"region_name": "eu-west-1"}}
    connection(monkeypatch, "aws_default", "aws", **aws)
    connection(monkeypatch, "livy_default", "http", host="127.0.0.1", port=livy.port, schema="http")
    given = tmp_path / "in"
    given.mkdir()
    for number in range(FILES):
        (given / f"{number}.json").write_text(json.dumps({"id": number}) + "\n")
    return {"path": str(given), "folder": str(tmp_path / "shared"), "output_path": str(tmp_path / "out")}


def delivered(folders: dict[str, str]) -> list[int]:
    """Return the ids of the records in the dataset, sorted."""
    return sorted(json.loads(text)["id"] for text in ds.dataset(folders["output_path"]).to_table()["data"].to_pylist())


def assert_no_secrets(livy: LivyServer, batch: dict[str, Any]) -> None:
    """Check what any user of Livy can read: the list of the batches, and their logs."""
    key = batch["args"][0].rpartition("#")[2]
    batches = livy.ask("/batches")["sessions"]
    assert batches != []
    logs = [livy.ask(f"/batches/{each['id']}/log?size=10000") for each in batches]
    for shown in (json.dumps(batches), json.dumps(logs)):
        assert PASSWORD not in shown and key not in shown


def pulled(run: Any, task_id: str, key: str = "return_value") -> Any:
    [ti] = [ti for ti in run.get_task_instances() if ti.task_id == task_id]
    return ti.xcom_pull(task_ids=task_id, key=key)


def test_livy_runs_the_example_unchanged(livy: LivyServer, folders: dict[str, str]) -> None:
    dag = DagBag(str(REPOSITORY / "dags" / "livy_ingestion.py")).dags["livy_ingestion"]
    done = run_dag(dag, **folders)
    assert done.state == "success", livy.ask("/batches")
    assert pulled(done, "follow")["records_delivered"] == FILES
    assert delivered(folders) == list(range(FILES))
    assert list(Path(folders["folder"], "settings").iterdir()) == []
    assert_no_secrets(livy, pulled(done, "prepare", "batch"))


@pytest.fixture
def dag(livy: LivyServer, folders: dict[str, str]) -> DAG:
    """A DAG as the example, in which each file is a partition of its own."""
    with DAG("livy_by_file", schedule=None) as made:
        reads = S3Objects(paths=folders["path"], source="events", format="json", max_objects=1)

        @task(multiple_outputs=True)
        def prepare() -> dict[str, Any]:
            ingestion = Ingestion(
                reads=reads, writes=ParquetDataset(folders["output_path"]), leases=LeaseSettings(max_leases=1)
            )
            job = prepare_job(folder=folders["folder"], ingestion=ingestion)
            return {"job": job.to_mapping(), "batch": livy_batch(job)}

        @task
        def submit(batch: dict[str, Any]) -> int:
            return int(livy.ask("/batches", method="POST", body=batch)["id"])

        prepared = prepare()  # type: ignore[call-arg]
        find = CreatePartitionsOperator(task_id="find_files", reads=reads)
        follow = FollowJobOperator(task_id="follow", job=prepared["job"])
        find >> prepared >> submit(prepared["batch"]) >> follow
    return made


def delete_once_delivering(livy: LivyServer, folders: dict[str, str]) -> list[psutil.Process]:
    """Delete the first batch of Livy once it has delivered a file; return the processes that it had."""
    until(lambda: [*Path(folders["output_path"]).glob("*.parquet")] != [])
    drivers = livy.drivers()
    livy.ask("/batches/0", method="DELETE")
    return drivers


def has_ended(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_deleted_batch_loses_and_doubles_nothing(livy: LivyServer, folders: dict[str, str], dag: DAG) -> None:
    with ThreadPoolExecutor(1) as pool:
        deletion = pool.submit(delete_once_delivering, livy, folders)
        stopped = run_dag(dag)
    drivers = deletion.result()
    assert drivers != [] and all(has_ended(each) for each in drivers)
    assert stopped.state == "failed"
    assert 0 < len(delivered(folders)) < FILES

    assert run_dag(dag).state == "success"
    assert delivered(folders) == list(range(FILES))
    assert_no_secrets(livy, pulled(stopped, "prepare", "batch"))
