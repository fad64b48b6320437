"""Complete intervals as events of an asset, by a whole Airflow in this process, and the sensor that waits for one."""

from __future__ import annotations

import json
from collections import UserDict
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, Asset
from airflow.sdk.exceptions import TaskDeferred
from airflow.sdk.execution_time.context import OutletEventAccessor

from airflow_provider_coordination.airflow_names import AirflowFailException, AirflowSkipException
from airflow_provider_coordination.coordination.administration import Administration
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.intervals import (
    TALLY_FAMILY,
    Counts,
    Delivered,
    IntervalLedger,
    Standing,
)
from airflow_provider_coordination.coordination.partition import format_instant, new_partition
from airflow_provider_coordination.operators.interval_events import IntervalCompleteOperator
from airflow_provider_coordination.sensors.intervals import IntervalCompleteSensor
from airflow_provider_coordination.sources.kinesis.progress import SETTLING, ShardProgress
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.writes import ParquetDataset
from airflow_provider_coordination.task_groups.ingestion import coordinated_ingestion, find_intervals
from airflow_provider_coordination.task_groups.supervised import supervised_ingestion
from tests.airflow.conftest import run_dag

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
KEY = "clicks:1767268800:shardId-000000000000"
HOURS, CORRECTIONS = Asset("clicks_hours"), Asset("clicks_corrections")


class ByAsset(UserDict[Any, Any]):
    """What a task has for each asset, by its name."""

    def __getitem__(self, asset: Asset) -> Any:
        return self.data.setdefault(asset.name, [])


class Instances:
    """Task instances of one DAG, and the events that those which succeeded have left."""

    def __init__(self) -> None:
        self.states: dict[str, str] = {}
        self.events: list[SimpleNamespace] = []
        self.keys: list[str] = []

    def context(self, run_id: str) -> dict[str, Any]:
        self.states[run_id] = "running"
        states = self.states

        def get_task_states(*, run_ids: list[str], **_: Any) -> dict[str, dict[str, str]]:
            return {run: {"report": states[run]} for run in run_ids if run in states}

        ti = SimpleNamespace(
            dag_id="dag", run_id=run_id, task_id="report", map_index=-1, try_number=1, get_task_states=get_task_states
        )
        event = SimpleNamespace(extra={}, add_partitions=self.keys.append)
        return {"ti": ti, "outlet_events": ByAsset({HOURS.name: event, CORRECTIONS.name: event}),
                "inlet_events": ByAsset({HOURS.name: self.events, CORRECTIONS.name: self.events})}  # fmt: skip

    def report(self, run_id: str, *, dies: bool = False, **arguments: Any) -> dict[str, Any] | None:
        """Run a task instance; return what it reports, None if it is skipped."""
        context = self.context(run_id)
        given: dict[str, Any] = {"asset": HOURS, "source": "clicks", "waits": False, **arguments}
        try:
            extra = IntervalCompleteOperator(task_id="report", **given).execute(context)
        except AirflowSkipException:
            self.states[run_id] = "skipped"
            return None
        if dies:
            self.states[run_id] = "failed"
        else:
            self.states[run_id] = "success"
            self.events.append(SimpleNamespace(extra=extra))
        return extra


@pytest.fixture
def instances() -> Instances:
    return Instances()


@pytest.fixture
def clicks(coordination: SourceCoordinator) -> SourceCoordinator:
    """A source of one shard, whose hours are counted from noon on."""
    progress = ShardProgress(
        stream="clicks", shard_id="shardId-000000000000", parent_shard_ids=(), starting_hash_key="0",
        ending_hash_key=str(2**128 - 1), delivered_until=NOON,
    )  # fmt: skip
    coordination.create_partitions({KEY: progress.to_mapping()})
    IntervalLedger(coordination.view).begin(HOUR, NOON)
    return coordination


def deliver(clicks: SourceCoordinator, until: datetime) -> None:
    clicks.leases.acquire(1)
    progress = ShardProgress.from_mapping(clicks.leases.leased(KEY).progress).quiet_until(until + SETTLING)
    clicks.leases.save_progress(KEY, progress.to_mapping())


