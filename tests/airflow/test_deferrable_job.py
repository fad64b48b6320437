"""A deferred Spark job outlives its task, which finds the job again through the store."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

from airflow_provider_coordination.airflow_names import (
    AirflowException,
    AirflowFailException,
    TaskDeferralError,
    TaskDeferralTimeout,
    TaskDeferred,
)
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.jobs import Job, JobRecord, Jobs, JobState
from airflow_provider_coordination.coordination.partition import PartitionStatus, format_instant
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.hooks.job_resources import job_processes
from airflow_provider_coordination.hooks.task_try import owner_of_try
from airflow_provider_coordination.operators import job_follower, job_submission
from airflow_provider_coordination.operators.job_follower import JobFollower, digest_of
from airflow_provider_coordination.operators.job_submission import job_folder
from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.spark.job_settings import LeaseSettings
from airflow_provider_coordination.spark.outcome import EXIT_CONFIGURATION, EXIT_FAILED, EXIT_LOST_WORK, Outcome
from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.spark.submission import LOG_NAME
from airflow_provider_coordination.spark.writes import ParquetDataset
from airflow_provider_coordination.triggers.supervisor import JobTrigger
from airflow_provider_coordination.triggers.watchers import Watchers
from tests.airflow.conftest import SECRET, StubSpark, until
from tests.support import java_home
from tests.support.ingestions import with_ingestion
from tests.support.job_settings import changed, streams_of
from tests.support.watched import first_payload, in_loop

pytestmark = pytest.mark.usefixtures("temporary")  # no job leaves anything elsewhere

TASK = "dag/run/task/3"
GOOD = Outcome(exit_code=0, summary={"records_delivered": 7}).to_mapping()


@pytest.fixture(autouse=True)
def connections(connect: Any, coordination: SourceCoordinator) -> None:
    connect("aws_default", "aws", login="AKIAEXAMPLE", password=SECRET, extra={"region_name": "eu-west-1"})
    coordination.create_partitions({f"p{number}": {} for number in range(3)})


@pytest.fixture
def jobs(coordination: SourceCoordinator) -> Jobs:
    return Jobs(coordination.view)


@pytest.fixture
def operator(spark: StubSpark, tmp_path: Path) -> Callable[..., CoordinatedSparkSubmitOperator]:
    def make(**arguments: Any) -> CoordinatedSparkSubmitOperator:
        defaults = {
            "task_id": "ingest",
            "reads": KinesisStreams("clicks", aws_conn_id=None, region_name="eu-west-1"),
            "writes": ParquetDataset(str(tmp_path / "out")),
            "env_vars": {"PATH": spark.path},
            "deferrable": True,
        }
        return CoordinatedSparkSubmitOperator(**with_ingestion(defaults | arguments))

    return make


@pytest.fixture
def job_settings(operator: Any, context: Any) -> IngestSettings:
    """The settings of the job of a try."""
    settings = operator().job_settings(CoordinationHook().settings, context)
    return replace(settings, expires_at=datetime.now(UTC) + timedelta(hours=1), is_followed=True)


@pytest.fixture
def follower() -> JobFollower:
    return JobFollower(connection=CoordinationHook().settings, source="clicks", task=TASK)


@pytest.fixture
def submitted_job(follower: JobFollower, job_settings: IngestSettings) -> IngestSettings:
    """A job of an earlier try, somewhere in a cluster."""
    follower.submit(job_settings, None)
    return job_settings


@pytest.fixture
def running(submitted_job: IngestSettings, coordination: SourceCoordinator) -> JobRecord:
    """The same, which has begun, and holds a partition."""
    job = SourceCoordinator(coordination.store, "clicks", submitted_job.owner)
    job.initialize()
    job.leases.acquire(1)
    record = JobRecord(job)
    record.begin()
    record.note_reading()
    return record


def known(jobs: Jobs, owner: str) -> Job:
    job = jobs.get(owner)
    assert job is not None
    return job


def deferred(task: CoordinatedSparkSubmitOperator, context: Any) -> TaskDeferred:
    with pytest.raises(TaskDeferred) as defers:
        task.execute(context)
    return defers.value


def event(owner: str, **more: Any) -> dict[str, Any]:
    return {"status": "ended", "source": "clicks", "owner": owner, "log": None, "deadline": None} | more


def held(coordination: SourceCoordinator) -> list[str]:
    return [p.partition_key for p in coordination.view.partitions() if p.owner]


# How it ended


def test_deferred_task_returns_the_result_of_a_waiting_one(
    operator: Any, context: Any, jobs: Jobs, submitted_job: IngestSettings
) -> None:
    jobs.end(submitted_job.owner, GOOD)
    result = operator().execute_complete(context, event(submitted_job.owner))
    assert result == {"owner": submitted_job.owner, "records_delivered": 7}
    assert known(jobs, submitted_job.owner).is_reported


@pytest.mark.parametrize(
    ("outcome", "error", "message"),
    [
        (
            Outcome(exit_code=EXIT_CONFIGURATION, error="configuration error: no stream"),
            AirflowFailException,
            "no stream",
        ),
        (
            Outcome(exit_code=EXIT_LOST_WORK, error="leases were lost: p1"),
            AirflowException,
            "lost: p1; no data is lost",
        ),
        (Outcome(exit_code=EXIT_FAILED, error="failed: partition=p1"), AirflowException, "p1; landed data is kept"),
        (Outcome(exit_code=-9, tail="the last words"), AirflowException, "killed by SIGKILL; no data is lost"),
        (Outcome(exit_code=3, tail="the last words"), AirflowException, r"exit code 3; no data[\s\S]*the last words"),
        (
            Outcome(exit_code=1, tail=java_home.TOO_OLD),
            AirflowFailException,
            "Java 11 is too old for this Spark, which needs Java 17; ",
        ),
    ],
)
def test_failed_job_fails_the_task_with_the_usual_error(
    operator: Any, context: Any, jobs: Jobs, submitted_job: IngestSettings, outcome: Outcome, error: Any, message: str
) -> None:
    jobs.end(submitted_job.owner, outcome.to_mapping())
    with pytest.raises(error, match=message) as raised:
        operator().execute_complete(context, event(submitted_job.owner))
    assert isinstance(raised.value, AirflowFailException) is (error is AirflowFailException)


def test_running_job_is_deferred_for_the_remaining_time(
    operator: Any, context: Any, running: JobRecord, submitted_job: IngestSettings
) -> None:
    deadline = format_instant(datetime.now(UTC) + timedelta(minutes=5))
    with pytest.raises(TaskDeferred) as defers:
        operator().execute_complete(context, event(submitted_job.owner, deadline=deadline))
    assert defers.value.trigger.serialize()[1]["deadline"] == deadline
    assert timedelta(minutes=4) < defers.value.timeout <= timedelta(minutes=5)


def test_vanished_job_fails_the_task_and_frees_its_leases(
    operator: Any, context: Any, jobs: Jobs, submitted_job: IngestSettings, running: JobRecord,
    coordination: SourceCoordinator,
) -> None:  # fmt: skip
    [item] = coordination.store.query(jobs.source_identifier, PartitionStatus.ASSIGNED)
    long_ago = datetime.now(UTC) - timedelta(minutes=1)
    coordination.store.transact(update=[replace(item, ownership_timeout=long_ago, priority=long_ago)])
    assert held(coordination) == ["p0"]
    with pytest.raises(AirflowException, match="the job vanished: it has not responded since its lease expired"):
        operator().execute_complete(context, event(submitted_job.owner, status="overdue"))
    assert held(coordination) == []
    assert not running.end(GOOD)


def test_job_start_timeout_fails_with_its_output(
    operator: Any, context: Any, jobs: Jobs, follower: JobFollower, job_settings: IngestSettings
) -> None:
    log = job_folder() / LOG_NAME
    log.write_text("spark-submit waits for resources\n")
    follower.submit(replace(job_settings, expires_at=datetime.now(UTC)), str(log))
    with pytest.raises(AirflowException, match=r"did not begin by[\s\S]*waits for resources"):
        operator().execute_complete(context, event(job_settings.owner, status="overdue", log=str(log)))
    assert known(jobs, job_settings.owner).state is JobState.ENDED, "should it come up after all, it does not begin"
    assert not log.parent.exists()


def test_output_of_an_unstarted_job_is_kept_without_secrets(
    operator: Any, context: Any, jobs: Jobs, follower: JobFollower
) -> None:
    job_settings = replace(
        operator(reads=KinesisStreams("clicks")).job_settings(CoordinationHook().settings, context),
        expires_at=datetime.now(UTC),
    )
    folder = job_folder()
    job_settings.write(folder / f"{folder.name}.json")
    (folder / LOG_NAME).write_text(f"spark-submit cannot sign with {SECRET}\n")
    follower.submit(job_settings, str(folder / LOG_NAME))
    with pytest.raises(AirflowException, match=r"cannot sign with \*\*\*"):
        operator().execute_complete(context, event(job_settings.owner, status="overdue"))
    assert SECRET not in str(known(jobs, job_settings.owner).outcome)


def test_unknown_job_fails_the_task(operator: Any, context: Any) -> None:
    owner = owner_of_try(context)
    with pytest.raises(AirflowException, match=f"the store no longer has a record of the job: owner={owner}"):
        operator().execute_complete(context, event(owner))


@pytest.mark.parametrize("payload", [None, {}, {"status": "error", "owner": "a", "message": "connection 'x' is gone"}])
def test_event_without_a_job_fails_without_a_retry(operator: Any, context: Any, payload: Any) -> None:
    with pytest.raises(AirflowFailException, match=r"an event that cannot be read|connection 'x' is gone"):
        operator().execute_complete(context, payload)


# Another try


def test_retry_resumes_the_job_of_the_previous_try(
    operator: Any, context: Any, running: JobRecord, submitted_job: IngestSettings, spark: StubSpark
) -> None:
    context["ti"].try_number += 1
    waiting = deferred(operator(), context)
    assert waiting.trigger.serialize()[1]["owner"] == submitted_job.owner
    assert spark.calls == []


def test_retry_returns_an_unreported_success(
    operator: Any, context: Any, jobs: Jobs, submitted_job: IngestSettings, spark: StubSpark
) -> None:
    jobs.end(submitted_job.owner, GOOD)
    assert operator().execute(context) == {"owner": submitted_job.owner, "records_delivered": 7}
    assert spark.calls == []


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let nothing be started; return which jobs would have been."""
    started: list[str] = []
    monkeypatch.setattr(job_submission, "_submit_here", lambda hook, application, path: started.append(str(path)))
    return started


