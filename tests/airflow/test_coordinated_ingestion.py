"""The task group that ingests a source in one call, with a stub in place of spark-submit."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk import DAG, TaskGroup, task

from airflow_provider_coordination.airflow_names import REMOVED_PASSES, AirflowFailException
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.job_settings import AcknowledgmentSettings
from airflow_provider_coordination.spark.outcome import SUMMARY_MARK
from airflow_provider_coordination.spark.writes import ParquetDataset
from airflow_provider_coordination.task_groups import ingestion
from airflow_provider_coordination.task_groups.ingestion import coordinated_ingestion, merged, plan_jobs
from tests.airflow.conftest import SECRET, FakeKinesis, StubSpark, run_dag
from tests.airflow.weather import weather
from tests.support.ingestions import with_ingestion


def a_dag(dag_id: str = "ingest_weather", **arguments: Any) -> DAG:
    with DAG(dag_id, schedule=None) as dag:
        coordinated_ingestion(**with_ingestion({"writes": ParquetDataset("/out")} | arguments))
    return dag


def check(acknowledgment_sets: list[dict[str, Any]]) -> int:
    return len(acknowledgment_sets)


def edges(dag: DAG) -> set[tuple[str, str]]:
    def short(task_id: str) -> str:
        return task_id.removeprefix("ingestion.")

    return {(short(each.task_id), short(below)) for each in dag.tasks for below in each.downstream_task_ids}


# How it is wired


def test_group_runs_from_partitions_through_jobs_to_a_summary() -> None:
    assert edges(a_dag(reads=weather())) == {
        ("create_partitions", "plan_jobs"),
        ("create_partitions", "summarize"),
        ("plan_jobs", "ingest"),
        ("plan_jobs", "summarize"),
        ("plan_jobs", "done"),
        ("ingest", "summarize"),
        ("ingest", "done"),
        ("summarize", "done"),
    }


def test_check_runs_between_the_jobs_and_the_summary() -> None:
    dag = a_dag(reads=weather(), check=check)
    added = edges(dag) - edges(a_dag(reads=weather()))
    assert added == {
        ("ingest", "check"),
        ("check", "wait_for_acknowledgments"),
        ("wait_for_acknowledgments", "summarize"),
        ("check", "done"),
        ("wait_for_acknowledgments", "done"),
    }
    assert dag.get_task("ingestion.ingest").partial_kwargs["ingestion"].acknowledgments.by == "downstream"


def test_group_waits_for_acknowledgments_by_others() -> None:
    dag = a_dag(reads=weather(), acknowledgments=AcknowledgmentSettings(by=("load",)))
    assert ("ingest", "wait_for_acknowledgments") in edges(dag)
    assert "ingestion.check" not in dag.task_ids


def test_shard_sync_uses_the_reads_of_the_jobs() -> None:
    dag = a_dag(reads=KinesisStreams("clicks", initial_position="LATEST", on_data_loss="earliest"))
    sync = dag.get_task("ingestion.create_partitions")
    assert (sync.reads.initial_position, sync.reads.on_data_loss) == ("LATEST", "earliest")
    assert dag.get_task("ingestion.ingest").partial_kwargs["ingestion"].reads.on_data_loss == "earliest"


def test_own_task_may_create_the_partitions() -> None:
    with DAG("own", schedule=None) as dag:

        @task.partitions(reads=weather())
        def find() -> list[str]:
            return ["oslo"]

        coordinated_ingestion(Ingestion(writes=ParquetDataset("/out"), reads=weather()), partitions=find())
    assert ("find", "plan_jobs") in edges(dag)
    assert "ingestion.create_partitions" not in dag.task_ids


def test_pool_applies_to_the_jobs_only() -> None:
    dag = a_dag(reads=weather(), pool="spark", pool_slots=2)
    assert dag.get_task("ingestion.ingest").partial_kwargs["pool"] == "spark"
    assert {each.pool for each in dag.tasks if each.task_id != "ingestion.ingest"} == {"default_pool"}


def test_group_has_one_final_task() -> None:
    with DAG("dag", schedule=None):
        group = coordinated_ingestion(Ingestion(writes=ParquetDataset("/out"), reads=weather()), check=check)
    assert isinstance(group, TaskGroup)
    assert [each.task_id for each in group.get_leaves()] == ["ingestion.done"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"reads": KinesisStreams("clicks"), "partitions": ["a"]}, "of kind 'kinesis' has its own operator that"),
        (
            {"reads": weather(), "check": len, "acknowledgments": AcknowledgmentSettings(by=("load",))},
            "'check' and 'by' of AcknowledgmentSettings are both given",
        ),
    ],
)
def test_contradictory_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        a_dag(**arguments)


def test_job_summaries_are_merged_into_a_small_one() -> None:
    jobs = [
        {
            "records_delivered": 3,
            "records_by_sink": {"main": 2, "copy": 1},
            "completed": [f"{job}-{number}" for number in range(1000)],
            "failed": {f"{job}-{number}": "why" for number in range(1000)},
            "seconds": float(job),
        }
        for job in (1, 2)
    ]
    summary = merged(jobs)
    assert (summary["records_delivered"], summary["completed"], summary["failed"]) == (6, 2000, 2000)
    assert (summary["records_by_sink"], summary["seconds"]) == ({"main": 4, "copy": 2}, 2.0)
    assert len(json.dumps(summary)) < 1000


@pytest.mark.parametrize(
    ("supplied", "numbers", "message"),
    [
        ({"source": "weather"}, {"workers": 0}, "field 'workers' must be at least 1; got 0"),
        ({"source": "weather"}, {"workers": "many"}, "field 'workers' must be a whole number; got 'many'"),
        (
            {"source": "weather"},
            {"workers": "auto", "max_workers": ""},
            "field 'max_workers' must be at least 1; got ''",
        ),
        ({"source": "weather"}, {"workers": "auto", "partitions_per_worker": -1}, "must be at least 1; got -1"),
        ({"found": 7}, {}, "returned {'found': 7}, without a 'source'; give 'partitions' a task"),
        (None, {}, "returned None, without a 'source'"),
    ],
)
def test_impossible_job_plan_fails_without_a_retry(supplied: Any, numbers: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"workers": 1, "max_workers": 4, "partitions_per_worker": 16} | numbers
    with pytest.raises(AirflowFailException) as error:
        plan_jobs(supplied, name="x", shared=False, coordination_conn_id="coordination_default", **arguments)
    assert message in str(error.value)


# How it runs

Run = Callable[..., tuple[Any, dict[str, Any]]]


@pytest.fixture
def run(database: None, coordination: SourceCoordinator, spark: StubSpark, connect: Any, monkeypatch: Any) -> Run:
    """Run a group in a DAG; return the run, and the XComs of its tasks."""
    (spark.folder / "spark-submit").rename(spark.folder / "spark2-submit")
    connect("spark_default", "spark", host="local[1]", extra={"spark-binary": "spark2-submit"})
    monkeypatch.setenv("PATH", spark.path)

    def run(**arguments: Any) -> tuple[Any, dict[str, Any]]:
        done = run_dag(a_dag(**arguments))
        instances = {instance.task_id: instance for instance in done.get_task_instances()}
        results = {
            name.removeprefix("ingestion."): instance.xcom_pull(task_ids=name) for name, instance in instances.items()
        }
        return done, results

    return run


def states(done: Any) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for each in done.get_task_instances():
        found.setdefault(each.task_id.removeprefix("ingestion."), set()).add(str(each.state))
    return found


@pytest.mark.integration  # needs no server, but whole processes, and so seconds
def test_job_count_follows_the_available_work(run: Run, spark: StubSpark) -> None:
    spark.will(
        acquire=3, complete=True, lines=[SUMMARY_MARK + '{"records_delivered": 7, "completed": ["a", "b", "c"]}']
    )
    towns = [f"town-{number}" for number in range(5)]
    done, results = run(
        reads=weather(), partitions=towns, workers="auto", max_workers="4", partitions_per_worker=3, name="towns"
    )
    assert done.state == "success"
    assert results["plan_jobs"] == ["towns-0", "towns-1"]
    job_settings = [call["settings"] for call in spark.calls]
    assert [(t["source"], t["workers"], t["reads"]["kind"]) for t in job_settings] == [("weather", 2, "weather")] * 2
    summary = results["summarize"]
    assert (summary["source"], summary["jobs"]) == ("weather", {"planned": 2, "success": 2})
    assert (summary["records_delivered"], summary["completed"]) == (14, 6)
    assert summary["partitions"] == {"UNASSIGNED": 0, "ASSIGNED": 0, "CLOSED": 0, "COMPLETED": 5}


@pytest.fixture(params=[False, True], ids=["older Airflow", "newer Airflow"])
def last_task(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The state of the last task if one before it failed; older versions run a task, as their rule is another."""
    monkeypatch.setattr(ingestion, "REMOVED_PASSES", request.param and REMOVED_PASSES)
    return "upstream_failed" if request.param and REMOVED_PASSES else "failed"


