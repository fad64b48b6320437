"""The Druid scenarios of `scenarios.md` about a supervisor, its states and its scaling, by number.

Druid's supervisor deals shards to groups of tasks, and gives each task its start and end positions. Here jobs lease
shards, whose progress says where to go on; so a job has no positions, and who reads what is not the supervisor's
business. There are no replicas: where a scenario is about them, the test is about the one job there is. Scenarios 39
to 52, about reading and writing records, are in `test_druid_tasks.py` and `test_kcl_reading.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.errors import ConfigurationError, SourceError
from airflow_provider_coordination.coordination.job_reports import ErrorEvent
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.hooks.connections import AirflowConnections
from airflow_provider_coordination.sources.kinds import SourceBatches
from airflow_provider_coordination.sources.kinesis.positions import LATEST, TRIM_HORIZON
from airflow_provider_coordination.sources.kinesis.progress import new_batch_id
from airflow_provider_coordination.sources.kinesis.shards import list_shards
from airflow_provider_coordination.sources.reset import Resets
from airflow_provider_coordination.sources.reset_targets import parse_target
from airflow_provider_coordination.supervisor.job_plan import RequestStop, StartJob
from airflow_provider_coordination.supervisor.operations import SupervisorVerbs
from airflow_provider_coordination.supervisor.settings import AutoScaleSettings
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.supervision import DetailedState, Health
from airflow_provider_coordination.supervisor.turn import TurnResult
from tests.supervisor.source_simulation import SourceSimulation, Stream, spec
from tests.support.synced import STREAM, SyncedSource, shard_id

HOUR = 3600
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class KinesisStream(Stream):
    """A stream of a Kinesis in this process, whose shards are synced as ever."""

    def __init__(self, simulation: SourceSimulation, synced: SyncedSource, initial_position: str) -> None:
        super().__init__(simulation, ())
        self.synced, self.initial_position = synced, initial_position

    def discover_partitions(self) -> None:
        self.synced.sync(initial_position=self.initial_position)

    def count(self) -> int | None:
        return sum(shard.is_open for shard in list_shards(self.synced.client, STREAM))


class SupervisedClicks(SourceSimulation):
    """The stream `clicks` with its supervisor."""

    def __init__(self, shards: int, initial_position: str = TRIM_HORIZON) -> None:
        self.synced = SyncedSource(shards)
        super().__init__(store=self.synced.store, clock=self.synced.clock, source="source", prefix=None)
        self.stream = KinesisStream(self, self.synced, initial_position)
        self.supervisor = self.another_supervisor(self.claimant)

    def read_shards(self) -> dict[str, str | None]:
        """Who reads each unfinished shard, by its number."""
        return {
            str(int(name.removeprefix("shardId-"))): lease.owner
            for name, lease in self.synced.leases().items()
            if lease.status is not PartitionStatus.COMPLETED
        }

    def checkpoint(self, shard: int) -> str:
        return self.synced.progress(shard_id(shard)).checkpoint

    def started(self, turn: TurnResult) -> list[str]:
        return [action.job.owner for action in turn.actions if isinstance(action, StartJob)]


def begun(simulation: SourceSimulation, **supervise: Any) -> SourceSimulation:
    simulation.submit(**supervise)
    simulation.turn()
    simulation.begin()
    simulation.supervisor.poll()
    return simulation


# Starting


def test_1_fresh_start_reads_every_shard_with_one_job() -> None:
    clicks = SupervisedClicks(2)
    clicks.submit(task_count=1)
    assert clicks.started(clicks.turn()) == ["job-1"]
    clicks.begin()
    assert clicks.read_shards() == {"0": "job-1", "1": "job-1"}
    assert [clicks.checkpoint(0), clicks.checkpoint(1)] == [TRIM_HORIZON, TRIM_HORIZON]
    order = clicks.cluster.job("job-1").request
    assert not order.spec.supervise.rejects  # no bounds of time; no end of positions, but one of time
    assert order.max_duration == timedelta(hours=1, minutes=30)


def test_2_two_jobs_read_one_shard_each() -> None:
    clicks = SupervisedClicks(2)
    begun(clicks, task_count=2)
    assert clicks.read_shards() == {"0": "job-1", "1": "job-2"}


def test_4_records_an_hour_before_job_start_are_late() -> None:
    """A job's replacement is planned again, with its own bounds: a recorded batch keeps the former bounds."""
    simulation = SourceSimulation("S0", "S1")
    begun(simulation, late_message_rejection_period="PT1H", event_time="at")
    order = simulation.running[0].request
    earliest = order.spec.supervise.rejection(order.job.planned_at).earliest
    assert earliest is not None
    now = simulation.clock.now()
    assert now - timedelta(minutes=61) < earliest < now - timedelta(minutes=59)