@pytest.mark.integration  # needs no server, but packs the archive, and so seconds
def test_reported_success_does_not_count_for_a_cleared_task(
    operator: Any, context: Any, jobs: Jobs, submitted_job: IngestSettings, no_spark: list[str]
) -> None:
    jobs.end(submitted_job.owner, GOOD)
    operator().execute_complete(context, event(submitted_job.owner))
    assert deferred(operator(), context).trigger.serialize()[1]["owner"] != submitted_job.owner
    assert len(no_spark) == 1


@pytest.mark.integration  # needs no server, but packs the archive, and so seconds
@pytest.mark.parametrize("code", [EXIT_FAILED, None])
def test_retry_ignores_an_unreported_failure(
    operator: Any, context: Any, jobs: Jobs, submitted_job: IngestSettings, no_spark: list[str], code: int | None
) -> None:
    jobs.end(submitted_job.owner, Outcome(exit_code=code).to_mapping())
    deferred(operator(), context)
    assert len(no_spark) == 1


@pytest.mark.integration  # needs no server, but packs the archive, and so seconds
def test_job_with_a_stop_request_is_not_resumed(
    operator: Any, context: Any, jobs: Jobs, running: JobRecord, submitted_job: IngestSettings, no_spark: list[str]
) -> None:
    jobs.request_stop(submitted_job.owner, "cleared")
    deferred(operator(), context)
    assert len(no_spark) == 1


