"""A task creates the Secret with the settings of a driver in Kubernetes, and deletes it after the job.

The API server and spark-submit are stand-ins; what talks to them is what talks to the real ones.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.airflow_names import (
    AirflowException,
    AirflowFailException,
    TaskDeferralTimeout,
    TaskDeferred,
)
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.jobs import JobRecord, Jobs, JobState
from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.spark.outcome import EXIT_CONFIGURATION, Outcome
from airflow_provider_coordination.spark.writes import ParquetDataset
from airflow_provider_coordination.triggers.supervisor import JobTrigger
from tests.airflow.conftest import SECRET, StubSpark, until
from tests.support.ingestions import with_ingestion
from tests.support.kubernetes_api import KubernetesApi
from tests.support.watched import in_loop

pytestmark = pytest.mark.usefixtures("temporary")

POD = "clicks-0a1b2c-driver"
NAMED = f"\t pod name: {POD}"
ENDED = "\t exit code: 0"
GOOD = Outcome(exit_code=0, summary={"records_delivered": 7}).to_mapping()
TASK = "dag/run/task/3"
WHOLE_LIFE = ["POST secrets", "POST pods", "GET secrets", "GET pods", "PATCH secrets", "DELETE secrets"]
"""Of a Secret; the stand-in of spark-submit made the pod and read it."""


@pytest.fixture
def api(kubernetes: KubernetesApi) -> KubernetesApi:
    return kubernetes


@pytest.fixture(autouse=True)
def connections(
    connect: Any, coordination: SourceCoordinator, spark: StubSpark, monkeypatch: pytest.MonkeyPatch, api: KubernetesApi
) -> None:
    connect("aws_default", "aws", login="AKIAEXAMPLE", password=SECRET, extra={"region_name": "eu-west-1"})
    extra = {"deploy-mode": "cluster", "namespace": "ingest"}
    connect("spark_default", "spark", host="k8s://https://cluster", port=6443, extra=extra)
    monkeypatch.setenv("PATH", spark.path)
    coordination.create_partitions({"p": {}})


@pytest.fixture
def jobs(coordination: SourceCoordinator) -> Jobs:
    return Jobs(coordination.view)


@pytest.fixture
def submits(spark: StubSpark, api: KubernetesApi) -> Callable[..., None]:
    """Say what becomes of the job."""

    def will(**plan: Any) -> None:
        spark.will(**{"kubernetes": api.url, "pod": POD, "lines": [NAMED, ENDED], "outcome": GOOD, **plan})

    will()
    return will


@pytest.fixture
def operator(submits: Any, tmp_path: Path) -> Callable[..., CoordinatedSparkSubmitOperator]:
    def make(**arguments: Any) -> CoordinatedSparkSubmitOperator:
        defaults = {
            "task_id": "ingest",
            "reads": KinesisStreams("clicks"),
            "writes": ParquetDataset(str(tmp_path / "out")),
        }
        return CoordinatedSparkSubmitOperator(**with_ingestion(defaults | arguments))

    return make


def deferred(task: CoordinatedSparkSubmitOperator, context: Any) -> TaskDeferred:
    with pytest.raises(TaskDeferred) as defers:
        task.execute(context)
    return defers.value


def event(owner: str) -> dict[str, Any]:
    return {"status": "ended", "source": "clicks", "owner": owner, "log": None, "deadline": None}


def nothing_readable(api: KubernetesApi, temporary: Path) -> bool:
    return api.named("secrets") == [] and list(temporary.iterdir()) == []


# What is made and deleted


def test_driver_mounts_the_secret_and_the_task_deletes_it(
    operator: Any, spark: StubSpark, context: Any, api: KubernetesApi, temporary: Path, jobs: Jobs
) -> None:
    result = operator(files="mine.conf").execute(context)
    assert result["records_delivered"] == 7, "the summary is what the job left in the store"
    assert api.verbs == WHOLE_LIFE
    made, _, changed = api.bodies
    name, owner = made["metadata"]["name"], result["owner"]
    settings = json.loads(base64.b64decode(made.pop("data")["settings.json"]))
    assert settings["owner"] == owner and settings["is_followed"]
    assert settings["reads"]["settings"]["aws"]["secret_access_key"] == SECRET
    assert made == {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "immutable": True,
        "metadata": {
            "name": name,
            "namespace": "ingest",
            "uid": made["metadata"]["uid"],
            "labels": {"app.kubernetes.io/managed-by": "airflow-provider-coordination"},
            "annotations": {"coordination/owner": owner, "coordination/expires-at": settings["expires_at"]},
            "ownerReferences": changed["metadata"]["ownerReferences"],
        },
    }
    [pod] = [each for path, each in api.objects.items() if path.endswith(POD)]
    reference = {"apiVersion": "v1", "kind": "Pod", "name": POD, "uid": pod["metadata"]["uid"]}
    assert changed == {"metadata": {"ownerReferences": [reference]}}
    [call] = spark.calls
    arguments = call["arguments"]
    assert arguments[-2:] == ["/etc/coordination/settings.json", owner]
    assert f"spark.kubernetes.driver.secrets.{name}=/etc/coordination" in arguments
    assert arguments[arguments.index("--files") + 1] == "mine.conf"
    assert SECRET not in json.dumps(arguments)
    assert nothing_readable(api, temporary)
    [job] = jobs.of_task(TASK)
    assert (job.state, job.settings, job.cluster_id) == (
        JobState.ENDED, "secret|kubernetes_default|ingest", f"ingest:{POD}",
    )  # fmt: skip


@pytest.mark.parametrize("deferrable", [False, True])
def test_failed_submission_leaves_no_secret_and_no_job(
    operator: Any, context: Any, api: KubernetesApi, temporary: Path, jobs: Jobs, submits: Any, deferrable: bool
) -> None:
    submits(exit=1, lines=["quota exceeded"], outcome=None, pod="never-driver")
    with pytest.raises(AirflowException, match="quota exceeded"):
        operator(deferrable=deferrable).execute(context)
    assert api.verbs[0] == "POST secrets" and "DELETE secrets" in api.verbs
    assert nothing_readable(api, temporary)
    assert jobs.unfinished() == []


def test_driver_with_wrong_settings_fails_the_task_for_good(
    operator: Any, context: Any, api: KubernetesApi, temporary: Path, submits: Any
) -> None:
    error = "configuration error: field 'schema'"
    submits(exit=1, outcome=Outcome(exit_code=EXIT_CONFIGURATION, error=error).to_mapping())
    with pytest.raises(AirflowFailException, match="field 'schema'"):
        operator().execute(context)
    assert nothing_readable(api, temporary)


@pytest.mark.integration  # needs no server, but whole processes, and so seconds
def test_killed_task_leaves_no_secret_and_stops_the_job(
    operator: Any, spark: StubSpark, context: Any, api: KubernetesApi, temporary: Path, jobs: Jobs, submits: Any
) -> None:
    submits(sleep=60)
    task = operator()

    def kill() -> None:
        # The signal's handler must not interrupt a transaction of this thread, whose lock it would wait for.
        until(lambda: any(job.cluster_id is not None for job in jobs.of_task(TASK)))
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, lambda signum, frame: task.on_kill())
    try:
        threading.Thread(target=kill, daemon=True).start()
        with suppress(AirflowException):  # not if the job ends on request before the signal reaches spark-submit
            task.execute(context)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert nothing_readable(api, temporary)
    [job] = jobs.of_task(TASK)
    assert job.stop is not None and job.state is JobState.ENDED


def test_next_try_removes_the_leftovers_of_a_dead_worker(
    operator: Any, context: Any, api: KubernetesApi, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ProcessDeath(BaseException):
        pass

    def die(*args: object) -> None:
        raise ProcessDeath

    task = operator()
    with monkeypatch.context() as dead:
        dead.setattr("airflow.providers.apache.spark.hooks.spark_submit.SparkSubmitHook.submit", die)
        dead.setattr(CoordinatedSparkSubmitOperator, "_abandon_job", die)
        with pytest.raises(ProcessDeath):
            task.execute(context)
    assert len(api.named("secrets")) == 1
    operator().execute(context)
    assert nothing_readable(api, temporary)


# Deferred


def test_deferred_job_keeps_its_secret_until_its_end(
    operator: Any, spark: StubSpark, context: Any, api: KubernetesApi, temporary: Path, jobs: Jobs, submits: Any,
    coordination: SourceCoordinator,
) -> None:  # fmt: skip
    submits(outcome=None)
    task = operator(deferrable=True)
    assert deferred(task, context).trigger.serialize()[1]["job_log"] is None
    [call] = spark.calls
    owner = call["settings"]["owner"]
    assert len(api.named("secrets")) == 1 and list(temporary.iterdir()) == []
    begin(coordination, owner)
    jobs.end(owner, GOOD)
    assert operator(deferrable=True).execute_complete(context, event(owner))["records_delivered"] == 7
    assert api.verbs == WHOLE_LIFE


@pytest.mark.parametrize("has_begun", [True, False])
def test_ending_the_deferred_task_removes_secret_and_waiting_pod(
    operator: Any, spark: StubSpark, context: Any, api: KubernetesApi, jobs: Jobs, submits: Any, has_begun: bool,
    coordination: SourceCoordinator,
) -> None:  # fmt: skip
    submits(outcome=None)
    deferred(operator(deferrable=True), context)
    owner = spark.calls[0]["settings"]["owner"]
    if has_begun:
        begin(coordination, owner)
    in_loop(lambda watchers: JobTrigger(source="clicks", owner=owner).on_kill())
    job = jobs.get(owner)
    assert job is not None and job.stop is not None
    assert api.named("secrets") == []
    assert api.named("pods") == ([POD] if has_begun else [])


def begin(coordination: SourceCoordinator, owner: str) -> None:
    job = SourceCoordinator(coordination.store, "clicks", owner)
    job.initialize()
    JobRecord(job).begin()


def test_job_start_timeout_leaves_no_secret_or_pod(
    operator: Any, spark: StubSpark, context: Any, api: KubernetesApi, submits: Any
) -> None:
    submits(outcome=None)
    with pytest.raises(AirflowException, match="did not begin by"):
        operator(deferrable=True, start_timeout=0.001).execute(context)
    assert api.objects == {}


def test_deferral_timeout_removes_the_secret(operator: Any, context: Any, api: KubernetesApi, submits: Any) -> None:
    submits(outcome=None)
    task = operator(deferrable=True)
    deferred(task, context)
    timeout = {"error": "Trigger timeout"}
    with pytest.raises(TaskDeferralTimeout):
        task.resume_execution("__fail__", timeout, context)
    assert api.named("secrets") == []


def test_retry_with_other_settings_removes_the_first_secret(
    operator: Any, context: Any, api: KubernetesApi, submits: Any
) -> None:
    submits(outcome=None)
    deferred(operator(deferrable=True), context)
    first = api.named("secrets")
    api.objects = {path: each for path, each in api.objects.items() if not path.endswith(POD)}
    deferred(operator(deferrable=True, workers=2), context)
    assert len(api.named("secrets")) == 1 and api.named("secrets") != first


# The second net


def test_secret_is_deleted_with_the_pod_without_airflow(
    operator: Any, context: Any, api: KubernetesApi, submits: Any
) -> None:
    submits(outcome=None)
    deferred(operator(deferrable=True), context)
    [pod] = [path for path in api.objects if path.endswith(POD)]
    api.answer("DELETE", pod, None)
    assert api.objects == {}


# What goes wrong


@pytest.mark.parametrize("deferrable", [False, True])
def test_missing_permission_for_secrets_fails_before_spark_starts(
    operator: Any, spark: StubSpark, context: Any, api: KubernetesApi, jobs: Jobs, deferrable: bool
) -> None:
    api.refuses = {("POST", "secrets"): 403}
    with pytest.raises(
        AirflowFailException, match=r"namespace 'ingest': .* give the connection's role the permission to create sec"
    ):
        operator(deferrable=deferrable).execute(context)
    assert spark.calls == [] and jobs.unfinished() == []


def test_api_server_error_fails_only_the_try(operator: Any, spark: StubSpark, context: Any, api: KubernetesApi) -> None:
    api.refuses = {("POST", "secrets"): 500}
    with pytest.raises(Exception, match="Kubernetes responded 500") as error:
        operator().execute(context)
    assert not isinstance(error.value, AirflowFailException)
    assert spark.calls == []


def test_missing_permission_for_pods_does_not_delay_the_job(
    operator: Any, context: Any, api: KubernetesApi, temporary: Path
) -> None:
    api.refuses = {("GET", "pods"): 403}
    assert operator().execute(context)["records_delivered"] == 7
    assert nothing_readable(api, temporary)


def test_failed_secret_deletion_is_logged_after_success(
    operator: Any, context: Any, api: KubernetesApi, caplog: pytest.LogCaptureFixture
) -> None:
    api.refuses = {("DELETE", "secrets"): 403}
    assert operator().execute(context)["records_delivered"] == 7
    assert "the settings of a job may remain" in caplog.text and "permission to delete secrets" in caplog.text


def test_missing_kubernetes_provider_error_names_the_extra(
    operator: Any, spark: StubSpark, context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "airflow.providers.cncf.kubernetes.hooks.kubernetes", None)
    monkeypatch.delattr("airflow.providers.apache.spark.hooks.spark_submit.kube_client")
    with pytest.raises(AirflowFailException, match=r"install airflow-provider-coordination\[kubernetes\]"):
        operator().execute(context)
    assert spark.calls == []


def test_submission_without_waiting_is_refused(operator: Any, spark: StubSpark, context: Any) -> None:
    conf = {"spark.kubernetes.submission.waitAppCompletion": "false"}
    with pytest.raises(AirflowFailException, match=r"must be true, or left out; .* deferrable=True"):
        operator(conf=conf).execute(context)
    assert spark.calls == []


def test_undefined_connection_is_named(operator: Any, context: Any) -> None:
    with pytest.raises(AirflowFailException, match="field 'kubernetes_conn_id' is 'elsewhere'"):
        operator(kubernetes_conn_id="elsewhere").execute(context)