def tally(clicks: SourceCoordinator, start: datetime, records: int, **facts: int) -> None:
    counts = Counts(start=start, records=records, batches=1, **facts)
    family, key = clicks.view.family(TALLY_FAMILY), f"{start.isoformat()}-{records}"
    clicks.store.create([new_partition(family, key, start).with_progress(counts.to_mapping())])


# The task


def test_complete_hour_is_reported_with_its_counts(clicks: SourceCoordinator, instances: Instances) -> None:
    tally(clicks, NOON, 7, bytes=70, late=1, dead_letters=2)
    deliver(clicks, NOON + HOUR)
    assert instances.report("a") == {
        "source": "clicks",
        "interval_start": "2026-01-31T12:00:00.000000Z",
        "interval_end": "2026-01-31T13:00:00.000000Z",
        "records": 7,
        "bytes": 70,
        "batches": 1,
        "late": 1,
        "dead_letters": 2,
        "lost": [],
        "is_reread": False,
        "reported_by": json.dumps(["dag", "a", "report", -1]),
    }
    assert instances.keys == ["2026-01-31T12:00:00"]


def test_hour_that_is_not_complete_is_not_reported(clicks: SourceCoordinator, instances: Instances) -> None:
    deliver(clicks, NOON + HOUR - timedelta(milliseconds=1))
    assert instances.report("a") is None


def test_lateness_delays_the_report(clicks: SourceCoordinator, instances: Instances) -> None:
    deliver(clicks, NOON + HOUR)
    assert instances.report("a", lateness=600) is None
    deliver(clicks, NOON + HOUR + timedelta(minutes=10))
    assert instances.report("b", lateness=600) is not None


def test_hours_are_reported_in_order_although_a_task_dies(clicks: SourceCoordinator, instances: Instances) -> None:
    deliver(clicks, NOON + 3 * HOUR)
    reported = [instances.report("a"), instances.report("b", dies=True), instances.report("c"), instances.report("b")]
    starts = [each["interval_start"][11:13] for each in reported if each is not None]
    assert starts == ["12", "13", "13", "14"]
    assert [event.extra["interval_start"][11:13] for event in instances.events] == ["12", "13", "14"]
    assert instances.report("d") is None


def test_cleared_task_reports_nothing_again(clicks: SourceCoordinator, instances: Instances) -> None:
    deliver(clicks, NOON + HOUR)
    assert instances.report("a") is not None
    assert instances.report("a") is None


def test_hour_of_a_running_task_is_left_to_it(clicks: SourceCoordinator, instances: Instances) -> None:
    deliver(clicks, NOON + 2 * HOUR)
    instances.report("a", dies=True)
    instances.states["a"] = "running"
    assert instances.report("b") is None


def test_lost_range_is_named(clicks: SourceCoordinator, instances: Instances) -> None:
    deliver(clicks, NOON + HOUR)
    progress = ShardProgress.from_mapping(clicks.leases.leased(KEY).progress)
    gap = progress.gap_to_end("trimmed", until=NOON + HOUR / 2, found_at=NOON)
    gap = type(gap)(**{**vars(gap), "since": NOON, "before": "9"})
    clicks.leases.save_progress(KEY, progress.with_gap(gap).to_mapping())
    extra = instances.report("a")
    assert extra is not None and extra["lost"] == [f"{KEY}: {gap}"]


def test_late_records_are_reported_as_a_correction(clicks: SourceCoordinator, instances: Instances) -> None:
    deliver(clicks, NOON + HOUR)
    instances.report("a")
    assert instances.report("b", asset=CORRECTIONS, corrections=True) is None
    tally(clicks, NOON, 3)
    extra = instances.report("c", asset=CORRECTIONS, corrections=True)
    assert extra is not None and (extra["interval_start"], extra["records"]) == ("2026-01-31T12:00:00.000000Z", 3)
    assert instances.report("d", asset=CORRECTIONS, corrections=True) is None


