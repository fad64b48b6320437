"""A supervisor at work over a real store: what it starts, ends, notes and survives."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from airflow_provider_coordination.coordination.error_events import ErrorEvent
from airflow_provider_coordination.coordination.errors import SourceError, SupervisedElsewhereError
from airflow_provider_coordination.coordination.jobs import JobState
from airflow_provider_coordination.sources.kinesis.errors import AccessDeniedError, StreamNotFoundError
from airflow_provider_coordination.spark.outcome import EXIT_LOST_WORK
from airflow_provider_coordination.supervisor.actions import EndJob, EndKind, StartJob
from airflow_provider_coordination.supervisor.states import DetailedState
from tests.supervisor.world import START_TIMEOUT, World

HOUR = 3600
TASK_DURATION = 600
COMPLETION_TIMEOUT = 120
TIMES = {"task_duration": TASK_DURATION, "completion_timeout": COMPLETION_TIMEOUT}
VANISHED = 80
"""Seconds without a sign of life after which a job counts as dead: lease and safety margin have expired."""


@pytest.fixture
def world() -> World:
    return World("S0", "S1")


def begun(world: World, **supervise: object) -> World:
    """A source whose jobs read."""
    world.submit(
        **{"task_count": 2, "task_duration": TASK_DURATION, "completion_timeout": COMPLETION_TIMEOUT, **supervise}
    )
    world.turn()
    world.begin()
    world.supervisor.poll()
    return world


def failed(world: World, partition: str, error_class: str, *, is_stream_error: bool) -> ErrorEvent:
    return ErrorEvent(
        at=world.clock.now(),
        error_class=error_class,
        message=f"{partition} cannot be read",
        partition=partition,
        is_stream_error=is_stream_error,
    )


# Starting


def test_first_turn_finds_shards_and_starts_jobs(world: World) -> None:
    world.submit(task_count=2)
    turn = world.turn()
    assert [type(action).__name__ for action in turn.actions] == ["DiscoverPartitions", "StartJob", "StartJob"]
    assert world.state is DetailedState.RUNNING
    world.begin()
    assert world.read_by() == {"S0": "job-1", "S1": "job-2"}
    assert not world.supervisor.poll().needs_turn


def test_source_without_a_spec_is_only_observed(world: World) -> None:
    assert not world.supervisor.poll().needs_turn
    assert world.turn().actions == ()
    assert world.state is DetailedState.PENDING
    world.submit()
    assert world.supervisor.poll().needs_turn


def test_start_delay_precedes_the_first_job(world: World) -> None:
    world.submit(start_delay=5)
    world.turn()
    assert world.running == []
    world.clock.advance(4.9)
    assert not world.supervisor.poll().needs_turn
    world.clock.advance(0.1)
    world.turn()
    assert len(world.running) == 1


def test_jobs_do_not_exceed_partitions(world: World) -> None:
    begun(world, task_count=5)
    assert len(world.running) == 2


def test_supervisor_discovers_partitions_once_per_period(world: World) -> None:
    world.stream.must_discover_partitions = True
    begun(world, period=30)
    assert world.stream.looks == 1
    world.go_on(60, every=5)
    assert world.stream.looks == 3


def test_job_receives_its_spec_maximum_duration_and_job_count(world: World) -> None:
    begun(world)
    order = world.running[0].request
    assert order.spec.supervise.task_count == 2
    assert order.max_duration == timedelta(seconds=TASK_DURATION + COMPLETION_TIMEOUT)
    assert order.workers == 2
    known = world.jobs.get(order.job.owner)
    assert known is not None and known.task == "supervisor/clicks"


# Ending and failing


def test_finished_job_is_replaced_and_the_others_continue(world: World) -> None:
    begun(world)
    world.clock.advance(30)
    world.rounds()
    world.running[0].end()
    world.turn()
    assert world.owners == ["job-2", "job-3"]
    assert (world.health.successful_jobs, world.health.failed_jobs) == (1, 0)


def test_short_job_is_replaced_after_a_full_period(world: World) -> None:
    begun(world, task_count=1, period=30)
    world.running[0].end()
    world.turn()
    assert world.running == []
    world.clock.advance(29)
    assert not world.supervisor.poll().needs_turn
    world.clock.advance(1)
    world.turn()
    assert world.owners == ["job-2"]
    assert world.health.failed_jobs == 0


def test_failed_job_is_replaced_after_a_growing_pause(world: World) -> None:
    begun(world, task_count=1, period=30)
    pauses = []
    for _ in range(7):
        world.running[0].end(1, "ProvisionedThroughputExceededException: slow down")
        world.turn()
        start_after = world.supervision().start_after
        assert start_after is not None and world.running == []
        pauses.append((start_after - world.clock.now()).total_seconds())
        world.clock.advance(pauses[-1] - 1)
        assert world.turn().actions == ()
        world.clock.advance(1)
        world.turn()
        world.begin()
    assert pauses == [30, 60, 120, 240, 480, 600, 600]
    error = world.health.errors[-1]
    assert (error.error_class, error.owner) == ("ProvisionedThroughputExceededException", "job-7")


def test_vanished_job_releases_its_leases_and_counts_as_failed(world: World) -> None:
    begun(world, task_count=1)
    world.running[0].is_dead = True
    world.go_on(VANISHED)
    assert world.read_by() == {"S0": None, "S1": None}
    assert world.health.failed_jobs == 1
    assert world.cluster.killed == ["job-1"]
    assert "has not responded since" in world.health.errors[-1].message
    world.go_on(30)
    assert world.read_by() == {"S0": "job-2", "S1": "job-2"}


def test_job_not_begun_in_time_is_given_up(world: World) -> None:
    world.submit()
    world.turn()
    world.go_on(START_TIMEOUT.total_seconds(), begin=False)
    assert world.health.failed_jobs == 1
    assert "did not start by" in world.health.errors[-1].message


def test_unsubmittable_job_counts_as_failed_without_failing_the_turn(world: World) -> None:
    world.submit()
    world.cluster.refuses = RuntimeError("the cluster is full")
    turn = world.turn()
    assert turn.errors == () and world.supervision().jobs == ()
    assert world.health.failed_jobs == 1
    assert world.health.errors[-1].message == "RuntimeError: the cluster is full"
    assert world.health.failed_runs == 0


def test_three_failed_or_good_jobs_change_health(world: World) -> None:
    begun(world, task_count=1)
    for _ in range(3):
        world.running[0].end(1, "no")
        world.go_on(140)
    assert world.state is DetailedState.UNHEALTHY_TASKS
    for number in range(3):
        assert world.state is DetailedState.UNHEALTHY_TASKS, number
        world.go_on(30)
        world.running[0].end()
        world.turn()
        world.begin()
    assert world.state is DetailedState.RUNNING


def test_job_with_reset_partitions_has_not_failed(world: World) -> None:
    world.submit(task_count=1)
    for _ in range(3):
        world.turn()
        [job] = world.begin()
        job.end(EXIT_LOST_WORK, "leases were lost; other workers continue these partitions: S0")
        world.clock.advance(30)
    world.turn()
    assert (world.state, world.health.failed_jobs, world.health.errors) == (DetailedState.RUNNING, 0, ())
    assert world.supervision().start_after is None or world.supervision().start_after <= world.clock.now()


def test_counts_of_a_job_are_added_once(world: World) -> None:
    begun(world, task_count=1)
    world.clock.advance(30)
    world.running[0].round(0)
    world.running[0].report(processed=7)
    world.running[0].end()
    world.turn()
    world.turn()
    world.begin()[0].report(processed=5)
    world.running[0].end(1, "no")
    world.turn()
    assert world.supervision().totals["processed"] == 12


# Handing over


def test_job_hands_over_after_its_duration_to_a_running_successor(world: World) -> None:
    begun(world, task_count=1)
    world.go_on(TASK_DURATION, begin=False)
    assert world.owners == ["job-1", "job-2"]
    assert world.read_by() == {"S0": "job-1", "S1": "job-1"}
    world.running[1].begin()
    world.turn()
    assert world.running[0].round(0) == ["S0", "S1"]  # it delivers what it has read
    assert world.running[0].stop == "job-2 takes over"
    world.rounds()
    world.turn()
    assert world.read_by() == {"S0": "job-2", "S1": "job-2"}
    assert [job.owner for job in world.supervision().jobs] == ["job-2"]
    assert world.health.successful_jobs == 1


def test_old_job_keeps_reading_if_its_successor_never_begins(world: World) -> None:
    begun(world, task_count=1)
    world.go_on(TASK_DURATION, begin=False)
    assert world.owners == ["job-1", "job-2"]
    world.go_on(START_TIMEOUT.total_seconds(), begin=False)
    assert world.read_by() == {"S0": "job-1", "S1": "job-1"}
    assert world.health.failed_jobs == 1
    world.go_on(30, begin=False)
    assert world.owners == ["job-1", "job-3"]


def test_old_job_reads_until_its_successor_has_a_spark_session(world: World) -> None:
    begun(world, task_count=1)
    world.go_on(TASK_DURATION, begin=False)
    old, successor = world.running
    successor.begin(reads=False)
    world.go_on(60, begin=False)
    assert world.read_by() == {"S0": old.owner, "S1": old.owner}
    assert old.stop is None
    successor.reads()
    world.go_on(20, begin=False)
    assert old.stop == f"{successor.owner} takes over"
    assert world.read_by() == {"S0": successor.owner, "S1": successor.owner}


def test_successor_that_dies_before_reading_counts_as_failed(world: World) -> None:
    begun(world, task_count=1)
    world.go_on(TASK_DURATION, begin=False)
    old, successor = world.running
    successor.begin(reads=False)
    successor.is_dead = True
    world.go_on(VANISHED, begin=False)
    assert world.health.failed_jobs == 1
    assert old.stop is None and world.read_by() == {"S0": old.owner, "S1": old.owner}


def test_live_job_without_a_spark_session_is_given_up(world: World) -> None:
    world.submit()
    world.turn()
    [job] = world.running
    job.begin(reads=False)
    world.go_on(START_TIMEOUT.total_seconds(), begin=False)
    assert "did not start to read by" in world.health.errors[-1].message
    assert world.cluster.killed == [job.owner]


def test_job_not_ending_in_time_is_stopped_and_counts_failed(world: World) -> None:
    begun(world, task_count=1)
    world.go_on(TASK_DURATION, begin=False)
    old, successor = world.running
    successor.begin()
    world.turn()
    for _ in range(COMPLETION_TIMEOUT // 10):  # it goes on delivering, and renews its lease
        world.clock.advance(10)
        old.round(0)
        successor.round(0)
        if world.supervisor.poll().needs_turn:
            world.turn()
    assert world.cluster.killed == ["job-1"]
    assert world.health.failed_jobs == 1
    assert "did not end in time" in world.health.errors[-1].message
    world.rounds()
    assert world.read_by() == {"S0": "job-2", "S1": "job-2"}


def test_spec_change_causes_a_handover_unless_cosmetic(world: World) -> None:
    begun(world, task_count=1)
    world.submit(**TIMES, description="all clicks")
    world.go_on(60)
    assert world.owners == ["job-1"]
    world.submit(**TIMES, path="/data/lake/other")
    world.go_on(60)
    assert world.owners == ["job-2"]
    assert world.supervision().jobs[0].spec_version == 3


def test_spec_change_withdraws_jobs_not_yet_begun(world: World) -> None:
    world.submit()
    world.turn()
    world.submit(path="/data/lake/other")
    turn = world.turn()
    assert [type(action) for action in turn.actions] == [EndJob, StartJob]
    assert world.owners == ["job-2"]
    assert world.health.failed_jobs == world.health.successful_jobs == 0
    known = world.jobs.get("job-1")
    assert known is not None and known.state is JobState.ENDED


def test_requested_handover_happens_once(world: World) -> None:
    begun(world)
    world.clock.advance(1)
    world.store.request_handover()
    world.go_on(60)
    assert sorted(world.owners) == ["job-3", "job-4"]
    world.go_on(60)
    assert sorted(world.owners) == ["job-3", "job-4"]
    assert world.supervision().handover_requested_at is None


def test_handover_can_be_requested_during_another(world: World) -> None:
    begun(world, task_count=1)
    world.clock.advance(1)
    world.store.request_handover()
    world.turn()
    world.clock.advance(1)
    world.store.request_handover()
    world.turn()
    assert world.owners == ["job-1", "job-2"]
    world.go_on(30)
    assert world.owners == ["job-2"]


# Suspended, terminated, done


def test_suspension_ends_jobs_and_starts_none(world: World) -> None:
    begun(world)
    world.suspend()
    world.go_on(30)
    assert world.running == []
    assert world.state is DetailedState.SUSPENDED
    world.go_on(HOUR, every=60)
    assert world.running == [] and world.state is DetailedState.SUSPENDED
    world.resume()
    world.go_on(30)
    assert len(world.running) == 2 and world.state is DetailedState.RUNNING


def test_termination_completes_after_its_jobs_have_ended(world: World) -> None:
    begun(world)
    world.store.terminate(by="ann", reason="moved away")
    assert world.state is DetailedState.STOPPING
    world.turn()
    assert world.state is DetailedState.STOPPING
    world.go_on(20)
    assert world.running == [] and world.state is DetailedState.TERMINATED
    world.go_on(HOUR, every=60)
    assert world.running == [] and world.state is DetailedState.TERMINATED


def test_spec_after_termination_starts_again(world: World) -> None:
    begun(world)
    world.store.terminate(by="ann")
    world.go_on(20)
    world.submit(task_count=1)
    assert world.state is DetailedState.PENDING
    world.go_on(20)
    assert len(world.running) == 1 and world.state is DetailedState.RUNNING


def test_bounded_read_terminates_after_its_last_partition(world: World) -> None:
    begun(world, terminate_when_done=True, period=10)
    world.running[0].coordinator.leases.give_up_all()
    world.running[1].coordinator.leases.give_up_all()
    world.complete("S0", "S1")
    world.go_on(200)
    assert world.state is DetailedState.TERMINATED
    assert world.supervision().termination_reason == "all partitions are read and 'terminate_when_done' is set"
    latest = world.store.current()
    assert latest is not None and latest.is_termination and latest.by == "supervise_clicks"


def test_bounded_read_of_an_empty_source_does_not_terminate(world: World) -> None:
    world.stream.shards = []
    begun(world, terminate_when_done=True)
    world.go_on(200)
    assert world.state is DetailedState.RUNNING


# The source


def test_lost_and_regained_contact_is_noticed_during_jobs(world: World) -> None:
    begun(world, period=30)
    world.go_on(60)
    world.stream.error = SourceError("stream 'clicks' does not answer")
    world.go_on(100)
    assert world.state is DetailedState.LOST_CONTACT_WITH_STREAM
    assert len(world.running) == 2
    world.stream.error = None
    world.go_on(100)
    assert world.state is DetailedState.RUNNING


def test_stream_that_never_responded_is_not_connected(world: World) -> None:
    world.stream.error = SourceError("stream 'clicks' does not exist")
    world.submit(period=30)
    world.turn()
    assert world.state is DetailedState.CONNECTING_TO_STREAM
    world.go_on(100)
    assert world.state is DetailedState.UNABLE_TO_CONNECT_TO_STREAM
    world.stream.error = None
    world.go_on(140)
    assert world.state is DetailedState.RUNNING and len(world.running) == 1


@pytest.mark.parametrize(
    "error", [AccessDeniedError("DescribeStreamSummary: access refused"), StreamNotFoundError("gone")], ids=str
)
def test_stream_refusing_the_supervisor_is_lost_contact(world: World, error: Exception) -> None:
    begun(world, period=30)
    world.go_on(60)
    world.stream.error = error
    world.go_on(100)
    assert world.state is DetailedState.LOST_CONTACT_WITH_STREAM


def test_shard_unreadable_for_jobs_is_lost_contact_until_read(world: World) -> None:
    begun(world, period=30)
    world.go_on(60)
    [job, _] = world.running
    denied = failed(world, "S0", "AccessDeniedError", is_stream_error=True)
    world.fail("S0", denied.message)
    job.report(errors=[denied])
    world.go_on(100)
    assert world.state is DetailedState.LOST_CONTACT_WITH_STREAM
    [noted] = world.health.errors
    assert noted == replace(denied, owner=job.owner)
    assert len(world.running) == 2, "the jobs go on"
    world.fail("S0", None)
    world.go_on(100)
    assert world.state is DetailedState.RUNNING


def test_read_failures_of_a_job_are_remembered_after_it(world: World) -> None:
    begun(world, period=30, task_count=1)
    world.go_on(60)
    [job] = world.running
    denied = failed(world, "S0", "AccessDeniedError", is_stream_error=True)
    world.fail("S0", denied.message)
    job.report(errors=[denied])
    job.end()
    world.go_on(100)
    assert world.state is DetailedState.LOST_CONTACT_WITH_STREAM
    assert [error.partition for error in world.health.errors] == ["S0"]


def test_partition_failing_otherwise_is_noted_without_lost_contact(world: World) -> None:
    begun(world, period=30)
    world.go_on(60)
    full = failed(world, "S0", "OSError", is_stream_error=False)
    world.fail("S0", full.message)
    world.running[0].report(errors=[full])
    world.go_on(100)
    assert world.state is DetailedState.RUNNING
    assert [(error.error_class, error.partition) for error in world.health.errors] == [("OSError", "S0")]


def test_turn_that_starts_jobs_queries_the_source_once(world: World) -> None:
    begun(world)
    world.go_on(60)
    world.clock.advance(1)
    world.store.request_handover()
    before = world.stream.counts
    assert [type(action) for action in world.turn().actions] == [StartJob, StartJob]
    assert world.stream.counts == before + 1


def test_turn_that_starts_jobs_notes_an_unresponsive_source(world: World) -> None:
    begun(world)
    world.go_on(60)
    world.clock.advance(1)
    world.store.request_handover()
    world.stream.error = SourceError("stream 'clicks' does not answer")
    assert len(world.turn().actions) == 2
    assert world.health.failed_runs == 1
    assert world.health.errors[-1].message == "stream 'clicks' does not answer"


def test_unreadable_stored_spec_leaves_jobs_alone(world: World) -> None:
    begun(world)
    world.store.submit({"version": 99}, by="a newer version of the package")
    world.go_on(100)
    assert len(world.running) == 2
    assert world.state is DetailedState.UNHEALTHY_SUPERVISOR
    assert "99" in world.health.errors[-1].message


def test_surplus_jobs_end_after_the_transition(world: World) -> None:
    begun(world)
    world.running[1].coordinator.leases.give_up_all()
    world.complete("S1")
    world.go_on(110)
    assert len(world.running) == 2
    world.go_on(60)
    assert len(world.running) == 1


# Two at once, and turns that stop


def test_later_run_takes_over_and_the_earlier_one_ends(world: World) -> None:
    begun(world)
    world.clock.advance(5)
    later = world.another_supervisor(world.later_claimant())
    assert not later.poll().needs_turn
    with pytest.raises(SupervisedElsewhereError, match="a later run of DAG 'supervise_clicks'"):
        world.turn()
    assert len(world.running) == 2


def test_another_dag_is_refused_until_the_lease_expires(world: World) -> None:
    begun(world)
    other = world.another_supervisor(world.later_claimant(dag_id="my_clicks"))
    with pytest.raises(SupervisedElsewhereError, match=r"by DAG 'supervise_clicks'.*DAG 'my_clicks' cannot"):
        other.turn(world.cluster)
    world.clock.advance(VANISHED)
    other.turn(world.cluster)
    assert world.supervision().dag_id == "my_clicks"


def test_concurrent_turns_act_once(world: World) -> None:
    world.submit(task_count=2)
    world.stream.discover_partitions()
    twin = world.another_supervisor(world.claimant)
    first = world.cluster.start

    def start_and_be_overtaken(order: object) -> None:
        world.cluster.start = first  # type: ignore[method-assign]
        twin.turn(world.cluster)
        first(order)  # type: ignore[arg-type]

    world.cluster.start = start_and_be_overtaken  # type: ignore[method-assign]
    world.turn()
    assert len(world.running) == 2


def test_planned_job_never_submitted_is_given_up(world: World) -> None:
    world.submit()
    world.stream.discover_partitions()
    planned = world.supervisor.poll().decision
    stored = world.store.acquire(world.claimant)
    owner = "job-of-a-turn-that-stopped"
    job = replace(planned.supervision.jobs[0], owner=owner)
    world.store.save(stored, replace(planned.supervision, jobs=(job,)))
    world.clock.advance(60)
    assert not world.supervisor.poll().needs_turn
    world.clock.advance(60)
    turn = world.turn()
    assert EndJob(owner=owner, kind=EndKind.GIVEN_UP, reason=_reason(turn.actions[0])) == turn.actions[0]
    assert not world.jobs.submit(owner, task="supervisor/clicks", digest="", start_by=world.clock.now())


def _reason(action: object) -> str:
    assert isinstance(action, EndJob)
    return action.reason


def test_recorded_stop_is_requested_by_the_next_turn(world: World) -> None:
    begun(world, task_count=1)
    stored = world.store.acquire(world.claimant)
    stopping = replace(stored.supervision.jobs[0], stop_requested_at=world.clock.now(), stop_reason="enough")
    world.store.save(stored, replace(stored.supervision, jobs=(stopping,)))
    world.turn()
    world.rounds()
    assert world.cluster.job("job-1").stop == "enough"


def test_unknown_job_is_asked_to_end(world: World) -> None:
    begun(world, task_count=1)
    stored = world.store.acquire(world.claimant)
    world.store.save(stored, replace(stored.supervision, jobs=()))
    world.go_on(60)
    assert world.owners == ["job-2"]


def test_jobs_with_purged_records_are_forgotten_without_failures(world: World) -> None:
    begun(world)
    for job in world.running:
        job.end()
    world.clock.advance(25 * HOUR)
    world.jobs.purge()
    world.go_on(60)
    assert len(world.running) == 2
    assert world.health.failed_jobs == 0


def test_released_supervision_can_be_taken_by_any_dag(world: World) -> None:
    begun(world)
    world.supervisor.release()
    other = world.another_supervisor(world.later_claimant(dag_id="my_clicks"))
    assert not other.poll().needs_turn