@pytest.mark.integration  # needs no server, but whole processes, and so seconds
def test_group_without_work_starts_no_job_and_reports_it(run: Run, spark: StubSpark, last_task: str) -> None:
    done, results = run(reads=weather(supplier=lambda state: []), workers=3)
    assert (done.state, spark.calls) == ("success", [])
    assert states(done)["ingest"] == {"skipped"}
    assert results["summarize"]["jobs"] == {"planned": 0}
    assert results["summarize"]["records_delivered"] == 0


@pytest.mark.integration  # needs no server, but whole processes, and so seconds
def test_failed_job_fails_the_group_after_the_summary(run: Run, spark: StubSpark, last_task: str) -> None:
    spark.will(exit=1)
    done, results = run(reads=weather(), workers=1)
    assert done.state == "failed"
    assert states(done) | {"ingest": {"failed"}, "summarize": {"success"}, "done": {last_task}} == states(done)
    assert results["summarize"]["jobs"] == {"planned": 1, "failed": 1}
    assert results["summarize"]["partitions"]["UNASSIGNED"] == 3


@pytest.mark.integration  # needs no server, but whole processes, and so seconds
def test_summary_names_the_failed_task_without_missing_xcoms(run: Run, spark: StubSpark, caplog: Any) -> None:
    def broken(state: Any) -> list[str]:
        raise ValueError("no towns")

    done, results = run(reads=weather(supplier=broken))
    assert done.state == "failed" and spark.calls == []
    assert results["summarize"]["source"] is None and results["summarize"]["jobs"] == {"planned": 0}
    failed = [record.getMessage() for record in caplog.records if "because task" in record.getMessage()]
    assert failed == ["no job was started, because task ingestion.create_partitions failed; its log has the reason"]
    assert "XCom not found" not in caplog.text


@pytest.mark.integration  # needs no server, but whole processes, and so seconds
def test_check_of_delivered_stream_batches_acknowledges_them(
    run: Run, spark: StubSpark, kinesis: FakeKinesis, connect: Any
) -> None:
    kinesis.streams["clicks"] = ["s0", "s1"]
    aws = {"region_name": "eu-west-1", "endpoint_url": kinesis.url}
    connect("aws_default", "aws", login="AKIA", password=SECRET, extra=aws)
    spark.will(deliver=["{}"])
    done, results = run(
        reads=KinesisStreams("clicks"), writes=ParquetDataset(str(spark.folder / "out")), workers="auto", check=check
    )
    assert done.state == "success"
    assert results["check"] == 2
    assert results["wait_for_acknowledgments"]["states"] == {"ACKNOWLEDGED": 2}
    assert results["summarize"]["jobs"] == {"planned": 1, "success": 1}