def test_task_waits_in_the_triggerer_for_the_hour(clicks: SourceCoordinator, instances: Instances) -> None:
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    IntervalLedger(clicks.view).forget()
    IntervalLedger(clicks.view).begin(HOUR, now)
    with pytest.raises(TaskDeferred) as deferred:
        instances.report("a", waits=True)
    until = deferred.value.trigger.until
    assert until is not None and until >= format_instant(now + HOUR)


def test_task_without_a_ledger_looks_again_later(coordination: SourceCoordinator, instances: Instances) -> None:
    with pytest.raises(TaskDeferred) as deferred:
        instances.report("a", waits=True)
    assert deferred.value.trigger.until > format_instant(datetime.now(UTC))


def test_task_needs_a_source_or_a_spec_file() -> None:
    with pytest.raises(ValueError, match="either 'source' or 'spec_file'"):
        IntervalCompleteOperator(task_id="report", asset=HOURS)


# A whole Airflow


def events_of(asset: Asset) -> list[tuple[str, str | None]]:
    """Return the start and the partition key of each event that Airflow has of an asset, the oldest first."""
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        query = select(AssetEvent).join(AssetModel, AssetModel.id == AssetEvent.asset_id)
        found = session.scalars(query.where(AssetModel.name == asset.name).order_by(AssetEvent.id)).all()
        return [(each.extra["interval_start"][:13], getattr(each, "partition_key", None)) for each in found]


@pytest.mark.usefixtures("database")
def test_airflow_has_one_event_for_each_hour(clicks: SourceCoordinator) -> None:
    hours = Asset("clicks_hours_of_runs")
    with DAG("report_hours", schedule=None) as dag:
        arguments: dict[str, Any] = {"asset": hours, "source": "clicks", "waits": False}
        IntervalCompleteOperator.partial(task_id="report", **arguments).expand(number=[0, 1, 2])
    deliver(clicks, NOON + 2 * HOUR)
    assert run_dag(dag).state == "success"
    deliver(clicks, NOON + 3 * HOUR)
    assert run_dag(dag).state == "success"
    deliver(clicks, NOON + 4 * HOUR)
    gone = json.dumps(["report_hours", "gone", "report", 0])
    taken = IntervalLedger(clicks.view).take(
        gone, lambda _: Standing.REPORTED, Delivered(NOON + 4 * HOUR, is_finished=False), lambda *_: ()
    )
    assert taken is not None and run_dag(dag).state == "success", "its tasks look for an event of what is taken"
    expected = [f"2026-01-31T{hour}" for hour in (12, 13, 14, 15)]
    found = events_of(hours)
    assert [start for start, _ in found] == expected
    if hasattr(OutletEventAccessor, "add_partitions"):
        assert [key for _, key in found] == [f"{start}:00:00" for start in expected]


# Task groups


def a_group(**arguments: Any) -> DAG:
    ingestion: dict[str, Any] = {"reads": KinesisStreams("clicks"), "writes": ParquetDataset("/out"), "completes": HOUR}
    ingestion |= {name: arguments.pop(name) for name in ("completes",) if name in arguments}
    with DAG("clicks_group", schedule=None) as dag:
        coordinated_ingestion(Ingestion(**ingestion), **arguments)
    return dag


def test_group_reports_after_its_jobs() -> None:
    dag = a_group(completed=HOURS, corrected=CORRECTIONS)
    assert dag.get_task("ingestion.ingest").downstream_task_ids >= {"ingestion.find_intervals"}
    assert dag.get_task("ingestion.find_intervals").downstream_task_ids >= {"ingestion.interval_complete"}
    assert "ingestion.interval_corrected" in dag.get_task("ingestion.interval_complete").downstream_task_ids
    assert {"ingestion.interval_complete", "ingestion.interval_corrected"} <= (
        dag.get_task("ingestion.done").upstream_task_ids
    )