def test_6_late_message_period_and_instant_are_exclusive() -> None:
    both = {"late_message_rejection_period": "PT1H", "late_message_rejection_start": "2026-01-01T00:00:00Z"}
    with pytest.raises(ConfigurationError, match="late_message_rejection_start"):
        IngestionSpec.read(spec(**both, event_time="at"))


def test_7_stored_positions_take_precedence() -> None:
    clicks = SupervisedClicks(2, initial_position=LATEST)
    clicks.stream.discover_partitions()
    clicks.synced.start(0, 1)  # something of each was delivered long ago
    stored = [clicks.checkpoint(0), clicks.checkpoint(1)]
    assert LATEST not in stored
    clicks.synced.pass_time(hours=2)
    begun(clicks)
    assert clicks.read_shards() == {"0": "job-1", "1": "job-1"}
    assert [clicks.checkpoint(0), clicks.checkpoint(1)] == stored


# Jobs that end, are adopted, or hand over


def test_9_succeeded_job_is_replaced_alone() -> None:
    """No replica has to be stopped: there is none."""
    simulation = begun(SourceSimulation("S0", "S1"), task_count=2)
    simulation.clock.advance(30)
    simulation.rounds()
    simulation.running[0].end()
    turn = simulation.turn()
    assert [action.job.owner for action in turn.actions if isinstance(action, StartJob)] == ["job-3"]
    assert not any(isinstance(action, RequestStop) for action in turn.actions)
    assert simulation.owners == ["job-2", "job-3"]


def test_11_delivering_job_is_adopted_and_another_reads() -> None:
    simulation = begun(SourceSimulation("S0", "S1"), task_duration=HOUR)
    simulation.clock.advance(30)
    reader = simulation.running[0]
    reader.round(0)
    reader.report(S1=0, S0=20_000_000)
    simulation.jobs.request_stop("job-1", "somebody asked it")
    stored = simulation.store.acquire(simulation.claimant)
    ending = replace(stored.supervision.jobs[0], stop_requested_at=simulation.clock.now())
    simulation.store.save(stored, replace(stored.supervision, jobs=(ending,)))
    adopting = simulation.another_supervisor(
        simulation.later_claimant()
    )  # another process, which knows nothing but the store
    turn = adopting.turn(simulation.cluster)
    assert [action.job.owner for action in turn.actions if isinstance(action, StartJob)] == ["job-2"]
    assert {job.owner: job.is_ending for job in turn.supervision.jobs} == {"job-1": True, "job-2": False}
    latest = simulation.store.lag().latest
    assert latest is not None and latest.partitions == {"S0": 20_000_000, "S1": 0}
    assert simulation.state is DetailedState.RUNNING
    assert simulation.cluster.killed == []


def test_12_delivering_job_is_kept_until_done() -> None:
    clicks = SupervisedClicks(1)
    begun(clicks, task_duration=60)
    clicks.go_on(60, begin=False)
    old, successor = clicks.running
    successor.begin()
    clicks.turn()
    assert old.round(0) == [clicks.synced.leases()[shard_id(0)].partition_key]
    clicks.synced.split(0)
    for _ in range(12):
        clicks.clock.advance(10)
        old.round(0)
        successor.round(0)
        if clicks.supervisor.poll().needs_turn:
            clicks.turn()
    assert clicks.cluster.killed == [] and old in clicks.running and old.stop == f"{successor.owner} takes over"


def test_14_batch_ids_are_independent_of_the_job() -> None:
    simulation = SourceSimulation()
    assert len({simulation.cluster.new_owner() for _ in range(2)}) == 2
    one, other = (new_batch_id("clicks:1:shardId-0") for _ in range(2))
    assert one.startswith("shardId-0-") and one != other


# Resharding


def test_16_children_of_a_split_each_get_a_job() -> None:
    clicks = SupervisedClicks(1)
    begun(clicks, task_count=2)
    assert clicks.owners == ["job-1"]
    clicks.synced.split(0)
    for job in clicks.running:
        job.coordinator.leases.give_up_all()
    clicks.synced.work_off(0)
    clicks.synced.start(1, 2)
    checkpoints = [clicks.checkpoint(1), clicks.checkpoint(2)]
    clicks.go_on(60)
    assert clicks.read_shards() == {"1": "job-1", "2": "job-2"}
    assert [clicks.checkpoint(1), clicks.checkpoint(2)] == checkpoints
    assert clicks.synced.leases()[shard_id(0)].status is PartitionStatus.COMPLETED  # and stays, as EXPIRED does


