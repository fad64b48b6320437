"""A spec is checked against its source before it takes effect, by every way of submitting it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_coordination.airflow_names import AirflowException, TaskDeferred
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.operators.supervise import SuperviseOperator
from airflow_provider_coordination.operators.supervisor import SubmitSupervisorOperator
from airflow_provider_coordination.supervisor.store import SupervisionStore
from tests.airflow.api.test_ui_api import at
from tests.cli.conftest import Shell
from tests.support.clock import ManualClock

SPEC: dict[str, Any] = {
    "version": 1,
    "source": "clicks",
    "reads": {"kinesis": {"streams": "clicks"}},
    "writes": [{"parquet": {"path": "/data/lake/clicks"}}],
    "schema": "id STRING, at TIMESTAMP, amount DOUBLE",
    "landing_path": "/data/landing",
    "supervise": {"task_count": 2, "event_time": "at"},
}
ELSEWHERE = {"kinesis": {"streams": "clicks", "aws_conn_id": "aws_elsewhere"}}
AWAY = {"kinesis": {"streams": "clicks", "aws_conn_id": "aws_away"}}

Submit = Callable[..., str]
"""Submits a spec, with `connect` or without; returns what was said against it, nothing if it rules."""


@pytest.fixture
def store(coordination: SourceCoordinator) -> SupervisionStore:
    return SupervisionStore(coordination.view)


@pytest.fixture(autouse=True)
def account(kinesis_account: Any, kinesis_server: Any, connect: Any) -> None:
    """A stream `clicks` with a record, an account in another region that has none, and one that does not answer."""
    client = kinesis_account.client()
    client.create_stream(StreamName="clicks", ShardCount=2)
    kinesis_account.clock.sleep(60)
    record = {"id": "1", "at": "2026-01-01T00:00:00Z", "amount": 1.5}
    client.put_record(StreamName="clicks", PartitionKey="1", Data=json.dumps(record).encode())
    closed = "http://127.0.0.1:9"
    for name, region, url, key in (
        ("default", "us-east-1", kinesis_account.endpoint_url, kinesis_account.access_key_id),
        ("elsewhere", "us-west-2", kinesis_account.endpoint_url, kinesis_server.account().access_key_id),
        ("away", "us-east-1", closed, kinesis_account.access_key_id),
    ):
        extra = {"region_name": region, "endpoint_url": url, "config_kwargs": {"retries": {"total_max_attempts": 1}}}
        connect(f"aws_{name}", "aws", login=key, password="test", extra=extra)


@pytest.fixture
def by_command(store: SupervisionStore, store_url: str, tmp_path: Path) -> Submit:
    def submit(spec: Any, connect: bool = True) -> str:
        path = tmp_path / "submitted.json"
        path.write_text(json.dumps(spec))
        options = () if connect else ("--no-connect",)
        ended = Shell(store_url, ManualClock())("supervisor", "submit", str(path), *options)
        return ended.err if ended.exit_code else ""

    return submit


@pytest.fixture
def by_http(store: SupervisionStore, as_role: Any) -> Submit:
    def submit(spec: Any, connect: bool = True) -> str:
        body = {"reason": "on call", "spec": spec, "connect": connect}
        answer = as_role("op").post(at("clicks", "supervisor"), json=body)
        return "" if answer.status_code == 200 else str(answer.json()["detail"])

    return submit


@pytest.fixture
def by_task(store: SupervisionStore, context: Any) -> Submit:
    def submit(spec: Any, connect: bool = True) -> str:
        try:
            SubmitSupervisorOperator(task_id="submit", spec=spec, source="clicks", connect=connect).execute(context)
        except Exception as error:
            return str(error)
        return ""

    return submit


@pytest.fixture
def by_file(store: SupervisionStore, coordination: SourceCoordinator, tmp_path: Path) -> Submit:
    """What is wrong at first fails the task, what is wrong later is an error in the status."""
    coordination.view.suspensions.suspend(by="a person")  # so that no job is started
    context: Any = {
        "ti": SimpleNamespace(dag_id="supervise_clicks", run_id="run", task_id="supervise", map_index=-1, try_number=1),
        "dag_run": SimpleNamespace(start_date=datetime.now(UTC), run_after=None),
        "task_state_store": None,
    }

    def submit(spec: Any, connect: bool = True) -> str:
        path = tmp_path / "clicks.json"
        path.write_text(json.dumps(spec))
        try:
            SuperviseOperator(task_id="supervise", spec_file=str(path), connect=connect).execute(context)
        except TaskDeferred:
            stored = store.get()
            assert stored is not None
            of_file = (error.message for error in stored.supervision.health.errors if error.message.startswith("file"))
            return " ".join(of_file)
        except AirflowException as error:
            return str(error)
        raise AssertionError("it neither deferred nor failed")

    return submit


@pytest.fixture(
    params=["by_command", pytest.param("by_http", marks=pytest.mark.integration), "by_task", "by_file"],
)
def submit(request: pytest.FixtureRequest) -> Submit:
    by: Submit = request.getfixturevalue(request.param)
    return by


def supervise(**settings: Any) -> dict[str, Any]:
    return {"supervise": {**SPEC["supervise"], **settings}}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        pytest.param({"task_count": 4}, "unknown field 'task_count'; write 'supervise.task_count'", id="section"),
        pytest.param(supervise(task_duration="1h"), "'supervise.task_duration' must be", id="unit"),
        pytest.param({"reads": {"kinesys": {"streams": "clicks"}}}, "'kinesys'", id="type"),
        pytest.param(
            supervise(late_message_rejection_period="PT1H", late_message_rejection_start="2026-01-01T00:00:00Z"),
            "'late_message_rejection_period'",
            id="both late bounds",
        ),
        pytest.param(supervise(task_count=0), "to run no jobs, suspend the supervisor; got 0", id="task_count 0"),
        pytest.param(
            {"reads": ELSEWHERE},
            "field 'reads.kinesis': stream 'clicks' does not exist in region us-west-2",
            id="region",
        ),
        pytest.param(
            {"schema": "id BOOLEAN, at TIMESTAMP, amount DOUBLE"},
            "field 'schema' matches none of 1 records: column 'id' has type BOOLEAN, but the record has \"1\"; correct",
            id="schema",
        ),
        pytest.param(
            {"writes": [{"parquet": {"path": "/lake/a"}}, {"parquet": {"path": "/lake/a/", "name": "copy"}}]},
            "have the same location, '/lake/a",
            id="two sinks in one place",
        ),
    ],
)
def test_spec_with_a_common_mistake_keeps_the_previous_spec(
    submit: Submit, store: SupervisionStore, changed: dict[str, Any], said: str
) -> None:
    store.submit(SPEC)
    error = submit({**SPEC, **changed})
    assert said in error and "Traceback" not in error
    assert [version.spec for version in store.history()] == [SPEC]


def test_spec_that_fits_its_source_is_accepted(submit: Submit, store: SupervisionStore) -> None:
    assert submit(SPEC) == ""
    assert [version.spec for version in store.history()] == [SPEC]


def test_unreachable_source_is_supervised_only_on_request(submit: Submit, store: SupervisionStore) -> None:
    spec = {**SPEC, "reads": AWAY}
    assert "try again, or submit" in submit(spec)
    assert store.history() == []
    assert submit(spec, connect=False) == ""
    assert [version.spec for version in store.history()] == [spec]


def test_unreachable_source_allows_an_update_with_the_same_reads(submit: Submit, store: SupervisionStore) -> None:
    spec = {**SPEC, "reads": AWAY}
    store.submit(spec)
    assert submit({**spec, "schema": "id STRING, at TIMESTAMP"}) == ""
    assert len(store.history()) == 2
    assert submit({**spec, "reads": {"kinesis": {**AWAY["kinesis"], "streams": "orders"}}}) != ""
    assert len(store.history()) == 2


def test_change_that_jobs_ignore_needs_no_source(submit: Submit, store: SupervisionStore) -> None:
    spec = {**SPEC, "reads": {"kinesis": {"streams": "clicks", "aws_conn_id": "not_defined"}}}
    store.submit(spec)
    assert submit({**spec, **supervise(task_count=3)}) == ""
    assert len(store.history()) == 2