@pytest.mark.integration  # needs no server, but packs the archive, and so seconds
def test_job_with_other_settings_is_stopped_and_replaced(
    operator: Any, context: Any, jobs: Jobs, running: JobRecord, submitted_job: IngestSettings, no_spark: list[str]
) -> None:
    deferred(operator(transform="my.module:other"), context)
    assert len(no_spark) == 1
    assert known(jobs, submitted_job.owner).stop == "another try of its task began"


@pytest.mark.integration  # needs no server, but packs the archive, and so seconds
def test_running_job_of_a_cleared_try_is_stopped_and_replaced(
    operator: Any, context: Any, jobs: Jobs, running: JobRecord, submitted_job: IngestSettings, no_spark: list[str]
) -> None:
    context["ti"].max_tries = 1
    deferred(operator(), context)
    assert len(no_spark) == 1
    assert known(jobs, submitted_job.owner).stop == "another try of its task began"


@pytest.mark.integration  # needs no server, but packs the archive, and so seconds
def test_vanished_job_is_given_up_and_replaced(
    operator: Any, context: Any, jobs: Jobs, follower: JobFollower, job_settings: IngestSettings, no_spark: list[str]
) -> None:
    follower.submit(replace(job_settings, expires_at=datetime.now(UTC)), None)
    deferred(operator(), context)
    assert len(no_spark) == 1
    assert known(jobs, job_settings.owner).state is JobState.ENDED