def test_group_without_an_asset_reports_nothing() -> None:
    assert "ingestion.interval_complete" not in a_group().task_ids


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"completed": HOURS, "completes": None}, "set its 'completes'"),
        ({"corrected": CORRECTIONS}, "'corrected' is given without 'completed'"),
    ],
)
def test_group_refuses_contradicting_arguments(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        a_group(**arguments)


def test_group_finds_how_many_hours_are_complete(clicks: SourceCoordinator) -> None:
    deliver(clicks, NOON + 3 * HOUR)
    assert find_intervals("clicks", coordination_conn_id="coordination_default") == [0, 1, 2]


def test_group_finds_the_hours_of_a_new_source(clicks: SourceCoordinator) -> None:
    IntervalLedger(clicks.view).forget()
    IntervalLedger(clicks.view).begin(HOUR, None)
    tally(clicks, NOON - 2 * HOUR, 5)
    deliver(clicks, NOON + HOUR / 2)
    assert find_intervals("clicks", coordination_conn_id="coordination_default") == [0, 1]


def test_supervised_source_has_a_dag_that_reports(tmp_path: Any) -> None:
    supervise, intervals = supervised_ingestion(source="clicks", completed=HOURS, corrected=CORRECTIONS)
    task = intervals.get_task("interval_complete")
    assert (supervise.dag_id, intervals.dag_id, intervals.max_active_runs) == (
        "supervise_clicks", "intervals_clicks", 1,
    )  # fmt: skip
    assert (task.source, task.waits, task.outlets) == ("clicks", True, [HOURS])
    assert intervals.get_task("interval_corrected").waits is False
    with pytest.raises(ValueError, match="'corrected' is given without 'completed'"):
        supervised_ingestion(source="clicks", corrected=CORRECTIONS)


# The sensor


def poke(context: Any, **arguments: Any) -> Any:
    given = {"source": "clicks", "interval_end": NOON + HOUR, **arguments}
    return IntervalCompleteSensor(task_id="wait", **given).poke(context)


def test_sensor_waits_for_the_end_of_the_interval(clicks: SourceCoordinator, context: Any) -> None:
    assert not poke(context).is_done
    deliver(clicks, NOON + HOUR)
    found = poke(context)
    assert found.is_done
    assert found.xcom_value == {
        "source": "clicks",
        "interval_end": "2026-01-31T13:00:00.000000Z",
        "watermark": "2026-01-31T13:00:00.000000Z",
    }
    assert not poke(context, lateness=1).is_done


def test_sensor_waits_for_a_source_without_partitions(coordination: SourceCoordinator, context: Any) -> None:
    assert not poke(context).is_done


def test_sensor_fails_if_a_partition_is_parked(clicks: SourceCoordinator, context: Any) -> None:
    partition = clicks.view.get(KEY)
    assert partition is not None
    Administration(clicks.store, clicks.view.source_identifier, clicks.clock).park(KEY, expected=partition)
    with pytest.raises(AirflowFailException, match=f"partition {KEY} is parked"):
        poke(context)
    assert poke(context, interval_end=NOON - HOUR).is_done


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"interval_end": ""}, "field 'interval_end' is empty"),
        ({"interval_end": "noon"}, "field 'interval_end' must be an instant"),
        ({"lateness": "a while"}, "field 'lateness' must be a number"),
    ],
)
def test_sensor_refuses_a_wrong_interval(
    clicks: SourceCoordinator, context: Any, arguments: dict[str, Any], problem: str
) -> None:
    with pytest.raises(AirflowFailException, match=problem):
        poke(context, **arguments)


def test_deferred_sensor_waits_for_the_watermark(clicks: SourceCoordinator, context: Any) -> None:
    sensor = IntervalCompleteSensor(
        task_id="wait", source="clicks", interval_end=NOON + HOUR, lateness=60, deferrable=True, timeout=60
    )
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute(context)
    assert deferred.value.trigger.until == "2026-01-31T13:01:00.000000Z"