def test_17_merge_leaves_one_job_and_ends_the_other() -> None:
    clicks = SupervisedClicks(2)
    begun(clicks, task_count=2)
    clicks.synced.merge(0, 1)
    for job in clicks.running:
        job.coordinator.leases.give_up_all()
    clicks.synced.work_off(0, 1)
    clicks.go_on(200)
    assert len(clicks.running) == 1
    assert clicks.read_shards() == {"2": clicks.owners[0]}
    assert clicks.checkpoint(2) == TRIM_HORIZON
    fresh = clicks.another_supervisor(clicks.later_claimant())  # one that begins now plans one job too
    assert fresh.poll().decision.wanted == 1


def test_19_later_shard_is_read_from_its_beginning() -> None:
    clicks = SupervisedClicks(1, initial_position=LATEST)
    begun(clicks)
    assert clicks.checkpoint(0) != TRIM_HORIZON
    clicks.synced.split(0)
    for job in clicks.running:
        job.coordinator.leases.give_up_all()
    clicks.synced.work_off(0)
    assert [clicks.checkpoint(1), clicks.checkpoint(2)] == [TRIM_HORIZON, TRIM_HORIZON]


def test_21_job_count_follows_shards_after_two_minutes() -> None:
    """Druid stops every group, as its groups are fixed. Here leases move by themselves, and the number follows."""
    simulation = SourceSimulation("S0", "S1", "S2", "S3")
    begun(simulation, task_count=4, stop_task_count=1)
    for job in simulation.running[1:]:
        job.coordinator.leases.give_up_all()
    simulation.complete("S1", "S2", "S3")
    simulation.supervisor.turn(simulation.cluster)
    simulation.clock.advance(60)
    for job in simulation.running:
        job.round(0)
    assert not simulation.supervisor.poll().needs_turn
    simulation.clock.advance(59)
    for job in simulation.running:
        job.round(0)
    assert not simulation.supervisor.poll().needs_turn
    simulation.clock.advance(2)
    turn = simulation.turn()
    assert sum(isinstance(action, RequestStop) for action in turn.actions) == 3