@pytest.mark.integration  # needs no server, but packs the archive, and so seconds
def test_stopped_job_of_a_cleared_task_is_replaced(
    operator: Any, context: Any, jobs: Jobs, running: JobRecord, submitted_job: IngestSettings, no_spark: list[str]
) -> None:
    context["ti"].try_number += 1
    assert deferred(operator(), context).trigger.serialize()[1]["owner"] == submitted_job.owner
    jobs.request_stop(submitted_job.owner, "cleared")  # the news of it came late
    running.end(Outcome(exit_code=-9).to_mapping())
    with pytest.raises(TaskDeferred) as defers:
        operator().execute_complete(context, event(submitted_job.owner))
    assert defers.value.trigger.serialize()[1]["owner"] != submitted_job.owner
    assert len(no_spark) == 1


@pytest.mark.integration  # needs no server, but packs the archive, and so seconds
@pytest.mark.parametrize("read", [JobFollower.find_earlier, JobFollower.outcome_of])
def test_job_that_ends_while_it_is_found_is_replaced(
    operator: Any, context: Any, jobs: Jobs, running: JobRecord, submitted_job: IngestSettings, no_spark: list[str],
    monkeypatch: pytest.MonkeyPatch, read: Callable[[JobFollower, Any], Any],
) -> None:  # fmt: skip
    def read_then_ended(self: JobFollower, argument: Any) -> Any:
        result = read(self, argument)
        if jobs.request_stop(submitted_job.owner, "cleared"):
            running.end(Outcome(exit_code=-9).to_mapping())
        return result

    monkeypatch.setattr(JobFollower, read.__name__, read_then_ended)
    context["ti"].try_number += 1
    assert deferred(operator(), context).trigger.serialize()[1]["owner"] != submitted_job.owner
    assert len(no_spark) == 1


