"""Acknowledgments and triggers under a whole Airflow, with a real Spark job where data is delivered."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from airflow_provider_coordination.coordination.acknowledgment import AcknowledgmentState
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.sources.batches import SourceBatches
from airflow_provider_coordination.stores import StoreSettings, open_store
from demo.airflow_home import task_log
from demo.local_kinesis import LocalKinesis
from tests.support.spark_job import REPOSITORY, Pipeline
from tests.support.standalone import Standalone

CONFIRMED = "confirmed_ingestion"
CHECKED = "acknowledged_delivery"
DOORBELL = "doorbell"
TIMEOUT_SECONDS = 45


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("acknowledgments")


@pytest.fixture(scope="module")
def airflow(kinesis: LocalKinesis, java: str, folder: Path) -> Iterator[Standalone]:
    """An Airflow with the DAGs of this suite and the example; it takes half a minute to start, so it is shared."""
    dags = shutil.copytree(Path(__file__).parent / "dags", folder / "dags")
    shutil.copy(REPOSITORY / "dags" / f"{CHECKED}.py", dags)
    connections = {
        "coordination_default": {"conn_type": "coordination", "extra": {"store": "sql", "url": url_of(folder)}},
        "aws_default": {
            "conn_type": "aws",
            "login": "test",
            "password": "test",
            "extra": {"region_name": "us-east-1", "endpoint_url": kinesis.endpoint_url},
        },
        "spark_default": {"conn_type": "spark", "host": "local[2]", "extra": {"deploy-mode": "client"}},
    }
    environment = {
        "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "10",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    standalone = Standalone(folder / "airflow", dags, connections, environment)
    standalone.start()
    try:
        standalone.until(
            "Airflow knows the DAGs", lambda: all(map(standalone.is_ready, (CONFIRMED, CHECKED, DOORBELL)))
        )
        yield standalone
    finally:
        standalone.stop()


@pytest.fixture
def pipeline(kinesis: LocalKinesis, kinesis_stream: Callable[[int], str], folder: Path, tmp_path: Path) -> Pipeline:
    return Pipeline(kinesis, kinesis_stream(1), tmp_path, url_of(folder))


@pytest.fixture
def look(folder: Path) -> Iterator[Callable[[str], SourceCoordinator]]:
    """Gives a coordinator of a source to look at it."""
    with closing(open_store(StoreSettings(store="sql", url=url_of(folder)))) as store:

        def coordinator(source: str) -> SourceCoordinator:
            made = SourceCoordinator(store, source, "test")
            made.initialize()
            return made

        yield coordinator


def url_of(folder: Path) -> str:
    return f"sqlite:///{folder}/coordination.db"


def is_deferred(airflow: Standalone, run_id: str) -> bool:
    state = airflow.task_state(CONFIRMED, run_id, "wait")
    assert state not in ("success", "failed", "upstream_failed"), airflow.task_instances(CONFIRMED, run_id)
    return state == "deferred"


def run(airflow: Standalone, dag_id: str, conf: dict[str, Any]) -> tuple[str, str]:
    """Run a DAG to its end; return the run and its state."""
    run_id = airflow.trigger(dag_id, conf)
    airflow.until("the run ends", lambda: airflow.state(dag_id, run_id) in ("success", "failed"), 300)
    return run_id, airflow.state(dag_id, run_id)


def test_a_set_that_expires_while_its_task_is_deferred_is_ended_although_the_triggerer_died(
    airflow: Standalone, pipeline: Pipeline, look: Callable[[str], SourceCoordinator]
) -> None:
    pipeline.send(20)
    conf = {"stream": pipeline.stream, "output_path": str(pipeline.output), "timeout_seconds": TIMEOUT_SECONDS}

    unconfirmed = airflow.trigger(CONFIRMED, conf | {"confirm": False})
    airflow.until("the wait is deferred", lambda: is_deferred(airflow, unconfirmed))
    airflow.kill_triggerer()
    airflow.start_triggerer()
    airflow.until("the wait ends", lambda: airflow.task_state(CONFIRMED, unconfirmed, "wait") == "failed")

    source = look(pipeline.stream)
    sets = AcknowledgmentSets(source, SourceBatches())
    [expired] = sets.ended_since(source.clock.now() - timedelta(hours=1))
    assert expired.state is AcknowledgmentState.EXPIRED
    assert expired.ended_at is not None and expired.ended_at >= expired.expires_at
    [available] = source.partitions()
    assert (available.status, available.attempts) == (PartitionStatus.UNASSIGNED, 1)
    [wait] = [t for t in airflow.task_instances(CONFIRMED, unconfirmed) if t["task_id"] == "wait"]
    assert "EXPIRED" in task_log(airflow.home, wait, 200)

    confirmed, state = run(airflow, CONFIRMED, conf | {"confirm": True, "timeout_seconds": 600})
    assert state == "success"
    assert airflow.xcom(CONFIRMED, confirmed, "ingest")["records_landed"] == 0, "it was landed before"
    assert not list(sets.pending())
    [done] = source.partitions()
    assert (done.status, done.attempts, done.progress["landed"]) == (PartitionStatus.UNASSIGNED, 0, [])
    assert pipeline.delivered() == Counter(pipeline.sent)


def test_a_batch_that_a_check_rejects_is_delivered_again_and_replaced(
    airflow: Standalone, pipeline: Pipeline, look: Callable[[str], SourceCoordinator]
) -> None:
    pipeline.send(20)
    pipeline.output = pipeline.folder / "out" / "staging"
    conf = {"stream": pipeline.stream, "output_path": str(pipeline.output.parent)}

    _, state = run(airflow, CHECKED, conf | {"required_field": "missing"})
    assert state == "failed"
    [rejected] = look(f"{pipeline.stream}-checked").partitions()
    assert rejected.attempts == 1 and "has no field 'missing'" in str(rejected.last_error)
    [staged] = pipeline.output.glob("*.parquet")
    pq.write_table(pq.read_table(staged).slice(1), staged)  # nobody's word is good for this file any more

    _, state = run(airflow, CHECKED, conf | {"required_field": "id"})
    assert state == "success"
    assert pipeline.delivered() == Counter(pipeline.sent)
    [accepted] = look(f"{pipeline.stream}-checked").partitions()
    assert (accepted.status, accepted.attempts, accepted.progress["landed"]) == (PartitionStatus.UNASSIGNED, 0, [])


def test_a_run_starts_when_work_appears_and_again_when_it_reopens(
    airflow: Standalone, look: Callable[[str], SourceCoordinator]
) -> None:
    source = look(DOORBELL)

    def are_completed(count: int) -> bool:
        return source.count_by_status()[PartitionStatus.COMPLETED] == count

    source.create_partitions({"at once": {}})
    airflow.until("the first partition is worked on", lambda: are_completed(1))
    with_reopening = source.clock.now() + timedelta(seconds=8)
    source.store.create([source.new("later", {}).resting(with_reopening)])
    airflow.until("the second one reopens", lambda: are_completed(2))
