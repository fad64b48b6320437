"""The task that supervises: it submits its file, takes a turn, and defers until the next one is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import yaml

from airflow_provider_coordination.airflow_names import AirflowException, TaskDeferred
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.jobs import Job, Jobs
from airflow_provider_coordination.hooks.job_resources import job_processes, settings_file_of
from airflow_provider_coordination.operators.supervise import SuperviseOperator
from airflow_provider_coordination.spark.outcome import Outcome
from airflow_provider_coordination.supervisor.store import SupervisionStore
from airflow_provider_coordination.supervisor.turn import task_of
from airflow_provider_coordination.triggers.supervisor import SupervisorTrigger, mark_of
from tests.airflow.conftest import SECRET, FakeKinesis, StubSpark
from tests.support.lineage_receiver import LineageReceiver

pytestmark = pytest.mark.usefixtures("temporary")  # no job leaves anything elsewhere

GOOD = Outcome(exit_code=0, summary={"records_delivered": 7}).to_mapping()


@pytest.fixture(autouse=True)
def connections(connect: Any, coordination: SourceCoordinator, kinesis: FakeKinesis) -> None:
    kinesis.streams["clicks"] = ["shardId-000000000000", "shardId-000000000001"]
    extra = {"region_name": "eu-west-1", "endpoint_url": kinesis.url}
    connect("aws_default", "aws", login="AKIAEXAMPLE", password=SECRET, extra=extra)


@pytest.fixture
def spec(tmp_path: Path, spark: StubSpark) -> dict[str, Any]:
    spark.will(exit=0, outcome=GOOD, sleep=600)
    return {
        "version": 1,
        "reads": {"kinesis": {"streams": "clicks"}},
        "writes": [{"parquet": {"path": str(tmp_path / "out")}}],
        "tuning": {"spark": {"env_vars": {"PATH": spark.path}}},
        "supervise": {"task_count": 2, "start_delay": 0, "period": 1},
    }


@pytest.fixture
def file(tmp_path: Path, spec: dict[str, Any]) -> Path:
    path = tmp_path / "clicks.yaml"
    path.write_text(yaml.safe_dump(spec))
    return path


@pytest.fixture
def store(coordination: SourceCoordinator) -> SupervisionStore:
    return SupervisionStore(coordination.view)


@pytest.fixture
def jobs(coordination: SourceCoordinator) -> Iterator[Callable[[], list[Job]]]:
    """Gives the jobs of the supervisor; ends those that are left."""
    of_source = Jobs(coordination.view)
    yield lambda: of_source.of_task(task_of("clicks"))
    for job in of_source.of_task(task_of("clicks")):
        for process in job_processes(str(settings_file_of(job.log))) if job.log else ():
            with suppress(psutil.NoSuchProcess):
                process.kill()


def in_run(try_number: int = 1, began: timedelta = timedelta(0), dag_id: str = "supervise_clicks") -> Any:
    """Return the context of a task whose run began this long ago."""
    return {
        "ti": SimpleNamespace(dag_id=dag_id, run_id="run", task_id="supervise", map_index=-1, try_number=try_number),
        "dag_run": SimpleNamespace(start_date=datetime.now(UTC) - began, run_after=None),
        "task_state_store": None,
    }


def operator(file: Path | None = None, **arguments: Any) -> SuperviseOperator:
    return SuperviseOperator(task_id="supervise", spec_file=None if file is None else str(file), **arguments)


def deferred(task: SuperviseOperator, context: Any, event: dict[str, Any] | None = None) -> SupervisorTrigger:
    """Let the task take a turn; return the trigger by which it defers."""
    with pytest.raises(TaskDeferred) as defers:
        task.execute(context) if event is None else task.execute_complete(context, event)
    trigger = defers.value.trigger
    assert isinstance(trigger, SupervisorTrigger)
    return trigger


def event_of(trigger: SupervisorTrigger, status: str = "turn") -> dict[str, Any]:
    """Return what a trigger sends."""
    return {
        "status": status,
        "source": trigger.source,
        "coordination_conn_id": trigger.coordination_conn_id,
        "file_mark": trigger.file_mark,
    }


@pytest.fixture
def suspended(coordination: SourceCoordinator) -> None:
    coordination.view.suspensions.suspend(by="a person")


def test_first_turn_submits_the_file_and_starts_the_jobs(
    file: Path, store: SupervisionStore, jobs: Callable[[], list[Job]], spark: StubSpark, spec: dict[str, Any]
) -> None:
    trigger = deferred(operator(file), in_run())

    version = store.current()
    assert version is not None
    assert (version.spec, version.by, version.reason) == (spec, "supervise_clicks", "file clicks.yaml")
    assert len(jobs()) == 2
    spark.wait_for_a_call()
    assert spark.calls[0]["settings"]["workers"] == 2
    stored = store.get()
    assert stored is not None and stored.claimant is not None
    assert {job.owner for job in stored.supervision.jobs} == {job.owner for job in jobs()}
    assert (trigger.source, trigger.claimant) == ("clicks", stored.claimant.to_mapping())
    assert stored.claimant.dag_id == "supervise_clicks"
    assert trigger.file_mark == mark_of(str(file))


def test_next_run_resumes_the_jobs_of_an_expired_run(
    file: Path, store: SupervisionStore, jobs: Callable[[], list[Job]]
) -> None:
    first = in_run(began=timedelta(hours=1, minutes=1))
    summary = operator(file).execute(first)

    [one, other] = jobs()
    assert summary == {"source": "clicks", "state": "RUNNING", "spec_version": 1, "jobs": [one.owner, other.owner]}
    deferred(operator(file), in_run())
    assert [(job.owner, job.stop) for job in jobs()] == [(one.owner, None), (other.owner, None)]


def test_only_an_edited_file_makes_a_new_version(
    file: Path, spec: dict[str, Any], store: SupervisionStore, suspended: None
) -> None:
    trigger = deferred(operator(file), in_run())
    deferred(operator(file), in_run(), event_of(trigger))
    assert [version.version for version in store.history()] == [1]

    file.write_text(yaml.safe_dump(spec | {"context": {"description": "clicks of the shop"}}))
    deferred(operator(file), in_run(), event_of(trigger))

    assert [version.version for version in store.history()] == [2, 1]


def test_spec_submitted_by_hand_stays_until_the_file_changes(
    file: Path, spec: dict[str, Any], store: SupervisionStore, suspended: None
) -> None:
    trigger = deferred(operator(file), in_run())
    store.submit(spec | {"context": {"owner": "a person"}}, by="a person")

    deferred(operator(file), in_run(), event_of(trigger))

    current = store.current()
    assert current is not None and current.by == "a person"


@pytest.mark.parametrize("text", [None, "reads: {kinesis: {", "version: 1\nreads: {kinesis: {stream: clicks}}"])
def test_missing_or_wrong_file_keeps_the_stored_spec(
    text: str | None, file: Path, store: SupervisionStore, suspended: None
) -> None:
    deferred(operator(file), in_run())
    if text is None:
        file.unlink()
    else:
        file.write_text(text)

    trigger = deferred(operator(file), in_run(try_number=2))  # which knows the source from the store alone
    deferred(operator(file), in_run(try_number=2), event_of(trigger))

    stored = store.get()
    assert trigger.source == "clicks"
    assert stored is not None and stored.supervision.spec_version == 1
    [error] = stored.supervision.health.errors
    assert (error.error_class, str(file) in error.message) == ("ConfigurationError", True)


def test_initially_wrong_file_fails_and_names_the_field(
    file: Path, spec: dict[str, Any], store: SupervisionStore, jobs: Callable[[], list[Job]]
) -> None:
    file.write_text(yaml.safe_dump(spec | {"supervise": {"task_count": 0}}))

    with pytest.raises(AirflowException, match=r"'supervise.task_count' must be from 1"):
        operator(file).execute(in_run())

    assert (store.get(), jobs()) == (None, [])


def test_suspended_source_gives_an_endless_run_without_jobs(
    file: Path, suspended: None, jobs: Callable[[], list[Job]]
) -> None:
    trigger = deferred(operator(file), in_run(began=timedelta(days=3)))

    assert (trigger.until, jobs()) == (None, [])


def test_run_ends_after_the_duration_of_a_job(file: Path, jobs: Callable[[], list[Job]]) -> None:
    context = in_run(began=timedelta(minutes=20))

    trigger = deferred(operator(file), context)

    assert trigger.until is not None
    assert datetime.fromisoformat(trigger.until) == context["dag_run"].start_date + timedelta(hours=1)


def test_another_dag_cannot_supervise_the_source(file: Path, suspended: None) -> None:
    deferred(operator(file), in_run())

    with pytest.raises(AirflowException, match="supervised by DAG 'supervise_clicks'"):
        operator(file).execute(in_run(dag_id="supervise_clicks_too"))


def test_second_dag_of_a_source_submits_nothing(
    file: Path, spec: dict[str, Any], store: SupervisionStore, suspended: None, tmp_path: Path
) -> None:
    deferred(operator(file), in_run())
    other = tmp_path / "other.yaml"
    other.write_text(yaml.safe_dump(spec | {"source": "clicks", "writes": [{"parquet": {"path": "/elsewhere"}}]}))

    with pytest.raises(AirflowException, match=r"other\.yaml' is not submitted: .* use 'supervisor submit'"):
        operator(other).execute(in_run(dag_id="supervise_clicks_too"))

    assert [(version.version, version.by) for version in store.history()] == [(1, "supervise_clicks")]


def test_earlier_run_submits_nothing_over_a_later_one(
    file: Path, spec: dict[str, Any], store: SupervisionStore, suspended: None
) -> None:
    late = in_run(began=timedelta(hours=2))
    deferred(operator(file), in_run())
    file.write_text(yaml.safe_dump(spec | {"context": {"description": "edited"}}))

    operator(file).execute(late)

    assert [version.version for version in store.history()] == [1]


def test_refused_first_spec_keeps_no_lease(
    file: Path, spec: dict[str, Any], store: SupervisionStore, suspended: None, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(yaml.safe_dump(spec | {"source": "clicks", "reads": {"kinesis": {"streams": "no_such"}}}))
    with pytest.raises(AirflowException, match="no_such"):
        operator(wrong).execute(in_run(dag_id="supervise_clicks_too"))

    deferred(operator(file), in_run())

    assert [version.by for version in store.history()] == ["supervise_clicks"]


def test_earlier_run_yields_to_a_later_one_without_error(file: Path, suspended: None) -> None:
    late = in_run(began=timedelta(hours=2))
    deferred(operator(file), in_run())

    assert operator(file).execute(late)["state"] == "supervised by a later run"


def test_task_without_a_file_waits_for_a_spec(
    spec: dict[str, Any], store: SupervisionStore, jobs: Callable[[], list[Job]]
) -> None:
    task = operator(source="clicks")
    trigger = deferred(task, in_run())
    assert (trigger.until, trigger.spec_file, jobs()) == (None, None, [])

    store.submit(spec, by="a person")
    deferred(task, in_run(), event_of(trigger))

    assert len(jobs()) == 2


def test_failed_job_is_logged_once_with_its_last_output(
    file: Path,
    store: SupervisionStore,
    coordination: SourceCoordinator,
    jobs: Callable[[], list[Job]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    trigger = deferred(operator(file), in_run())
    failed = jobs()[0]
    ended = Outcome(exit_code=1, error="ValueError: no such column", tail="the last line")
    Jobs(coordination.view).end(failed.owner, ended.to_mapping())

    caplog.clear()
    deferred(operator(file), in_run(), event_of(trigger))
    deferred(operator(file), in_run(), event_of(trigger))

    shown = [record.message for record in caplog.records if "job failed" in record.message]
    assert [("no such column" in line, "the last line" in line) for line in shown] == [(True, True)]


@pytest.mark.integration  # needs no server, but OpenLineage's modules, and so seconds
def test_ended_jobs_are_reported_to_openlineage_once(
    file: Path, coordination: SourceCoordinator, jobs: Callable[[], list[Job]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.providers.openlineage.plugins.listener import get_openlineage_listener

    task, context = operator(file), in_run()
    context |= {"task": task}
    context["dag_run"].logical_date = datetime.now(UTC)
    with LineageReceiver() as receiver:
        get_openlineage_listener.cache_clear()
        monkeypatch.setenv("AIRFLOW__OPENLINEAGE__TRANSPORT", receiver.transport)
        trigger = deferred(task, context)
        for job, code in zip(jobs(), (0, 1), strict=True):
            outcome = Outcome(exit_code=code, error="no such column" if code else None)
            Jobs(coordination.view).end(job.owner, outcome.to_mapping())
        for _ in range(2):
            deferred(task, context, event_of(trigger))
        get_openlineage_listener.cache_clear()

    assert sorted(event["eventType"] for event in receiver.events) == ["COMPLETE", "FAIL", "START", "START"]
    assert {event["inputs"][0]["name"] for event in receiver.events} == {"clicks"}
    assert {event["job"]["name"] for event in receiver.events} == {"supervise_clicks.supervise.clicks"}


def test_failed_trigger_fails_the_try(file: Path) -> None:
    with pytest.raises(AirflowException, match="gone"):
        operator(file).execute_complete(in_run(), {"status": "error", "message": "the connection is gone"})


def test_task_needs_a_file_or_a_source() -> None:
    with pytest.raises(ValueError, match="either 'source'"):
        SuperviseOperator(task_id="supervise")