@pytest.mark.integration  # needs no server, but packs the archive, and so seconds
def test_resumed_job_that_fails_is_replaced(
    operator: Any, context: Any, running: JobRecord, submitted_job: IngestSettings, no_spark: list[str]
) -> None:
    context["ti"].try_number += 1
    running.end(Outcome(exit_code=EXIT_FAILED).to_mapping())
    with pytest.raises(TaskDeferred) as defers:
        operator().execute_complete(context, event(submitted_job.owner))
    assert defers.value.trigger.serialize()[1]["owner"] != submitted_job.owner
    assert len(no_spark) == 1


def test_job_stopped_by_hand_is_not_replaced(
    operator: Any, context: Any, jobs: Jobs, running: JobRecord, submitted_job: IngestSettings, no_spark: list[str]
) -> None:
    jobs.request_stop(submitted_job.owner, "by hand")
    running.end(GOOD)
    assert operator().execute_complete(context, event(submitted_job.owner))["records_delivered"] == 7
    assert no_spark == []


@pytest.mark.integration  # needs no server, but packs the archive, and so seconds
def test_jobs_of_other_tasks_are_left_alone(
    operator: Any, context: Any, jobs: Jobs, running: JobRecord, submitted_job: IngestSettings, no_spark: list[str]
) -> None:
    context["ti"].map_index = 4
    deferred(operator(transform="my.module:other"), context)
    assert len(no_spark) == 1
    assert known(jobs, submitted_job.owner).stop is None


def test_digest_ignores_owner_time_and_credentials(job_settings: IngestSettings) -> None:
    later = replace(job_settings, owner="b", expires_at=job_settings.expires_at + timedelta(hours=1))
    other = replace(streams_of(job_settings).aws, access_key_id="AKIAOTHER", secret_access_key="other")
    rotated = changed(later, aws=other)
    assert digest_of(job_settings, "salt", 0) == digest_of(rotated, "salt", 0)
    other_leases = replace(job_settings, leases=LeaseSettings(max_leases=3))
    assert digest_of(job_settings, "salt", 0) != digest_of(other_leases, "salt", 0)
    assert digest_of(job_settings, "salt", 0) != digest_of(job_settings, "pepper", 0)


# The end of the task before the end of the job


def test_ending_the_deferred_task_requests_the_job_to_stop(
    jobs: Jobs, running: JobRecord, submitted_job: IngestSettings
) -> None:
    trigger = JobTrigger(source="clicks", owner=submitted_job.owner)
    in_loop(lambda watchers: trigger.on_kill())
    assert "its task was ended or cleared" in str(known(jobs, submitted_job.owner).stop)


@pytest.mark.parametrize(
    ("states", "is_stopped"),
    [
        ({"a_run": {"ingest": None}}, True),
        ({"a_run": {"ingest": "success"}}, True),
        ({}, True),
        ({"a_run": {"ingest": "deferred"}}, False),
        (RuntimeError("the triggerer ends"), False),
    ],
    ids=["cleared", "marked", "removed", "triggerer ends", "unknown"],
)
def test_older_triggerer_cancelling_stops_the_job_its_task_left(
    jobs: Jobs,
    running: JobRecord,
    submitted_job: IngestSettings,
    monkeypatch: pytest.MonkeyPatch,
    states: Any,
    is_stopped: bool,
) -> None:
    def get_task_states(**asked: Any) -> Any:
        assert asked == {"dag_id": "a_dag", "task_ids": ["ingest"], "run_ids": ["a_run"], "map_index": -1}
        if isinstance(states, Exception):
            raise states
        return states

    monkeypatch.setattr("airflow_provider_coordination.triggers.deferral.CALLS_ON_KILL", False)
    monkeypatch.setattr(RuntimeTaskInstance, "get_task_states", get_task_states)
    trigger = JobTrigger(source="clicks", owner=submitted_job.owner)
    trigger.task_instance = SimpleNamespace(dag_id="a_dag", task_id="ingest", run_id="a_run", map_index=-1)

    async def cancelled(watchers: Watchers) -> None:
        waiting = asyncio.ensure_future(anext(trigger.run()))
        await asyncio.sleep(0.05)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting

    in_loop(cancelled)
    assert (known(jobs, submitted_job.owner).stop is not None) is is_stopped