def test_22_stop_limit_of_one_hands_over_the_oldest_job() -> None:
    simulation = SourceSimulation("S0", "S1", "S2")
    simulation.submit(task_count=3, task_duration=HOUR, stop_task_count=1)
    simulation.turn()
    for owner, at in (("job-2", 0), ("job-1", 1), ("job-3", 2)):
        simulation.clock.advance(min(at, 1))
        simulation.cluster.job(owner).begin()
        simulation.supervisor.poll()
    for _ in range(HOUR // 20):
        simulation.clock.advance(20)
        for job in simulation.running:
            job.round(0)
    turn = simulation.turn()
    [start] = [action for action in turn.actions if isinstance(action, StartJob)]
    assert start.job.replaces == "job-2"


# Resets


def test_24_positions_of_unread_shards_are_taken_as_given() -> None:
    clicks = SupervisedClicks(2)
    clicks.submit()
    clicks.stream.discover_partitions()
    keys = [lease.partition_key for lease in clicks.synced.leases().values()]
    resets = Resets(AcknowledgmentSets(clicks.coordinator("ann"), SourceBatches()), by="ann")
    for key, position in zip(keys, ("10", "8"), strict=True):
        plan = resets.plan_partitions(resets.find_partitions([key]), parse_target(position, clicks.clock.now()))
        assert not any(isinstance(became, Exception) for _, became in resets.apply(plan, only_if_unchanged=False))
    assert [clicks.checkpoint(0), clicks.checkpoint(1)] == ["10", "8"]


def test_26_reset_of_another_stream_changes_nothing() -> None:
    clicks = SupervisedClicks(1)
    clicks.submit()
    clicks.stream.discover_partitions()
    key = next(iter(clicks.synced.leases().values())).partition_key
    verbs = SupervisorVerbs(clicks.coordinator("ann"), by="ann")
    with pytest.raises(ConfigurationError, match="orders"):
        verbs.reset(positions={key: "10", key.replace("clicks", "orders"): "8"}, connections=AirflowConnections())
    assert clicks.checkpoint(0) == TRIM_HORIZON


# Scaling


def test_27_scale_out_within_a_second_respects_the_maximum() -> None:
    simulation = SourceSimulation("S0", "S1", "S2")
    scaling = {
        "task_count_min": 1, "task_count_max": 2, "scale_out_step": 2, "scale_out_threshold": 0,
        "scale_in_threshold": 0, "trigger_scale_out_fraction": 0, "lag_collection_interval": 1,
        "lag_collection_range": 1, "scale_action_start_delay": 0, "scale_action_period": 1,
    }  # fmt: skip
    begun(simulation, task_count=1, auto_scale=scaling)
    assert len(simulation.running) == 1
    simulation.stream.lag_ms = {"S0": 0, "S1": 0, "S2": 0}
    simulation.go_on(3, every=1)
    assert simulation.supervision().task_count == 2
    assert len(simulation.running) == 2
    [change, *_] = [each for each in simulation.supervision().task_count_changes if not each.is_refusal]
    assert (change.before, change.after) == (1, 2)
    assert "have a lag of at least 0 s" in change.reason


def test_29_scaling_is_optional_and_requires_its_bounds() -> None:
    """Druid passes an empty configuration over. Here it is said what is missing, as it was meant to do something."""
    assert IngestionSpec.read(spec()).supervise.auto_scale is None
    with pytest.raises(ConfigurationError, match="task_count_m"):
        IngestionSpec.read(spec(auto_scale={}))
    AutoScaleSettings(task_count_min=1, task_count_max=1).check()


# States: three failures make it unhealthy, three successes healthy, ten errors are kept


def run(health: Health, *, failing: bool = False, is_stream_error: bool = True, failed_job: bool = False) -> Health:
    """Return the health after one run."""
    if failed_job:
        health = health.job_ended(succeeded=False)
    if failing:
        event = ErrorEvent(at=NOON, error_class="Boom", message="no", is_stream_error=is_stream_error)
        health = health.with_error(event)
    return health.run_ended(succeeded=not failing, steady=DetailedState.RUNNING)


def test_31_third_failure_loses_contact_and_records_the_cause() -> None:
    simulation = begun(SourceSimulation("S0"))
    error = SourceError("the stream does not answer")
    error.__cause__ = ConnectionResetError("reset by peer")
    simulation.stream.error = error
    states = []
    for _ in range(3):
        simulation.clock.advance(30)
        simulation.rounds()
        simulation.supervisor.poll()
        states.append(simulation.state)
    assert states == [DetailedState.RUNNING, DetailedState.RUNNING, DetailedState.LOST_CONTACT_WITH_STREAM]
    assert [event.error_class for event in simulation.health.errors] == ["ConnectionResetError"] * 3


def test_32_stream_that_never_responded_is_unable_to_connect() -> None:
    health = Health()
    for _ in range(3):
        health = run(health, failing=True)
    assert health.state is DetailedState.UNABLE_TO_CONNECT_TO_STREAM


def test_34_three_failed_jobs_are_unhealthy_despite_clean_runs() -> None:
    """Druid keeps no event of a failed task. Here why a job failed is the first thing that a person wants to know."""
    simulation = begun(SourceSimulation("S0"), period=1)
    for _ in range(3):
        assert simulation.state is DetailedState.RUNNING
        simulation.running[0].end(1, "MemoryError: no more")
        simulation.turn()
        simulation.clock.advance(60)
        simulation.turn()
        simulation.begin()
    assert simulation.state is DetailedState.UNHEALTHY_TASKS
    assert simulation.health.failed_runs == 0
    assert [event.error_class for event in simulation.health.errors] == ["MemoryError"] * 3


def test_36_three_clean_runs_restore_health_and_keep_errors() -> None:
    health = Health()
    for _ in range(3):
        health = run(health, failing=True, is_stream_error=False)
    seen = []
    for _ in range(3):
        seen.append(health.state)
        health = run(health)
    assert seen == [DetailedState.UNHEALTHY_SUPERVISOR] * 3
    assert health.state is DetailedState.RUNNING
    assert len(health.errors) == 3


def test_37_supervisor_failures_take_precedence() -> None:
    health = Health()
    for _ in range(3):
        health = run(health, failing=True, is_stream_error=False, failed_job=True)
    assert health.state is DetailedState.UNHEALTHY_SUPERVISOR
    assert (health.failed_runs, health.failed_jobs) == (3, 3)


# Lag


def test_44_lag_comes_from_jobs_without_extra_requests() -> None:
    simulation = SourceSimulation("S0", "S1")
    asked: list[str] = []
    answer: Callable[[Partition], int | None] = simulation.stream.lag

    def lag(partition: Partition) -> int | None:
        asked.append(partition.partition_key)
        return answer(partition)

    simulation.stream.lag = lag  # type: ignore[method-assign]
    begun(simulation)
    asked.clear()
    simulation.running[0].report(S0=100, S1=0)
    simulation.clock.advance(30)
    simulation.rounds()
    simulation.supervisor.poll()
    latest = simulation.store.lag().latest
    assert latest is not None and latest.partitions == {"S0": 100, "S1": 0}
    assert asked == []
