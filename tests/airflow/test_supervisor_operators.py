"""The verbs of a supervisor as tasks: each takes effect once, also after a retry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.airflow_names import AirflowFailException
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError, SupervisionError
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.operators.supervisor import (
    HandOverSupervisorOperator,
    ListSupervisorsOperator,
    ResetSupervisorOperator,
    ResumeSupervisorOperator,
    SubmitSupervisorOperator,
    SupervisorHistoryOperator,
    SupervisorParseErrorsOperator,
    SupervisorStatusOperator,
    SuspendSupervisorOperator,
    TerminateSupervisorOperator,
)
from airflow_provider_coordination.supervisor.store import SupervisionStore
from tests.support.split_stream import SplitStream

SPEC: dict[str, Any] = {
    "version": 1,
    "source": "clicks",
    "reads": {"s3": {"paths": "s3://clicks/in", "format": "json", "aws_conn_id": None, "region_name": "eu-west-1"}},
    "writes": [{"parquet": {"path": "/data/lake/clicks"}}],
}


def submit(context: Any, **spec: Any) -> Any:
    return SubmitSupervisorOperator(task_id="submit", spec={**SPEC, **spec}).execute(context)


def test_spec_is_submitted_once_in_the_name_of_the_task(
    coordination: SourceCoordinator, context: Any, tmp_path: Path
) -> None:
    assert submit(context)["version"] == 1
    path = tmp_path / "clicks.json"
    path.write_text(json.dumps(SPEC))
    again = SubmitSupervisorOperator(task_id="submit", spec=str(path)).execute(context)
    assert (again["version"], again["change"]) == (1, "NONE")
    [version] = SupervisionStore(coordination.view).history()
    ti = context["ti"]
    assert (version.by, version.reason) == (f"{ti.dag_id}.{ti.task_id}", f"run {ti.run_id}")


def test_wrong_spec_is_refused_when_parsed(context: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"'supervise.task_count' must be from 1"):
        submit(context, supervise={"task_count": 0})
    inside = {"writes": [{"parquet": {"path": "/raw/lake"}}], "landing_path": "/raw"}
    with pytest.raises(ConfigurationError, match=r"^spec: sink 'main' of field 'writes' is in '/raw/lake', inside"):
        submit(context, **inside)


def test_replaced_spec_version_fails_without_a_retry(coordination: SourceCoordinator, context: Any) -> None:
    submit(context)
    with pytest.raises(AirflowFailException, match="version 7 of the spec, which this one was made from, was replaced"):
        SubmitSupervisorOperator(task_id="submit", spec={**SPEC, "schema": "id STRING"}, replacing=7).execute(context)


@pytest.mark.parametrize(
    ("verb", "field"),
    [(SuspendSupervisorOperator, "suspended"), (TerminateSupervisorOperator, "terminated")],
)
def test_verb_is_done_once_and_a_retry_changes_nothing(
    coordination: SourceCoordinator, context: Any, verb: type[Any], field: str
) -> None:
    submit(context)
    operator = verb(task_id="verb", source="clicks", reason="the sink is full")
    assert operator.execute(context) == {"done": ["clicks"], "unchanged": {}}
    status = SupervisorStatusOperator(task_id="status", source="clicks").execute(context)
    assert "the sink is full" in json.dumps(status[field])
    assert operator.execute(context) == {"done": [], "unchanged": {"clicks": "already in this state"}}


def test_verb_on_all_supervisors_reports_each_outcome(coordination: SourceCoordinator, context: Any) -> None:
    submit(context)
    submit(context, source="orders")
    SuspendSupervisorOperator(task_id="suspend", source="clicks").execute(context)
    done = SuspendSupervisorOperator(task_id="suspend", all_sources=True).execute(context)
    assert done["done"] == ["orders"] and "is already suspended by" in done["unchanged"]["clicks"]
    assert ResumeSupervisorOperator(task_id="resume", all_sources=True).execute(context)["done"] == ["clicks", "orders"]


@pytest.mark.parametrize("given", [{}, {"source": "clicks", "all_sources": True}])
def test_source_and_all_sources_are_exclusive(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="give either 'source', or 'all_sources=True'"):
        SuspendSupervisorOperator(task_id="suspend", **given)


@pytest.mark.parametrize(
    "verb",
    [
        SuspendSupervisorOperator,
        ResumeSupervisorOperator,
        TerminateSupervisorOperator,
        ResetSupervisorOperator,
        HandOverSupervisorOperator,
        SupervisorStatusOperator,
        SupervisorHistoryOperator,
        SupervisorParseErrorsOperator,
    ],
)
def test_source_without_a_supervisor_fails_without_a_retry(
    coordination: SourceCoordinator, context: Any, verb: type[Any]
) -> None:
    with pytest.raises(AirflowFailException, match="source 'clicks' has no supervisor; check the name"):
        verb(task_id="verb", source="clicks").execute(context)


@pytest.mark.parametrize("verb", [SuspendSupervisorOperator, ResumeSupervisorOperator, ResetSupervisorOperator])
def test_terminated_supervisor_fails_the_task_with_a_remedy(
    coordination: SourceCoordinator, context: Any, verb: type[Any]
) -> None:
    submit(context)
    TerminateSupervisorOperator(task_id="terminate", source="clicks").execute(context)
    with pytest.raises(AirflowFailException, match=r"was terminated at .*; submit a spec to start it again"):
        verb(task_id="verb", source="clicks").execute(context)


def test_each_partition_is_reset_to_its_position(coordination: SourceCoordinator, context: Any) -> None:
    submit(context)
    coordination.create_partitions({"a": {}, "b": {}})
    done = ResetSupervisorOperator(task_id="reset", source="clicks", positions={"a": "earliest"}).execute(context)
    assert (done["reset"], done["left"]) == (1, 0)
    assert ResetSupervisorOperator(task_id="reset", source="clicks").execute(context)["reset"] == 2
    with pytest.raises(AirflowFailException, match="has no partition 'x'"):
        ResetSupervisorOperator(task_id="reset", source="clicks", positions={"x": "earliest"}).execute(context)


def test_suspended_supervisor_forgets(coordination: SourceCoordinator, context: Any) -> None:
    submit(context)
    coordination.create_partitions({"a": {}, "b": {}})
    forgotten = ResetSupervisorOperator(task_id="reset", source="clicks", forget=True)
    with pytest.raises(AirflowFailException, match="cannot forget what it has read while jobs may work on it"):
        forgotten.execute(context)
    SuspendSupervisorOperator(task_id="suspend", source="clicks").execute(context)
    assert forgotten.execute(context)["removed"] == 2
    with pytest.raises(ValueError, match="'forget' removes the partitions of a single source"):
        ResetSupervisorOperator(task_id="reset", source="clicks", forget=True, to="latest")


def test_handover_is_requested(coordination: SourceCoordinator, context: Any) -> None:
    submit(context)
    submit(context, source="orders")
    done = HandOverSupervisorOperator(task_id="handover", source="clicks").execute(context)
    assert done == {"done": ["clicks"], "unchanged": {}}
    every = HandOverSupervisorOperator(task_id="handover", all_sources=True).execute(context)
    assert every == {"done": ["clicks", "orders"], "unchanged": {}}
    stored = SupervisionStore(coordination.view).get()
    assert stored is not None and stored.supervision.handover_requested_at is not None


def test_every_source_is_reset(coordination: SourceCoordinator, context: Any) -> None:
    submit(context)
    submit(context, source="orders")
    coordination.create_partitions({"a": {}})
    TerminateSupervisorOperator(task_id="terminate", source="orders").execute(context)
    done = ResetSupervisorOperator(task_id="reset", all_sources=True).execute(context)
    assert done["done"] == ["clicks"] and "it was terminated at" in done["unchanged"]["orders"]
    with pytest.raises(CoordinationError, match="the operation failed for 1 of 2 supervisors: 'clicks': "):
        ResetSupervisorOperator(task_id="reset", all_sources=True, to="42").execute(context)
    with pytest.raises(ValueError, match="'positions' are those of a single source"):
        ResetSupervisorOperator(task_id="reset", all_sources=True, positions={"a": "earliest"})


def test_list_begins_with_unhealthy_supervisors(coordination: SourceCoordinator, context: Any) -> None:
    submit(context)
    submit(context, source="orders")
    kept = SupervisionStore(CoordinationHook().view("orders"))
    stored = kept.get()
    assert stored is not None
    mapping = stored.supervision.to_mapping()
    mapping["health"]["state"] = "UNHEALTHY_TASKS"
    coordination.store.transact(update=[stored.item.with_progress(mapping)])
    found = ListSupervisorsOperator(task_id="list").execute(context)
    assert [(each["source"], each["healthy"]) for each in found] == [("orders", False), ("clicks", True)]


def test_versions_and_bad_records_are_read(coordination: SourceCoordinator, context: Any) -> None:
    submit(context)
    submit(context, schema="id STRING")
    found = SupervisorHistoryOperator(task_id="history", source="clicks", limit=1).execute(context)
    assert [(each["version"], each["change"]) for each in found] == [(2, "JOBS")]
    found = SupervisorParseErrorsOperator(task_id="errors", source="clicks").execute(context)
    assert found == {"source": "clicks", "count": 0, "dead_letter_path": None, "errors": []}


def test_unhealthy_supervisor_fails_a_task_that_requires_health(coordination: SourceCoordinator, context: Any) -> None:
    submit(context)
    operator = SupervisorStatusOperator(task_id="status", source="clicks", must_be_healthy=True)
    assert operator.execute(context)["state"] == "PENDING"
    stored = SupervisionStore(coordination.view).get()
    assert stored is not None
    mapping = stored.supervision.to_mapping()
    mapping["health"]["state"] = "UNHEALTHY_TASKS"
    coordination.store.transact(update=[stored.item.with_progress(mapping)])
    with pytest.raises(SupervisionError, match="is UNHEALTHY_TASKS"):
        operator.execute(context)


@pytest.mark.integration
def test_stream_is_reset_parents_before_children(stream: SplitStream, context: Any) -> None:
    submit(context, reads={"kinesis": {"streams": "s"}})
    done = ResetSupervisorOperator(task_id="reset", source="clicks").execute(context)
    assert (done["reset"], done["removed"]) == (1, 2)
    assert stream.coordination.view.count_by_status()[PartitionStatus.UNASSIGNED] == 1
    with pytest.raises(AirflowFailException, match="belongs to one partition"):
        ResetSupervisorOperator(task_id="reset", source="clicks", to="42").execute(context)


@pytest.mark.integration
def test_shard_is_reset_to_a_position_within_it(stream: SplitStream, context: Any) -> None:
    submit(context, reads={"kinesis": {"streams": "s"}})
    shard = stream.shards[1]
    number = str(int(shard.starting_sequence_number) + 5)
    operator = ResetSupervisorOperator(task_id="reset", source="clicks", positions={shard.shard_id: number})
    assert operator.execute(context)["reset"] == 1
    assert stream.progress(stream.keys[1]).checkpoint == number
    with pytest.raises(AirflowFailException, match="'1' is not in shard"):
        ResetSupervisorOperator(task_id="reset", source="clicks", positions={shard.shard_id: "1"}).execute(context)