def test_cancelled_kill_still_requests_the_job_to_stop(
    jobs: Jobs, running: JobRecord, submitted_job: IngestSettings
) -> None:
    trigger = JobTrigger(source="clicks", owner=submitted_job.owner)

    async def impatient(watchers: Watchers) -> None:
        killing = asyncio.create_task(trigger.on_kill())
        await asyncio.sleep(0)
        killing.cancel()  # as it does with a trigger that is killed and still there a second later
        with suppress(asyncio.CancelledError):
            await killing
        while known(jobs, submitted_job.owner).stop is None:
            await asyncio.sleep(0.01)

    in_loop(impatient)


def test_deferral_timeout_requests_the_job_to_stop(
    operator: Any, context: Any, jobs: Jobs, running: JobRecord, submitted_job: IngestSettings
) -> None:
    with pytest.raises(TaskDeferralTimeout):
        operator().resume_execution("__fail__", {"error": "Trigger timeout"}, context)
    assert known(jobs, submitted_job.owner).stop == "its task ran out of time"


@pytest.mark.parametrize(("max_tries", "stop"), [(2, None), (1, "its task failed")])
def test_failed_trigger_leaves_the_job_to_a_remaining_try(
    operator: Any,
    context: Any,
    jobs: Jobs,
    running: JobRecord,
    submitted_job: IngestSettings,
    max_tries: int,
    stop: Any,
) -> None:
    context["ti"].max_tries = max_tries
    with pytest.raises(TaskDeferralError):
        operator().resume_execution("__fail__", {"error": "Trigger failure"}, context)
    assert known(jobs, submitted_job.owner).stop == stop


@pytest.mark.integration  # needs no server, but packs the archive, and so seconds
def test_execution_timeout_counts_during_the_deferral(operator: Any, context: Any, no_spark: list[str]) -> None:
    waiting = deferred(operator(execution_timeout=timedelta(minutes=10)), context)
    assert timedelta(minutes=9) < waiting.timeout <= timedelta(minutes=10)
    assert waiting.trigger.serialize()[1]["deadline"] is not None


# What is wrong before the job is on its way


@pytest.mark.parametrize(
    ("master", "arguments", "message"),
    [
        (
            "spark://master:7077",
            {},
            "only on YARN and Kubernetes; use 'client'",
        ),
        (
            "yarn",
            {"conf": {"spark.yarn.submit.waitAppCompletion": "true"}},
            "field 'conf': 'spark.yarn.submit.waitAppCompletion' must be false, or left out, with deferrable=True",
        ),
        ("yarn", {"start_timeout": "soon"}, "field 'start_timeout' must be a number; got 'soon'"),
    ],
)
def test_job_that_cannot_be_followed_fails_before_spark_starts(
    operator: Any, spark: StubSpark, context: Any, connect: Any, temporary: Path, master: str, arguments: Any,
    message: str,
) -> None:  # fmt: skip
    connect("spark_default", "spark", host=master, extra={"deploy-mode": "cluster"})
    with pytest.raises(AirflowFailException) as error:
        operator(env_vars=None, **arguments).execute(context)
    assert message in str(error.value)
    assert spark.calls == []
    assert list(temporary.iterdir()) == []


def test_abandoned_old_logs_are_deleted(temporary: Path) -> None:
    old, new = job_folder(), job_folder()
    (old / LOG_NAME).touch()
    for path in (old / LOG_NAME, old):
        os.utime(path, (0, 0))
    job_folder()
    assert not old.exists()
    assert new.exists()


# With processes


