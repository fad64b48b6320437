"""The turn of a supervisor over a real store: jobs that it starts and ends, notes, and failures."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from airflow_provider_coordination.coordination.errors import SourceError, SupervisedElsewhereError
from airflow_provider_coordination.coordination.job_reports import ErrorEvent
from airflow_provider_coordination.coordination.jobs import JobState
from airflow_provider_coordination.sources.kinesis.client import AccessDeniedError, StreamNotFoundError
from airflow_provider_coordination.spark.outcome import EXIT_LOST_WORK
from airflow_provider_coordination.supervisor.job_plan import HANDOVER_TIMEOUT, EndJob, EndKind, StartJob
from airflow_provider_coordination.supervisor.supervision import DetailedState
from tests.supervisor.source_simulation import START_TIMEOUT, SourceSimulation

HOUR = 3600
TASK_DURATION = 600
COMPLETION_TIMEOUT = 120
TIMES = {"task_duration": TASK_DURATION, "completion_timeout": COMPLETION_TIMEOUT}
VANISHED = 80
"""Seconds without a sign of life after which a job counts as dead: lease and safety margin have expired."""


@pytest.fixture
def simulation() -> SourceSimulation:
    return SourceSimulation("S0", "S1")


def begun(simulation: SourceSimulation, **supervise: object) -> SourceSimulation:
    """A source whose jobs read."""
    simulation.submit(
        **{"task_count": 2, "task_duration": TASK_DURATION, "completion_timeout": COMPLETION_TIMEOUT, **supervise}
    )
    simulation.turn()
    simulation.begin()
    simulation.supervisor.poll()
    return simulation


def failed(simulation: SourceSimulation, partition: str, error_class: str, *, is_stream_error: bool) -> ErrorEvent:
    return ErrorEvent(
        at=simulation.clock.now(),
        error_class=error_class,
        message=f"{partition} cannot be read",
        partition=partition,
        is_stream_error=is_stream_error,
    )


# Starting


def test_first_turn_finds_shards_and_starts_jobs(simulation: SourceSimulation) -> None:
    simulation.submit(task_count=2)
    turn = simulation.turn()
    assert [type(action).__name__ for action in turn.actions] == ["DiscoverPartitions", "StartJob", "StartJob"]
    assert simulation.state is DetailedState.RUNNING
    simulation.begin()
    assert simulation.read_by() == {"S0": "job-1", "S1": "job-2"}
    assert not simulation.supervisor.poll().needs_turn


def test_source_without_a_spec_is_only_observed(simulation: SourceSimulation) -> None:
    assert not simulation.supervisor.poll().needs_turn
    assert simulation.turn().actions == ()
    assert simulation.state is DetailedState.PENDING
    simulation.submit()
    assert simulation.supervisor.poll().needs_turn


def test_start_delay_precedes_the_first_job(simulation: SourceSimulation) -> None:
    simulation.submit(start_delay=5)
    simulation.turn()
    assert simulation.running == []
    simulation.clock.advance(4.9)
    assert not simulation.supervisor.poll().needs_turn
    simulation.clock.advance(0.1)
    simulation.turn()
    assert len(simulation.running) == 1


def test_jobs_do_not_exceed_partitions(simulation: SourceSimulation) -> None:
    begun(simulation, task_count=5)
    assert len(simulation.running) == 2


def test_supervisor_discovers_partitions_once_per_period(simulation: SourceSimulation) -> None:
    simulation.stream.must_discover_partitions = True
    begun(simulation, period=30)
    assert simulation.stream.looks == 1
    simulation.go_on(60, every=5)
    assert simulation.stream.looks == 3


def test_job_receives_its_spec_maximum_duration_and_job_count(simulation: SourceSimulation) -> None:
    begun(simulation)
    order = simulation.running[0].request
    assert order.spec.supervise.task_count == 2
    assert order.max_duration == timedelta(seconds=TASK_DURATION + COMPLETION_TIMEOUT)
    assert order.workers == 2
    known = simulation.jobs.get(order.job.owner)
    assert known is not None and known.task == "supervisor/clicks"


# Ending and failing


def test_finished_job_is_replaced_and_the_others_continue(simulation: SourceSimulation) -> None:
    begun(simulation)
    simulation.clock.advance(30)
    simulation.rounds()
    simulation.running[0].end()
    simulation.turn()
    assert simulation.owners == ["job-2", "job-3"]
    assert (simulation.health.successful_jobs, simulation.health.failed_jobs) == (1, 0)


def test_job_that_ended_needs_a_turn_that_reports_it(simulation: SourceSimulation) -> None:
    begun(simulation)
    simulation.suspend()
    simulation.turn()
    assert not simulation.supervisor.poll().needs_turn
    simulation.running[0].end()
    assert simulation.supervisor.poll().needs_turn
    assert simulation.turn().actions == ()
    assert not simulation.supervisor.poll().needs_turn


def test_short_job_is_replaced_after_a_full_period(simulation: SourceSimulation) -> None:
    begun(simulation, task_count=1, period=30)
    simulation.running[0].end()
    simulation.turn()
    assert simulation.running == []
    simulation.clock.advance(29)
    assert not simulation.supervisor.poll().needs_turn
    simulation.clock.advance(1)
    simulation.turn()
    assert simulation.owners == ["job-2"]
    assert simulation.health.failed_jobs == 0


def test_failed_job_is_replaced_after_a_growing_pause(simulation: SourceSimulation) -> None:
    begun(simulation, task_count=1, period=30)
    pauses = []
    for _ in range(7):
        simulation.running[0].end(1, "ProvisionedThroughputExceededException: slow down")
        simulation.turn()
        start_after = simulation.supervision().start_after
        assert start_after is not None and simulation.running == []
        pauses.append((start_after - simulation.clock.now()).total_seconds())
        simulation.clock.advance(pauses[-1] - 1)
        assert simulation.turn().actions == ()
        simulation.clock.advance(1)
        simulation.turn()
        simulation.begin()
    assert pauses == [30, 60, 120, 240, 480, 600, 600]
    error = simulation.health.errors[-1]
    assert (error.error_class, error.owner) == ("ProvisionedThroughputExceededException", "job-7")


def test_vanished_job_releases_its_leases_and_counts_as_failed(simulation: SourceSimulation) -> None:
    begun(simulation, task_count=1)
    simulation.running[0].is_dead = True
    simulation.go_on(VANISHED)
    assert simulation.read_by() == {"S0": None, "S1": None}
    assert simulation.health.failed_jobs == 1
    assert simulation.cluster.killed == ["job-1"]
    assert "has not responded since" in simulation.health.errors[-1].message
    simulation.go_on(30)
    assert simulation.read_by() == {"S0": "job-2", "S1": "job-2"}


def test_job_not_begun_in_time_is_given_up(simulation: SourceSimulation) -> None:
    simulation.submit()
    simulation.turn()
    simulation.go_on(START_TIMEOUT.total_seconds(), begin=False)
    assert simulation.health.failed_jobs == 1
    assert "did not start by" in simulation.health.errors[-1].message


def test_unsubmittable_job_counts_as_failed_without_failing_the_turn(simulation: SourceSimulation) -> None:
    simulation.submit()
    simulation.cluster.refuses = RuntimeError("the cluster is full")
    turn = simulation.turn()
    assert turn.errors == () and simulation.supervision().jobs == ()
    assert simulation.health.failed_jobs == 1
    assert simulation.health.errors[-1].message == "RuntimeError: the cluster is full"
    assert simulation.health.failed_runs == 0


def test_three_failed_or_good_jobs_change_health(simulation: SourceSimulation) -> None:
    begun(simulation, task_count=1)
    for _ in range(3):
        simulation.running[0].end(1, "no")
        simulation.go_on(140)
    assert simulation.state is DetailedState.UNHEALTHY_TASKS
    for number in range(3):
        assert simulation.state is DetailedState.UNHEALTHY_TASKS, number
        simulation.go_on(30)
        simulation.running[0].end()
        simulation.turn()
        simulation.begin()
    assert simulation.state is DetailedState.RUNNING


def test_job_with_reset_partitions_has_not_failed(simulation: SourceSimulation) -> None:
    simulation.submit(task_count=1)
    for _ in range(3):
        simulation.turn()
        [job] = simulation.begin()
        job.end(EXIT_LOST_WORK, "leases were lost; other workers continue these partitions: S0")
        simulation.clock.advance(30)
    simulation.turn()
    assert (simulation.state, simulation.health.failed_jobs, simulation.health.errors) == (DetailedState.RUNNING, 0, ())
    assert (
        simulation.supervision().start_after is None or simulation.supervision().start_after <= simulation.clock.now()
    )


def test_counts_of_a_job_are_added_once(simulation: SourceSimulation) -> None:
    begun(simulation, task_count=1)
    simulation.clock.advance(30)
    simulation.running[0].round(0)
    simulation.running[0].report(processed=7)
    simulation.running[0].end()
    simulation.turn()
    simulation.turn()
    simulation.begin()[0].report(processed=5)
    simulation.running[0].end(1, "no")
    simulation.turn()
    assert simulation.supervision().totals["processed"] == 12


# Handing over


def test_job_hands_over_after_its_duration_to_a_running_successor(simulation: SourceSimulation) -> None:
    begun(simulation, task_count=1)
    simulation.go_on(TASK_DURATION, begin=False)
    assert simulation.owners == ["job-1", "job-2"]
    assert simulation.read_by() == {"S0": "job-1", "S1": "job-1"}
    simulation.running[1].begin()
    simulation.turn()
    assert simulation.running[0].round(0) == ["S0", "S1"]
    assert simulation.running[0].stop is None, "it ends once it has handed over everything"
    simulation.rounds()
    simulation.turn()
    assert simulation.read_by() == {"S0": "job-2", "S1": "job-2"}
    assert [job.owner for job in simulation.supervision().jobs] == ["job-2"]
    assert simulation.health.successful_jobs == 1


def test_old_job_keeps_reading_if_its_successor_never_begins(simulation: SourceSimulation) -> None:
    begun(simulation, task_count=1)
    simulation.go_on(TASK_DURATION, begin=False)
    assert simulation.owners == ["job-1", "job-2"]
    simulation.go_on(START_TIMEOUT.total_seconds(), begin=False)
    assert simulation.read_by() == {"S0": "job-1", "S1": "job-1"}
    assert simulation.health.failed_jobs == 1
    simulation.go_on(30, begin=False)
    assert simulation.owners == ["job-1", "job-3"]


def test_old_job_reads_until_its_successor_has_a_spark_session(simulation: SourceSimulation) -> None:
    begun(simulation, task_count=1)
    simulation.go_on(TASK_DURATION, begin=False)
    old, successor = simulation.running
    successor.begin(reads=False)
    simulation.go_on(60, begin=False)
    assert simulation.read_by() == {"S0": old.owner, "S1": old.owner}
    assert old.stop is None
    successor.reads()
    simulation.go_on(20, begin=False)
    assert old.is_dead and old.stop is None
    assert simulation.read_by() == {"S0": successor.owner, "S1": successor.owner}


def test_successor_that_dies_before_reading_counts_as_failed(simulation: SourceSimulation) -> None:
    begun(simulation, task_count=1)
    simulation.go_on(TASK_DURATION, begin=False)
    old, successor = simulation.running
    successor.begin(reads=False)
    successor.is_dead = True
    simulation.go_on(VANISHED, begin=False)
    assert simulation.health.failed_jobs == 1
    assert old.stop is None and simulation.read_by() == {"S0": old.owner, "S1": old.owner}


def test_live_job_without_a_spark_session_is_given_up(simulation: SourceSimulation) -> None:
    simulation.submit()
    simulation.turn()
    [job] = simulation.running
    job.begin(reads=False)
    simulation.go_on(START_TIMEOUT.total_seconds(), begin=False)
    assert "did not start to read by" in simulation.health.errors[-1].message
    assert simulation.cluster.killed == [job.owner]


def test_job_not_ending_in_time_is_stopped_and_counts_failed(simulation: SourceSimulation) -> None:
    begun(simulation, task_count=1)
    simulation.go_on(TASK_DURATION, begin=False)
    old, successor = simulation.running
    successor.begin()
    simulation.turn()
    handover = HANDOVER_TIMEOUT // timedelta(seconds=10)
    for step in range(handover + COMPLETION_TIMEOUT // 10):  # it goes on delivering, and renews its lease
        assert (old.stop is None) == (step <= handover)
        simulation.clock.advance(10)
        old.round(0)
        successor.round(0)
        if simulation.supervisor.poll().needs_turn:
            simulation.turn()
    assert old.stop == "job-2 takes over" and simulation.cluster.killed == ["job-1"]
    assert simulation.health.failed_jobs == 1
    assert "did not end in time" in simulation.health.errors[-1].message
    simulation.rounds()
    assert simulation.read_by() == {"S0": "job-2", "S1": "job-2"}


def test_spec_change_causes_a_handover_unless_cosmetic(simulation: SourceSimulation) -> None:
    begun(simulation, task_count=1)
    simulation.submit(**TIMES, description="all clicks")
    simulation.go_on(60)
    assert simulation.owners == ["job-1"]
    simulation.submit(**TIMES, path="/data/lake/other")
    simulation.go_on(60)
    assert simulation.owners == ["job-2"]
    assert simulation.supervision().jobs[0].spec_version == 3


def test_spec_change_withdraws_jobs_not_yet_begun(simulation: SourceSimulation) -> None:
    simulation.submit()
    simulation.turn()
    simulation.submit(path="/data/lake/other")
    turn = simulation.turn()
    assert [type(action) for action in turn.actions] == [EndJob, StartJob]
    assert simulation.owners == ["job-2"]
    assert simulation.health.failed_jobs == simulation.health.successful_jobs == 0
    known = simulation.jobs.get("job-1")
    assert known is not None and known.state is JobState.ENDED


def test_requested_handover_happens_once(simulation: SourceSimulation) -> None:
    begun(simulation)
    simulation.clock.advance(1)
    simulation.store.request_handover()
    simulation.go_on(60)
    assert sorted(simulation.owners) == ["job-3", "job-4"]
    simulation.go_on(60)
    assert sorted(simulation.owners) == ["job-3", "job-4"]
    assert simulation.supervision().handover_requested_at is None


def test_handover_can_be_requested_during_another(simulation: SourceSimulation) -> None:
    begun(simulation, task_count=1)
    simulation.clock.advance(1)
    simulation.store.request_handover()
    simulation.turn()
    simulation.clock.advance(1)
    simulation.store.request_handover()
    simulation.turn()
    assert simulation.owners == ["job-1", "job-2"]
    simulation.go_on(30)
    assert simulation.owners == ["job-2"]


# Suspended, terminated, done


def test_suspension_ends_jobs_and_starts_none(simulation: SourceSimulation) -> None:
    begun(simulation)
    simulation.suspend()
    simulation.go_on(30)
    assert simulation.running == []
    assert simulation.state is DetailedState.SUSPENDED
    simulation.go_on(HOUR, every=60)
    assert simulation.running == [] and simulation.state is DetailedState.SUSPENDED
    simulation.resume()
    simulation.go_on(30)
    assert len(simulation.running) == 2 and simulation.state is DetailedState.RUNNING


def test_termination_completes_after_its_jobs_have_ended(simulation: SourceSimulation) -> None:
    begun(simulation)
    simulation.store.terminate(by="ann", reason="moved away")
    assert simulation.state is DetailedState.STOPPING
    simulation.turn()
    assert simulation.state is DetailedState.STOPPING
    simulation.go_on(20)
    assert simulation.running == [] and simulation.state is DetailedState.TERMINATED
    simulation.go_on(HOUR, every=60)
    assert simulation.running == [] and simulation.state is DetailedState.TERMINATED


def test_spec_after_termination_starts_again(simulation: SourceSimulation) -> None:
    begun(simulation)
    simulation.store.terminate(by="ann")
    simulation.go_on(20)
    simulation.submit(task_count=1)
    assert simulation.state is DetailedState.PENDING
    simulation.go_on(20)
    assert len(simulation.running) == 1 and simulation.state is DetailedState.RUNNING


def test_bounded_read_terminates_after_its_last_partition(simulation: SourceSimulation) -> None:
    begun(simulation, terminate_when_done=True, period=10)
    simulation.running[0].coordinator.leases.give_up_all()
    simulation.running[1].coordinator.leases.give_up_all()
    simulation.complete("S0", "S1")
    simulation.go_on(200)
    assert simulation.state is DetailedState.TERMINATED
    assert simulation.supervision().termination_reason == "all partitions are read and 'terminate_when_done' is set"
    latest = simulation.store.current()
    assert latest is not None and latest.is_termination and latest.by == "supervise_clicks"


def test_bounded_read_of_an_empty_source_does_not_terminate(simulation: SourceSimulation) -> None:
    simulation.stream.shards = []
    begun(simulation, terminate_when_done=True)
    simulation.go_on(200)
    assert simulation.state is DetailedState.RUNNING


# The source


def test_lost_and_regained_contact_is_noticed_during_jobs(simulation: SourceSimulation) -> None:
    begun(simulation, period=30)
    simulation.go_on(60)
    simulation.stream.error = SourceError("stream 'clicks' does not answer")
    simulation.go_on(100)
    assert simulation.state is DetailedState.LOST_CONTACT_WITH_STREAM
    assert len(simulation.running) == 2
    simulation.stream.error = None
    simulation.go_on(100)
    assert simulation.state is DetailedState.RUNNING


def test_stream_that_never_responded_is_not_connected(simulation: SourceSimulation) -> None:
    simulation.stream.error = SourceError("stream 'clicks' does not exist")
    simulation.submit(period=30)
    simulation.turn()
    assert simulation.state is DetailedState.CONNECTING_TO_STREAM
    simulation.go_on(100)
    assert simulation.state is DetailedState.UNABLE_TO_CONNECT_TO_STREAM
    simulation.stream.error = None
    simulation.go_on(140)
    assert simulation.state is DetailedState.RUNNING and len(simulation.running) == 1


@pytest.mark.parametrize(
    "error", [AccessDeniedError("DescribeStreamSummary: access refused"), StreamNotFoundError("gone")], ids=str
)
def test_stream_refusing_the_supervisor_is_lost_contact(simulation: SourceSimulation, error: Exception) -> None:
    begun(simulation, period=30)
    simulation.go_on(60)
    simulation.stream.error = error
    simulation.go_on(100)
    assert simulation.state is DetailedState.LOST_CONTACT_WITH_STREAM


def test_shard_unreadable_for_jobs_is_lost_contact_until_read(simulation: SourceSimulation) -> None:
    begun(simulation, period=30)
    simulation.go_on(60)
    [job, _] = simulation.running
    denied = failed(simulation, "S0", "AccessDeniedError", is_stream_error=True)
    simulation.fail("S0", denied.message)
    job.report(errors=[denied])
    simulation.go_on(100)
    assert simulation.state is DetailedState.LOST_CONTACT_WITH_STREAM
    [noted] = simulation.health.errors
    assert noted == replace(denied, owner=job.owner)
    assert len(simulation.running) == 2, "the jobs go on"
    simulation.fail("S0", None)
    simulation.go_on(100)
    assert simulation.state is DetailedState.RUNNING


def test_read_failures_of_a_job_are_remembered_after_it(simulation: SourceSimulation) -> None:
    begun(simulation, period=30, task_count=1)
    simulation.go_on(60)
    [job] = simulation.running
    denied = failed(simulation, "S0", "AccessDeniedError", is_stream_error=True)
    simulation.fail("S0", denied.message)
    job.report(errors=[denied])
    job.end()
    simulation.go_on(100)
    assert simulation.state is DetailedState.LOST_CONTACT_WITH_STREAM
    assert [error.partition for error in simulation.health.errors] == ["S0"]


def test_partition_failing_otherwise_is_noted_without_lost_contact(simulation: SourceSimulation) -> None:
    begun(simulation, period=30)
    simulation.go_on(60)
    full = failed(simulation, "S0", "OSError", is_stream_error=False)
    simulation.fail("S0", full.message)
    simulation.running[0].report(errors=[full])
    simulation.go_on(100)
    assert simulation.state is DetailedState.RUNNING
    assert [(error.error_class, error.partition) for error in simulation.health.errors] == [("OSError", "S0")]


def test_turn_that_starts_jobs_queries_the_source_once(simulation: SourceSimulation) -> None:
    begun(simulation)
    simulation.go_on(60)
    simulation.clock.advance(1)
    simulation.store.request_handover()
    before = simulation.stream.counts
    assert [type(action) for action in simulation.turn().actions] == [StartJob, StartJob]
    assert simulation.stream.counts == before + 1


def test_turn_that_starts_jobs_notes_an_unresponsive_source(simulation: SourceSimulation) -> None:
    begun(simulation)
    simulation.go_on(60)
    simulation.clock.advance(1)
    simulation.store.request_handover()
    simulation.stream.error = SourceError("stream 'clicks' does not answer")
    assert len(simulation.turn().actions) == 2
    assert simulation.health.failed_runs == 1
    assert simulation.health.errors[-1].message == "stream 'clicks' does not answer"


def test_unreadable_stored_spec_leaves_jobs_alone(simulation: SourceSimulation) -> None:
    begun(simulation)
    simulation.store.submit({"version": 99}, by="a newer version of the package")
    simulation.go_on(100)
    assert len(simulation.running) == 2
    assert simulation.state is DetailedState.UNHEALTHY_SUPERVISOR
    assert "99" in simulation.health.errors[-1].message


def test_surplus_jobs_end_after_the_transition(simulation: SourceSimulation) -> None:
    begun(simulation)
    simulation.running[1].coordinator.leases.give_up_all()
    simulation.complete("S1")
    simulation.go_on(110)
    assert len(simulation.running) == 2
    simulation.go_on(60)
    assert len(simulation.running) == 1


# Two at once, and turns that stop


def test_later_run_takes_over_and_the_earlier_one_ends(simulation: SourceSimulation) -> None:
    begun(simulation)
    simulation.clock.advance(5)
    later = simulation.another_supervisor(simulation.later_claimant())
    assert not later.poll().needs_turn
    with pytest.raises(SupervisedElsewhereError, match="a later run of DAG 'supervise_clicks'"):
        simulation.turn()
    assert len(simulation.running) == 2


def test_another_dag_is_refused_until_the_lease_expires(simulation: SourceSimulation) -> None:
    begun(simulation)
    other = simulation.another_supervisor(simulation.later_claimant(dag_id="my_clicks"))
    with pytest.raises(SupervisedElsewhereError, match=r"by DAG 'supervise_clicks'.*DAG 'my_clicks' cannot"):
        other.turn(simulation.cluster)
    simulation.clock.advance(VANISHED)
    other.turn(simulation.cluster)
    assert simulation.supervision().dag_id == "my_clicks"


def test_concurrent_turns_act_once(simulation: SourceSimulation) -> None:
    simulation.submit(task_count=2)
    simulation.stream.discover_partitions()
    twin = simulation.another_supervisor(simulation.claimant)
    first = simulation.cluster.start

    def start_and_be_overtaken(order: object) -> None:
        simulation.cluster.start = first  # type: ignore[method-assign]
        twin.turn(simulation.cluster)
        first(order)  # type: ignore[arg-type]

    simulation.cluster.start = start_and_be_overtaken  # type: ignore[method-assign]
    simulation.turn()
    assert len(simulation.running) == 2


def test_planned_job_never_submitted_is_given_up(simulation: SourceSimulation) -> None:
    simulation.submit()
    simulation.stream.discover_partitions()
    planned = simulation.supervisor.poll().decision
    stored = simulation.store.acquire(simulation.claimant)
    owner = "job-of-a-turn-that-stopped"
    job = replace(planned.supervision.jobs[0], owner=owner)
    simulation.store.save(stored, replace(planned.supervision, jobs=(job,)))
    simulation.clock.advance(60)
    assert not simulation.supervisor.poll().needs_turn
    simulation.clock.advance(60)
    turn = simulation.turn()
    assert EndJob(owner=owner, kind=EndKind.GIVEN_UP, reason=_reason(turn.actions[0])) == turn.actions[0]
    assert not simulation.jobs.submit(owner, task="supervisor/clicks", digest="", start_by=simulation.clock.now())


def _reason(action: object) -> str:
    assert isinstance(action, EndJob)
    return action.reason


def test_recorded_stop_is_requested_by_the_next_turn(simulation: SourceSimulation) -> None:
    begun(simulation, task_count=1)
    stored = simulation.store.acquire(simulation.claimant)
    stopping = replace(stored.supervision.jobs[0], stop_requested_at=simulation.clock.now(), stop_reason="enough")
    simulation.store.save(stored, replace(stored.supervision, jobs=(stopping,)))
    simulation.turn()
    simulation.rounds()
    assert simulation.cluster.job("job-1").stop == "enough"


def test_unknown_job_is_asked_to_end(simulation: SourceSimulation) -> None:
    begun(simulation, task_count=1)
    stored = simulation.store.acquire(simulation.claimant)
    simulation.store.save(stored, replace(stored.supervision, jobs=()))
    simulation.go_on(60)
    assert simulation.owners == ["job-2"]


def test_jobs_with_purged_records_are_forgotten_without_failures(simulation: SourceSimulation) -> None:
    begun(simulation)
    for job in simulation.running:
        job.end()
    simulation.clock.advance(25 * HOUR)
    simulation.jobs.purge()
    simulation.go_on(60)
    assert len(simulation.running) == 2
    assert simulation.health.failed_jobs == 0


def test_released_supervision_can_be_taken_by_any_dag(simulation: SourceSimulation) -> None:
    begun(simulation)
    simulation.supervisor.release()
    other = simulation.another_supervisor(simulation.later_claimant(dag_id="my_clicks"))
    assert not other.poll().needs_turn