@pytest.fixture
def job_on_this_machine(
    operator: Any, spark: StubSpark, context: Any, temporary: Path
) -> Iterator[Callable[..., TaskDeferred]]:
    """Submits a job that follows the test's instructions, and defers."""

    def submit(arguments: dict[str, Any] | None = None, /, **plan: Any) -> TaskDeferred:
        spark.will(**plan)
        waiting = deferred(operator(reads=KinesisStreams("clicks"), **arguments or {}), context)
        spark.wait_for_a_call()
        return waiting

    yield submit
    for folder in temporary.iterdir():
        for process in job_processes(str(folder / f"{folder.name}.json")):
            process.kill()


@pytest.mark.integration  # needs no server, but whole processes, and so seconds
def test_job_outlives_its_deferred_task_and_fires_the_trigger(
    operator: Any, spark: StubSpark, context: Any, temporary: Path, job_on_this_machine: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    caplog.set_level("INFO")
    waiting = job_on_this_machine(outcome=GOOD, sleep=1, lines=["round 1"])
    (call,) = spark.calls
    assert call["settings"]["is_followed"] is True
    assert os.getsid(0) not in {os.getsid(p.pid) for p in job_processes(call["settings_file"])}
    for place in (call["arguments"], waiting.trigger.serialize()):
        assert SECRET not in str(place)

    payload = first_payload(waiting.trigger)

    assert payload["status"] == "ended"
    until(lambda: not job_processes(call["settings_file"]))
    assert not Path(call["settings_file"]).exists(), "what travelled to the job does not outlive it"
    result = operator().execute_complete(context, payload)
    assert result == {"owner": call["settings"]["owner"], "records_delivered": 7}
    assert "round 1" in caplog.text
    assert list(temporary.iterdir()) == []


@pytest.mark.integration  # needs no server, but whole processes, and so seconds
def test_dead_processes_of_a_job_are_noticed_at_once(
    operator: Any, spark: StubSpark, context: Any, coordination: SourceCoordinator, job_on_this_machine: Any
) -> None:
    waiting = job_on_this_machine(acquire=2, exit=1, lines=["the last words"])
    payload = first_payload(waiting.trigger)
    with pytest.raises(AirflowException, match=r"exit code 1; no data is lost[\s\S]*the last words"):
        operator().execute_complete(context, payload)
    assert held(coordination) == []


CONF_SECRET = "of-the-spark-conf/1"
CONF = {"spark.hadoop.fs.s3a.secret.key": CONF_SECRET}
SPILT = (
    f"cannot sign with {SECRET}",
    f"GET https://ann:{quote(SECRET, safe='')}@host/",
    f"Spark config: (spark.hadoop.fs.s3a.secret.key,{CONF_SECRET}) or {quote(CONF_SECRET, safe='')}",
    "another account: " + "AKIA" + "IOSFODNN7EXAMPLE",
)


def spilt(text: str) -> list[str]:
    """Return the secrets of `SPILT` in a text."""
    return [said for said in (SECRET, CONF_SECRET, quote(CONF_SECRET, safe=""), "IOSFODNN7") if said in text]


@pytest.mark.integration  # needs no server, but whole processes, and so seconds
def test_secrets_in_the_output_of_a_job_are_removed(
    operator: Any, spark: StubSpark, context: Any, jobs: Jobs, job_on_this_machine: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    caplog.set_level("INFO")
    waiting = job_on_this_machine({"conf": CONF}, exit=1, lines=SPILT)
    payload = first_payload(waiting.trigger)
    with pytest.raises(AirflowException, match=r"cannot sign with \*\*\*") as error:
        operator(reads=KinesisStreams("clicks"), conf=CONF).execute_complete(context, payload)
    outcome = known(jobs, spark.calls[0]["settings"]["owner"]).outcome or {}
    assert "cannot sign with ***" in outcome["tail"] and "another account: ***" in outcome["tail"]
    assert "cannot sign with ***" in caplog.text
    assert [spilt(text) for text in (str(outcome), str(error.value), caplog.text)] == [[], [], []]


@pytest.mark.integration  # needs no server, but whole processes, and so seconds
def test_ending_the_deferred_task_ends_the_local_job(
    spark: StubSpark, coordination: SourceCoordinator, jobs: Jobs, job_on_this_machine: Any, temporary: Path
) -> None:
    waiting = job_on_this_machine(acquire=2, outcome=GOOD, sleep=60, child=True)
    (call,) = spark.calls
    assert len(held(coordination)) == 2
    in_loop(lambda watchers: waiting.trigger.on_kill())
    assert job_processes(call["settings_file"]) == []
    assert held(coordination) == []
    assert Outcome.from_mapping(known(jobs, call["settings"]["owner"]).outcome or {}).exit_code == -signal.SIGKILL
    assert not Path(call["settings_file"]).exists()


@pytest.mark.integration  # needs no server, but whole processes, and so seconds
def test_try_with_other_settings_first_ends_the_local_job(
    operator: Any, spark: StubSpark, context: Any, coordination: SourceCoordinator, job_on_this_machine: Any
) -> None:
    job_on_this_machine(acquire=2, outcome=GOOD, sleep=60)
    (call,) = spark.calls
    spark.will(outcome=GOOD)
    deferred(operator(transform="my.module:other"), context)
    assert job_processes(call["settings_file"]) == []
    assert held(coordination) == []


@pytest.mark.integration  # needs no server, but whole processes, and so seconds
def test_task_killed_after_its_submission_ends_its_job(
    operator: Any, spark: StubSpark, context: Any, coordination: SourceCoordinator, jobs: Jobs
) -> None:
    spark.will(acquire=2, outcome=GOOD, sleep=60)
    op = operator()
    deferred(op, context)
    spark.wait_for_a_call()
    op.on_kill()  # the news of the deferral is not out yet
    (call,) = spark.calls
    assert job_processes(call["settings_file"]) == []
    assert held(coordination) == []
    assert known(jobs, call["settings"]["owner"]).state is JobState.ENDED


@pytest.mark.integration  # needs no server, but whole processes, and so seconds
def test_cluster_job_is_handed_over_without_waiting(
    operator: Any, spark: StubSpark, context: Any, connect: Any, monkeypatch: pytest.MonkeyPatch, jobs: Jobs,
    temporary: Path,
) -> None:  # fmt: skip
    connect("spark_default", "spark", host="yarn", extra={"deploy-mode": "cluster"})
    monkeypatch.setenv("PATH", spark.path)
    waiting = deferred(operator(env_vars=None), context)
    (call,) = spark.calls
    assert "spark.yarn.submit.waitAppCompletion=false" in call["arguments"]
    assert waiting.trigger.serialize()[1]["job_log"] is None
    assert known(jobs, call["settings"]["owner"]).state is JobState.SUBMITTED
    assert list(temporary.iterdir()) == [], "its settings have travelled with it"


@pytest.mark.integration  # needs no server, but whole processes, and so seconds
def test_job_refused_by_the_cluster_fails_the_task(
    operator: Any, spark: StubSpark, context: Any, connect: Any, monkeypatch: pytest.MonkeyPatch, jobs: Jobs
) -> None:
    connect("spark_default", "spark", host="yarn", extra={"deploy-mode": "cluster"})
    monkeypatch.setenv("PATH", spark.path)
    spark.will(exit=1, lines=["queue is full", *SPILT])
    with pytest.raises(AirflowException, match="queue is full") as error:
        operator(env_vars=None, reads=KinesisStreams("clicks"), conf=CONF).execute(context)
    assert jobs.unfinished() == []
    [job] = jobs.of_task(TASK)
    assert "queue is full" in str(job.outcome)
    assert spilt(str(job.outcome)) == spilt(str(error.value)) == []


def test_context_without_tries_means_no_retry() -> None:
    assert not job_follower.will_be_retried({"ti": SimpleNamespace(try_number=1)})  # type: ignore[typeddict-item]
